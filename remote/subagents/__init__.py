"""Sub-agents: agents that the main agent starts for a part of its work."""
