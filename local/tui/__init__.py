"""The REPL: a Textual application that shows one attached session.

It knows the session only as a `SessionClient`, and what the session says only as typed records and messages.
"""
