"""What arrives on a connection, and the pipe of one command on it."""
