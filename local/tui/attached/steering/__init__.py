"""What the person changes while the agent works: tasks, prompts that wait, and how much the model thinks."""
