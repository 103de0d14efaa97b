"""The transcript as data: records and messages are reduced to blocks. Nothing here draws."""
