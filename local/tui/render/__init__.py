"""Blocks of the transcript to lines of styled text, and diffs."""
