"""How prompts enter a turn, and what goes before the conversation."""
