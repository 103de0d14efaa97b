"""What the tools of the web need from the session and from their call."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Callable

from ccb.tunnel.wire.dataclass import dataclass

if TYPE_CHECKING:
    from ccb.tunnel.wire.kinds.web import FetchedText

    from ...model.question import ModelQuestion, ModelReply


@dataclass
class WebSettings:
    """`on_laptop`: pages are fetched in the network of the laptop. `allow_private`: also from private addresses."""

    on_laptop: bool = False
    allow_private: bool = False

    def use(self, network: str, allow_private: bool) -> None:
        """Take the options of a client: whose `network`, host or laptop."""
        self.on_laptop, self.allow_private = network == "laptop", allow_private


@dataclass(frozen=True)
class WebAccess:
    """`ask` puts a question to a model, and `fetch_on_laptop` fetches a page there; it raises RequestFailed."""

    ask: Callable[[ModelQuestion], Awaitable[ModelReply]]
    fetch_on_laptop: Callable[[str], Awaitable[FetchedText]]
