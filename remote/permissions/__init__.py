"""What a tool call may do without asking: rules, modes, and what a shell command line really runs."""
