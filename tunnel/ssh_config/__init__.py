"""The ssh options of a host, from `ssh -G`."""
