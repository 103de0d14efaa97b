"""What ccb asks the terminal, and its answers among what is typed."""
