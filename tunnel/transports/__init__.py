"""The byte pipe of one remote command, and the transports that run commands as local processes."""
