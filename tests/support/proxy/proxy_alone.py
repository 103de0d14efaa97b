"""The auth proxy alone in a process, without the test kit: for its memory and the time that it adds.

`python -m tests.support.proxy.proxy_alone DIRECTORY MODEL UPSTREAM` serves the proxy over HTTP and prints its socket. A
line on stdin makes it print its resident size, now and at most, in KB. It ends with its stdin."""

from __future__ import annotations

import asyncio
import re
import sys
from pathlib import Path

from tests.support.proxy.http_door import http_door

from ccb.local.config.settings import Settings
from ccb.local.providers.session_provider import session_provider
from ccb.tunnel.proxy.auth_proxy import AuthProxy
from ccb.tunnel.proxy.policy import Policy

NONCE = "n" * 43


async def _main(directory: Path, model: str, upstream: str) -> None:
    keys = {"ANTHROPIC_API_KEY": "k", "OPENAI_API_KEY": "k", "DEEPSEEK_API_KEY": "k"}
    settings = Settings()
    environ = {"HOME": str(directory), "ANTHROPIC_BASE_URL": upstream, **keys}
    if "/" in model:
        from ccb.local.config.settings import ProviderSettings

        name = model.partition("/")[0]
        settings = Settings(providers={name: ProviderSettings(baseUrl=f"{upstream}/v1")})
    policy = Policy(max_calls=200, max_burst=100_000, max_per_minute=1_000_000)
    async with (
        AuthProxy(session_provider(environ, settings, model), policy) as proxy,
        http_door(proxy, NONCE, directory / "model.sock") as path,
    ):
        sys.stdout.write(f"{path}\n")
        sys.stdout.flush()
        while await asyncio.to_thread(sys.stdin.readline):
            status = Path("/proc/self/status").read_text(encoding="ascii")
            found = dict(re.findall(r"^(VmRSS|VmHWM):\s+(\d+)", status, re.MULTILINE))
            sys.stdout.write(f"{found['VmRSS']} {found['VmHWM']}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(_main(Path(sys.argv[1]), sys.argv[2], sys.argv[3]))
