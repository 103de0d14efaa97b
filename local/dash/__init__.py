"""The sessions of all hosts: `ccb dash`."""
