"""Models: what each can do, and how each provider lists its own."""
