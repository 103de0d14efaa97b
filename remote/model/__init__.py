"""The model client of the worker: the Messages API with streaming, and the only layer that retries."""
