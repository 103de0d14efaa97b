"""Questions of a login (passphrases, codes, host keys): who asks them, and what happens when nobody can."""
