"""The limits that a client sets for a turn."""
