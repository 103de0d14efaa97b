"""The laptop's side of many sessions alone in a process: for each connection a link, an auth proxy and its accounts.

`python -m benchmarks.proxies_alone HOME UPSTREAM BUDGET` prints the path of a socket. Every connection to it is a
session, made as `connect_session` makes one; BUDGET (dollars a day, 0 for none) is shared by all that have this HOME. A
line on stdin makes it print its CPU seconds, its resident size in MB, threads and the dollars in the ledger. It ends
with its stdin.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import traceback
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

import psutil
from tests.support.network.link_peer import SocketPipe

from ccb.local.command_line.arguments import Arguments
from ccb.local.config.log import state_dir
from ccb.local.config.settings import BudgetSettings, Settings
from ccb.local.connect.startup import LoadedBasics, load_session_startup, open_proxy
from ccb.local.ledger.budgets import LedgerThread
from ccb.local.ledger.call_ledger import CallPlace, open_ledger
from ccb.tunnel.errors import ConnectionLost
from ccb.tunnel.link.link import Link, new_nonce
from ccb.tunnel.proxy.link_front import LinkFront

MODEL = "claude-sonnet-4-5"


async def _serve(
    environ: Mapping[str, str],
    basics: LoadedBasics,
    ledger: LedgerThread,
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
) -> None:
    async with AsyncExitStack() as stack:
        startup = load_session_startup(environ, basics, [MODEL])
        proxy, control = await open_proxy(Arguments(), startup, environ, stack, ledger)
        link, nonce = await stack.enter_async_context(Link(SocketPipe(reader, writer))), new_nonce()
        hello = await link.hello()
        control.serves(CallPlace(hello.session, "node", hello.cwd.raw), new=True)
        front = await stack.enter_async_context(LinkFront(proxy, link.send, nonce, epoch=hello.epoch + 1))
        await link.attach(nonce=nonce, options={}, calls=front.handle)
        proxy.link_up()
        try:
            async for _ in link.frames():
                pass
        except ConnectionLost:
            proxy.link_down()
    writer.close()


def _figures(environ: Mapping[str, str]) -> str:
    with open_ledger(state_dir(environ)) as ledger:
        spent = ledger.spent()
    it = psutil.Process()
    times = it.cpu_times()
    size = it.memory_info().rss / 1e6
    return json.dumps([times.user + times.system, size, it.num_threads(), spent.usd, spent.tokens])


async def _main(home: Path, upstream: str, budget: float) -> None:
    environ = {"HOME": str(home), "ANTHROPIC_BASE_URL": upstream, "ANTHROPIC_API_KEY": "k"}
    settings = Settings(budgets=BudgetSettings(dayUsd=budget or None))
    basics = replace(LoadedBasics(settings, None))  # type: ignore[arg-type]  # nothing is deployed
    ledger = LedgerThread(state_dir(environ))
    path = home / f"{os.getpid()}.sock"

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await _serve(environ, basics, ledger, reader, writer)
        except Exception:  # noqa: BLE001 - asyncio would keep it for itself
            traceback.print_exc()
            os._exit(1)

    server = await asyncio.start_unix_server(accept, path, backlog=4096)
    async with server:
        print(path, flush=True)
        while await asyncio.to_thread(sys.stdin.readline):
            await asyncio.wrap_future(ledger.submit(lambda: None))  # what waits to be written is written
            print(_figures(environ), flush=True)
    os._exit(0)  # sessions may still be open: what they would tell was told


if __name__ == "__main__":
    asyncio.run(_main(Path(sys.argv[1]), sys.argv[2], float(sys.argv[3])))
