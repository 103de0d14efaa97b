"""ccb: a coding agent that lives on the remote machine, its terminal and its secrets on the laptop."""

__version__ = "0.1.0"
