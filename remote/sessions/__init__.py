"""Sessions on the disk of the host: where they are, which one is meant, who owns it."""
