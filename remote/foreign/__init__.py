"""Agents of others, which work in a session in place of ccb's own."""
