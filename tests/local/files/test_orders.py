"""What is typed behind /get and /put, and how many copies may wait."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from ccb.local.files.copying import CopyOrder, OpenTransport, Transfers, get_order, put_order, remote_path
from ccb.local.tui.composer.completion_names import Mention, offer_of, path_argument_at
from ccb.tunnel.errors import UsageError
from ccb.tunnel.transports.pipe import Transport
from ccb.tunnel.wire.spelling import spelled


def test_paths_are_read_as_a_person_means_them() -> None:
    assert get_order('"my runs/a.png" ~/x', "/srv/shop") == CopyOrder(False, "~/x", "/srv/shop/my runs/a.png")
    assert get_order("~/a", "/srv/shop") == CopyOrder(False, ".", "~/a")
    assert get_order("..", "/srv/shop").name == "srv"
    assert put_order("a b/", "/srv/shop") == CopyOrder(True, "a", "/srv/shop/b/")
    assert put_order("a", "/srv/shop") == CopyOrder(True, "a", "/srv/shop")
    assert remote_path("/", "/srv") == "/"


@pytest.mark.parametrize("name", ["caf\udce9", r"caf\xe9", "two\nlines", "C:\\new dir", "plain \\", "größe"])
def test_a_name_that_the_host_offers_is_taken_back(name: str) -> None:
    typed = "/get " + offer_of(spelled(name), Mention("", 5, 5, sign="")).insert.rstrip(" ")
    again = path_argument_at(typed.removesuffix('"'), len(typed.removesuffix('"')))
    assert again is not None and again.query == spelled(name), "what the list is asked while the name is typed on"
    assert get_order(typed.removeprefix("/get "), "/srv") == CopyOrder(False, ".", f"/srv/{name}")


@pytest.mark.parametrize("argument", ["", "a b c", '"a', '""', "a\0b"])
def test_what_cannot_be_meant_is_refused_with_the_usage(argument: str) -> None:
    with pytest.raises(UsageError, match=r"this command is /get REMOTE \[LOCAL\]"):
        get_order(argument, "/srv")


async def test_only_so_many_copies_wait() -> None:
    async def open_transport(again: bool) -> Transport:
        await asyncio.Event().wait()
        raise AssertionError

    @asynccontextmanager
    async def lend() -> AsyncIterator[OpenTransport]:
        yield open_transport

    async with Transfers(lend) as transfers:
        for number in range(20):
            transfers.start(CopyOrder(False, f"x{number}", "y"))
        with pytest.raises(UsageError, match="20 copies are under way or wait"):
            transfers.start(CopyOrder(False, "x", "y"))
        assert transfers.cancel_all()
    assert transfers.running == []
