"""Fetching pages of the web: the same code runs on the host and, if the person wants that, on the laptop."""
