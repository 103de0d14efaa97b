"""SSH by asyncssh: TCP or ProxyCommand, jump hosts, host keys, login, and commands as channels of one connection."""
