"""MCP: servers that somebody outside the worker runs, and their tools as tools of the agents."""
