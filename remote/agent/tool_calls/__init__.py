"""The tool calls of a turn: scheduled, decided, run, and recorded."""
