"""What a server says before it says that it speaks SSH: often why it closes the connection at once."""

from __future__ import annotations

import re
import socket

from ..errors import Dropped
from ..plain_text import neutralise

_MOST = 512
_MOST_SHOWN = 200


class Overheard(socket.socket):
    """The stream of `sock`, whose first words are remembered."""

    def __init__(self, sock: socket.socket) -> None:
        super().__init__(sock.family, sock.type, sock.proto, fileno=sock.detach())
        self.setblocking(False)
        self._heard = b""

    def recv(self, bufsize: int, flags: int = 0, /) -> bytes:
        data = super().recv(bufsize, flags)
        if len(self._heard) < _MOST:
            self._heard += data[: _MOST - len(self._heard)]
        return data

    @property
    def spoke_ssh(self) -> bool:
        """The server has named its version."""
        return re.search(rb"^SSH-", self._heard, re.MULTILINE) is not None

    @property
    def said(self) -> str:
        """The first words, as one line that is safe to show; empty when there were none."""
        return " ".join(neutralise(self._heard.decode("utf-8", "replace")).split())[:_MOST_SHOWN]


def takes_nobody(said: str) -> bool:
    """Whether these words, or none at all, are those of a server that takes no login for the moment."""
    return not said or re.search(r"MaxStartups|not allowed at this time", said, re.IGNORECASE) is not None


def taken_by_nobody(name: str, said: str) -> Dropped:
    """The error for such a server."""
    return Dropped(
        f"{name} closed the connection before any login",
        evidence=said,
        do="Too many logins are under way there (MaxStartups), or it shuts this address out: try again in a minute.",
    )
