"""Where parts of the screen hand an error that the person is to see."""

from __future__ import annotations

from typing import Protocol

from ccb.tunnel.errors import CcbError
from ccb.tunnel.wire.requests import RequestFailed


class ErrorDisplay(Protocol):
    """Shows what went wrong as a card in the conversation."""

    def show_error(self, error: CcbError | RequestFailed) -> None: ...
