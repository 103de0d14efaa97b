"""The start of every request: system prompt, instructions of the project, facts about the host."""
