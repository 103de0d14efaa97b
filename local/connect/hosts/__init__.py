"""What connecting knows of a host beyond one session: its identity, earlier logins, and a connection that is kept."""
