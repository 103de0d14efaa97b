"""What monitoring systems are told of sessions."""
