"""`ccb doctor`: what this machine, the way to a host and the host itself say, as findings with evidence and one fix each."""
