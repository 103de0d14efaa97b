"""What is written down for somebody else to read, without secrets."""
