"""`ccb doctor`: check this machine, the connection and the host; report findings with evidence and one fix each."""
