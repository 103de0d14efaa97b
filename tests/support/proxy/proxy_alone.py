"""The auth proxy alone in a process, to measure its memory and the time that it adds from outside.

`python -m tests.support.proxy.proxy_alone DIRECTORY MODEL UPSTREAM` serves the proxy over HTTP and prints its socket.
With the MODEL `-`, there is one provider, with the API of Anthropic. A line `N QUERY` on stdin makes one in-band call
with a request of N bytes; `sent received` is printed when it is over. An empty line makes it print its resident size,
now and at most, in KB. It ends with its stdin.
"""

from __future__ import annotations

import asyncio
import base64
import re
import sys
import uuid
from contextlib import AbstractAsyncContextManager
from pathlib import Path

from tests.support.proxy.http_door import http_door
from tests.support.proxy.proxy_client import NONCE, proxy_to

from ccb.local.config.settings import ProviderSettings, Settings
from ccb.local.providers.session_provider import session_provider
from ccb.tunnel.proxy.auth_proxy import AuthProxy
from ccb.tunnel.proxy.link_front import LinkFront
from ccb.tunnel.proxy.policy import Policy
from ccb.tunnel.secret import Secret
from ccb.tunnel.wire.frames import CHUNK, INITIAL_CREDIT, CallData, CallEnd, CallOpen, Credit, Frame


class _Far:
    def __init__(self, proxy: AuthProxy) -> None:
        self.calls = LinkFront(proxy, self._take, Secret(NONCE))
        self.received = 0
        self._credit = INITIAL_CREDIT
        self._news = asyncio.Event()
        self._over = asyncio.Event()

    async def call(self, size: int, query: str) -> None:
        await self.calls.handle(CallOpen(0, 1, str(uuid.uuid4()), NONCE, "POST", f"/v1/messages?{query}", {}, size))
        sent = 0
        while sent < size:
            count = min(CHUNK, size - sent)
            while self._credit < count:
                self._news.clear()
                await self._news.wait()
            self._credit -= count
            piece = (b"" if sent else b"{}").ljust(count)  # an object, and blanks behind it
            await self.calls.handle(CallData(0, 1, sent, base64.b64encode(piece).decode()))
            sent += count
        await self.calls.handle(CallEnd(0, 1))
        await self._over.wait()

    async def _take(self, frame: Frame) -> None:
        match frame:
            case CallData():
                count = len(base64.b64decode(frame.b64))
                self.received += count
                await self.calls.handle(Credit(0, 1, count))
            case Credit():
                self._credit += frame.bytes
                self._news.set()
            case CallEnd():
                assert not frame.error, frame.error
                self._over.set()


async def _main(directory: Path, model: str, upstream: str) -> None:
    keys = {"ANTHROPIC_API_KEY": "k", "OPENAI_API_KEY": "k", "DEEPSEEK_API_KEY": "k"}
    environ = {"HOME": str(directory), "ANTHROPIC_BASE_URL": upstream, **keys}
    own = {model.partition("/")[0]: ProviderSettings(baseUrl=f"{upstream}/v1")} if "/" in model else {}
    policy = Policy(max_calls=200, max_burst=100_000, max_per_minute=1_000_000)
    if model == "-":
        made: AbstractAsyncContextManager[AuthProxy] = proxy_to(upstream, policy=policy)
    else:
        made = AuthProxy(session_provider(environ, Settings(providers=own), model), policy)
    async with made as proxy, http_door(proxy, NONCE, directory / "model.sock") as path:
        _say(str(path))
        while line := await asyncio.to_thread(sys.stdin.readline):
            size, _, query = line.strip().partition(" ")
            if size:
                far = _Far(proxy)
                async with far.calls:
                    await far.call(int(size), query)
                _say(f"{size} {far.received}")
            else:
                status = Path("/proc/self/status").read_text(encoding="ascii")
                found = dict(re.findall(r"^(VmRSS|VmHWM):\s+(\d+)", status, re.MULTILINE))
                _say(f"{found['VmRSS']} {found['VmHWM']}")


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(_main(Path(sys.argv[1]), sys.argv[2], sys.argv[3]))
