"""The REPL: a Textual application on one attached session.

It knows the session only as a `SessionClient` and what it says only as typed messages.
"""
