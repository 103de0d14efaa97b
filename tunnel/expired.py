"""Accounts that exist and may not be used: what servers and PAM say then."""

from __future__ import annotations

import re

EXPIRED = re.compile(
    r"your (account|password) has expired|password change required|you are required to change your password",
    re.IGNORECASE,
)

RENEW = "A password is renewed by one login in a terminal (ssh -t), an account by who administers the host."
