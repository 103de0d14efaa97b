"""MCP servers of the person's own settings. They run on this laptop, and their tokens never leave it."""
