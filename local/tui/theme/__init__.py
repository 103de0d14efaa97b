"""The colours of the REPL."""
