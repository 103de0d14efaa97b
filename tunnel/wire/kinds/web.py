"""Fetching a page on the laptop, for a worker whose network is not the one that is wanted."""

from __future__ import annotations

from ..dataclass import dataclass
from ..frames import Json
from ..messages import as_text
from ..requests import Answer, AnsweredBy, Durability, RequestFailed, RequestKind, RequestRefused, payload_of
from ..web.addresses import WebRefused, read_url
from ..web.fetching import TIMEOUT_S

MAX_TEXT = 1_000_000
"""Most characters of a page that a laptop sends to the host."""


@dataclass(frozen=True)
class LaptopFetch:
    """Fetch this page, in the network of the laptop."""

    url: str


@dataclass(frozen=True)
class FetchedText:
    """A page as text. `redirect` is set, and there is no text, if the server sends to another host."""

    url: str
    status: int
    reason: str
    media_type: str
    text: str
    redirect: str = ""
    cut: bool = False


def _read(fields: Json) -> LaptopFetch:
    url = as_text(fields.get("url"))
    try:
        read_url(url)
    except WebRefused as refused:
        raise RequestRefused(str(refused)) from None
    return LaptopFetch(url)


def _fetched(answer: Answer) -> FetchedText:
    fields = payload_of(answer)
    status = fields.get("status")
    if not isinstance(status, int):
        raise RequestFailed("the laptop's answer cannot be read")
    url, reason, media_type, text, redirect = (
        as_text(fields.get(name)) for name in ("url", "reason", "media_type", "text", "redirect")
    )
    return FetchedText(url, status, reason, media_type, text[:MAX_TEXT], redirect, fields.get("cut") is True)


WEB_FETCH: RequestKind[LaptopFetch, FetchedText] = RequestKind(
    "web_fetch",
    AnsweredBy.LAPTOP,
    _fetched,
    read=_read,
    durability=Durability.MEMORY,
    deadline_s=TIMEOUT_S + 30,
)
