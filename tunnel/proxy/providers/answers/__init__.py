"""Answers on their way to the worker: lines of an upstream stream in, exact Anthropic events out."""
