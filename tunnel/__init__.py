"""The SSH connection, the link (frames over a byte pipe) and the auth proxy, without knowing what a tool or a widget
is."""
