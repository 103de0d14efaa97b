"""The laptop: command line, REPL, approvals, settings, credentials, session client.

It touches the remote host only through a session.
"""
