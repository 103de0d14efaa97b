"""The tools that read the web."""
