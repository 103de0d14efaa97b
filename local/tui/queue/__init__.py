"""The prompts that wait for the agent: the person edits one, gives it another place, or drops it."""
