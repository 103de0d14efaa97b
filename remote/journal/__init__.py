"""The journal of a session: append-only and durable. Everything else about a session is derived from it."""
