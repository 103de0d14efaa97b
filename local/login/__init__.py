"""Questions of a login (passphrases, codes, host keys): how they are asked, and what happens where nobody can answer."""
