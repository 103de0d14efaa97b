"""The tunnel: the SSH connection, the link (frames over a byte pipe) and the auth proxy.

It carries sessions without knowing what a tool or a widget is.
"""
