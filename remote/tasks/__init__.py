"""The tasks that run beside the agents of a session: background commands, background agents and the like."""
