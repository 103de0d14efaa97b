"""How a restarted worker goes on with a session."""
