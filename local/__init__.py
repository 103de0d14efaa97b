"""The laptop: command line, REPL, approvals, settings, credentials, session client."""
