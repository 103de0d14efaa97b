"""What servers say when they let nobody in: before the SSH version, as when too many log in, and in banners."""

from __future__ import annotations

import re
import socket

from ..errors import AuthFailed, Dropped
from ..plain_text import neutralise

_MAX_HEARD = 512
_MAX_SHOWN = 200
_EXPIRED = re.compile(
    r"your (account|password) has expired|password change required|you are required to change your password",
    re.IGNORECASE,
)


class Overheard(socket.socket):
    """Takes over `sock` and remembers the first bytes that arrive."""

    def __init__(self, sock: socket.socket) -> None:
        super().__init__(sock.family, sock.type, sock.proto, fileno=sock.detach())
        self.setblocking(False)
        self._heard = b""

    def recv(self, bufsize: int, flags: int = 0, /) -> bytes:
        data = super().recv(bufsize, flags)
        if len(self._heard) < _MAX_HEARD:
            self._heard += data[: _MAX_HEARD - len(self._heard)]
        return data

    @property
    def spoke_ssh(self) -> bool:
        """Whether the server has sent its SSH version."""
        return re.search(rb"^SSH-", self._heard, re.MULTILINE) is not None

    @property
    def said(self) -> str:
        """The first bytes as one line that is safe to show; "" if there were none."""
        return " ".join(neutralise(self._heard.decode("utf-8", "replace")).split())[:_MAX_SHOWN]


def too_many_logins(said: str) -> bool:
    """Return whether this text of the server, perhaps empty, means that it accepts no login at the moment
    (MaxStartups)."""
    return not said or re.search(r"MaxStartups|not allowed at this time", said, re.IGNORECASE) is not None


def closed_before_login(name: str, said: str) -> Dropped:
    """Return the error for a server that accepts no login at the moment."""
    return Dropped(
        f"{name} closed the connection before any login",
        evidence=said,
        do="Too many logins are under way there (MaxStartups), or it blocks this address: try again in a minute.",
    )


def expired(name: str, said: str) -> AuthFailed | None:
    """Return an error if `said` (neutralised) says that the account or its password has expired, else None."""
    if not _EXPIRED.search(said):
        return None
    return AuthFailed(
        f"{name} ended the login: the account or its password has expired",
        evidence=said.strip(),
        do="Renew a password by one login in a terminal (ssh -t). Ask the host's administrator to renew an account.",
    )
