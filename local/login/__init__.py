"""Questions of a login (passphrases, codes, host keys): how they are asked, and what happens if nobody can answer."""
