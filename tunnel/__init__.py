"""The SSH connection, the link (frames over a byte pipe) and the auth proxy, which know no tools and no widgets."""
