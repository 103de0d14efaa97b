"""Deferred tools: those that requests do not declare, and that the model finds when it needs them."""
