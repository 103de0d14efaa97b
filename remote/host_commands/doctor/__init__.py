"""`ccb doctor` on the host: directories, quotas, limits, logout, network."""
