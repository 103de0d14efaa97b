"""Accounts that exist and may not be used: what servers and PAM say then."""

from __future__ import annotations

import re

from ..errors import AuthFailed

_EXPIRED = re.compile(
    r"your (account|password) has expired|password change required|you are required to change your password",
    re.IGNORECASE,
)


def expired(name: str, said: str) -> AuthFailed | None:
    """The error for the login to `name`, when what was `said` (neutralised) is of this kind."""
    if not _EXPIRED.search(said):
        return None
    return AuthFailed(
        f"{name} ended the login: the account or its password has expired",
        evidence=said.strip(),
        do="A password is renewed by one login in a terminal (ssh -t), an account by who administers the host.",
    )
