"""What opens every request: system prompt, instructions of the project, facts about the host."""
