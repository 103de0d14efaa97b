"""Judges git: its arguments, and the repositories whose configuration it obeys."""
