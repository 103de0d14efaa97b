"""Plan mode: its file, the tools that enter and leave it, and what the model is told of it."""
