"""/get, /put, /open. Not in headless runs: a prompt there may come from somebody who must not touch the laptop's
files."""

from __future__ import annotations

from collections.abc import Callable

from ..files.copying import CopyOrder, get_order, put_order
from ..transcript.blocks import Level
from .registry import NOTHING, Copying, OpenNext, Reply, Text, command
from .session_api import SessionApi

_NO_CONNECTION = Text("There is no connection for files here.", Level.WARNING)


@command("get", "REMOTE [LOCAL]", "copy a file or folder of the host to the laptop; /get stop ends copies")
async def get(api: SessionApi, argument: str) -> Reply:
    return _start(api, argument, get_order)


@command("put", "LOCAL [REMOTE]", "copy a file or folder of the laptop to the host")
async def put(api: SessionApi, argument: str) -> Reply:
    return _start(api, argument, put_order)


def _start(api: SessionApi, argument: str, order_of: Callable[[str, str], CopyOrder]) -> Reply:
    transfers = api.laptop.transfers
    if transfers is None:
        return _NO_CONNECTION
    if argument == "stop" and transfers.cancel_all():
        return NOTHING
    return Copying(transfers.start(order_of(argument, api.client.hello.cwd.raw)))


@command("open", "PATH", "fetch a file of the host, and show it with the laptop's viewer by a key or by /open alone")
async def open_(api: SessionApi, argument: str) -> Reply:
    fetched = api.laptop.fetched
    if fetched is None:
        return _NO_CONNECTION
    if not argument:
        return OpenNext()
    return Copying(fetched.fetch(argument, api.client.hello.cwd.raw), shown=True)
