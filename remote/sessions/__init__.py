"""Sessions on the disk of the host: where their files are, which one a client means, which daemon owns it."""
