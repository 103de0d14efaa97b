"""The auth proxy alone in a process, to measure its memory and the time that it adds from outside.

`python -m tests.support.proxy.proxy_alone DIRECTORY MODEL UPSTREAM` serves the proxy over HTTP and prints its socket.
A line `N QUERY` on stdin makes one in-band call with a request of N bytes; `sent received` is printed when it is over.
An empty line makes it print its resident size, now and at most, in KB. It ends with its stdin.
"""

from __future__ import annotations

import asyncio
import re
import sys
import uuid
from pathlib import Path

from tests.support.proxy.http_door import http_door
from tests.support.proxy.proxy_client import Worker, session_proxy

from ccb.tunnel.proxy.policy import Policy


async def _main(directory: Path, model: str, upstream: str) -> None:
    policy = Policy(max_calls=200, max_burst=100_000, max_per_minute=1_000_000)
    made = session_proxy(upstream, directory, model, policy)
    async with made as proxy, http_door(proxy, directory / "model.sock") as path:
        _say(str(path))
        while line := await asyncio.to_thread(sys.stdin.readline):
            size, _, query = line.strip().partition(" ")
            if size:
                async with Worker(proxy, keeps=False) as worker:
                    body, path_and_query = b"{}".ljust(int(size)), f"/v1/messages?{query}"
                    stream = await worker.post(1, body, call_id=str(uuid.uuid4()), path=path_and_query)
                assert stream.end is not None and not stream.end.error
                _say(f"{size} {stream.received}")
            else:
                status = Path("/proc/self/status").read_text(encoding="ascii")
                found = dict(re.findall(r"^(VmRSS|VmHWM):\s+(\d+)", status, re.MULTILINE))
                _say(f"{found['VmRSS']} {found['VmHWM']}")


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(_main(Path(sys.argv[1]), sys.argv[2], sys.argv[3]))
