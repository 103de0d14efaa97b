"""Fetches pages for the worker in the network of the laptop, if the person has chosen that with --web laptop.

The worker may be hostile: it gets GET requests of http and https to public addresses and no others, without cookies or
credentials, and only their text."""

from __future__ import annotations

import asyncio
import logging

from ccb.tunnel.wire.kinds.web import MAX_TEXT, FetchedText, LaptopFetch
from ccb.tunnel.wire.requests import RequestRefused, public_fields
from ccb.tunnel.wire.web.addresses import WebRefused
from ccb.tunnel.wire.web.fetching import TIMEOUT_S, Page, WebFetcher

from ..session.client import Json

log = logging.getLogger(__name__)

_MAX_BODY = 4 << 20  # bytes
_MAX_AT_ONCE = 4
_TEXT = ("application/json", "application/xml", "application/javascript", "application/xhtml+xml", "application/yaml")


class LaptopWeb:
    """Answers the requests of kind WEB_FETCH."""

    def __init__(self, *, allow_private: bool) -> None:
        self._allow_private = allow_private
        self._room = asyncio.Semaphore(_MAX_AT_ONCE)

    async def fetch(self, request: LaptopFetch) -> Json:
        """Return the page as text. Raise RequestRefused."""
        async with self._room:
            log.info("fetching a page for the worker")
            try:
                page = await self._page(request.url)
            except WebRefused as refused:
                raise RequestRefused(str(refused)) from None
        if page.redirect:
            found = FetchedText(page.url, page.status, page.reason, "", "", page.redirect)
        elif page.media_type.startswith("text/") or page.media_type in _TEXT or page.media_type.endswith("+json"):
            text = _decoded(page)
            cut = page.cut or len(text) > MAX_TEXT
            found = FetchedText(page.url, page.status, page.reason, page.media_type, text[:MAX_TEXT], cut=cut)
        else:
            raise RequestRefused(f"it is {page.media_type}, and the laptop fetches text only")
        return public_fields(found)

    async def _page(self, url: str) -> Page:
        fetcher = WebFetcher(allow_private=self._allow_private, max_body=_MAX_BODY)
        work = asyncio.ensure_future(asyncio.to_thread(fetcher.fetch, url))
        try:
            async with asyncio.timeout(TIMEOUT_S):
                return await asyncio.shield(work)
        except TimeoutError:
            raise WebRefused(f"it took longer than {TIMEOUT_S:.0f} s") from None
        finally:
            if not work.done():
                fetcher.stop()
                work.add_done_callback(lambda ended: ended.cancelled() or ended.exception())


def _decoded(page: Page) -> str:
    try:
        return page.body.decode(page.charset or "utf-8", "replace")
    except LookupError:
        return page.body.decode("utf-8", "replace")
