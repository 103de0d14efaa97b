"""The tool that changes notebooks."""
