"""Colours of the REPL."""
