"""The plain terminal: stdin, stdout, one-line prompts and signals, without the REPL."""
