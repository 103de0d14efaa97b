"""Search program."""
