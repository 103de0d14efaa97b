"""Ways to a host through other programs: the OpenSSH client with a private master, and containers."""
