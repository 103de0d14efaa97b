"""Hooks: commands and callbacks that the person's settings, or the driving program, tie to events of a session."""
