"""Files, processes and threads of the host."""
