"""Commands that run without a session: `ccb auth`, and `ps`, `logs`, `stop`, `gc`, `clean` for the sessions of a host."""
