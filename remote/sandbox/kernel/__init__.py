"""The parts of a cage that call the kernel, and the process that makes cages with them.

All of it runs in that process, which loads the modules by their sources (see `..server`).
"""
