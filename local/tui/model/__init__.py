"""The transcript as data: messages are reduced to blocks here, and nothing here draws."""
