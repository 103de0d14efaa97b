"""The REPL: a Textual application that shows one attached session.

It sees the session only through `SessionClient`, and its events only as typed records and messages.
"""
