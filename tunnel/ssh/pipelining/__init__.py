"""The pipelined login: what the last login to a host needed goes out at once, without waiting for the server to ask."""
