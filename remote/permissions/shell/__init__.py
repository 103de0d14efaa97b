"""Permission checks for shell command lines: our own parser, and rules about what a line reads, writes and runs."""
