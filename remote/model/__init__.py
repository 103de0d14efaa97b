"""The model client of the worker: Messages API with streaming, and the one layer that retries."""
