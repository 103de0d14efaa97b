"""The journal: append-only, durable, the one truth of a session."""
