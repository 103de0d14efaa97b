"""Commands that need no session: `ccb auth`, and `ps`, `logs`, `stop`, `gc`, `clean` for the sessions of a host."""
