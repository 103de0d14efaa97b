"""Ports of the host on this machine."""
