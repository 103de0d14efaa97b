"""Makes the worker bundle from the worker's sources, and packs it for the transfer.

The build hook of the wheel loads this room on its own, so it imports nothing else of ccb.
"""
