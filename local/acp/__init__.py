"""The Agent Client Protocol (v1) on stdin and stdout: an editor drives sessions of one host."""
