"""Sends an event to the URL of a hook, from the host, under the rules for the addresses of web pages."""

from __future__ import annotations

import asyncio
import json
import os
import re
from typing import Any

from ccb.tunnel.wire.web.addresses import WebRefused
from ccb.tunnel.wire.web.fetching import WebFetcher

from .table import HttpTarget

Json = dict[str, Any]

_MAX_ANSWER = 1 << 20
_PLACE = re.compile(r"\$(?:\{(\w+)\}|(\w+))")


async def send(target: HttpTarget, payload: Json, timeout_s: float, *, allow_private: bool) -> str:
    """Post `payload` to the target. Return the body of the answer. Raise WebRefused without one, and for a status that
    is not 2xx."""
    fetcher = WebFetcher(allow_private=allow_private, max_body=_MAX_ANSWER)

    def value(found: re.Match[str]) -> str:
        name = found[1] or found[2]
        return os.environ.get(name, "") if name in target.variables else ""

    headers = {name: _PLACE.sub(value, text) for name, text in target.headers.items()}
    loop = asyncio.get_running_loop()
    work = loop.run_in_executor(None, fetcher.post, target.url, json.dumps(payload).encode(), headers)
    work.add_done_callback(lambda done: done.cancelled() or done.exception())
    try:
        if not (await asyncio.wait({work}, timeout=timeout_s))[0]:
            raise WebRefused(f"no answer within {timeout_s:g} s")
    finally:
        fetcher.stop()
    page = work.result()
    if not 200 <= page.status < 300:
        raise WebRefused(f"HTTP {page.status}")
    return page.body.decode("utf-8", "replace")
