"""Keeps a conversation within the model's window: counts tokens, clears old results, asks for summaries."""
