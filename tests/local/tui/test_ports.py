"""Ports of the host on the screen: an offer is a line that is marked before a key acts, and `/ports` is a list."""

from __future__ import annotations

import webbrowser
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.local.ports.test_port_forwards import free_port, listens
from tests.support.repl.pilot import Desk, desk
from tests.support.repl.scripted_session import ScriptedSession

from ccb.local.ports.port_forwards import PortForwards
from ccb.local.session.session_client import PortOffer
from ccb.local.slash_commands.session_api import LaptopSide
from ccb.tunnel.plain_text import HostText
from ccb.tunnel.wire.frames import CHANNELS

OFFER = "(vite) → http://127.0.0.1:{} · Down, then o opens · f forwards · x not for this project"


class PortSession(ScriptedSession):
    """A session whose worker forwards ports."""

    def __init__(self) -> None:
        super().__init__()
        self.hello = replace(self.hello, capabilities=[*self.hello.capabilities, CHANNELS])

    def tell_ports(self, told: object) -> None: ...

    def offer_port(self, port: int, text: str) -> None:
        self._events.put_nowait(PortOffer(text, port))


class PortDesk:
    """A desk, the forwards of its session, and what the person has opened and hidden."""

    def __init__(self, at: Desk, ports: PortForwards, ignored: list[int]) -> None:
        self.at, self.ports, self.ignored = at, ports, ignored

    def listening(self, *ports: int) -> None:
        self.ports.told(dict.fromkeys(ports, HostText("vite")))


@asynccontextmanager
async def port_desk() -> AsyncIterator[PortDesk]:
    ignored: list[int] = []

    async def ignore(port: int) -> None:
        ignored.append(port)

    session = PortSession()
    ports = PortForwards(cast(Any, session), {}, lambda port: port not in ignored)
    laptop = LaptopSide(cast(Any, SimpleNamespace(ignore_port=ignore)), ports=ports)
    async with ports, desk(session, size=(120, 30), laptop=laptop) as at:
        yield PortDesk(at, ports, ignored)


async def test_a_marked_offer_is_forwarded_by_a_key_and_typed_words_do_nothing() -> None:
    port = free_port()
    async with port_desk() as each:
        each.listening(port)
        await each.at.sees(OFFER.format(port))
        await each.at.type("fox", sees="fox")
        assert not each.ports.forwards
        await each.at.press(*["backspace"] * 3, "down", sees=f"› {port} (vite)")
        await each.at.press("escape", loses="› ")
        await each.at.press("f", "backspace", "tab", "f", sees=f"is http://127.0.0.1:{port} on this machine.")
        await each.at.loses("Down, then o opens")
        assert listens(port) and each.at.session.prompts == []


async def test_o_opens_the_marked_port_in_the_browser(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    monkeypatch.setattr(webbrowser, "open", opened.append)
    async with port_desk() as each:
        each.listening(port := free_port())
        await each.at.sees(OFFER.format(port))
        await each.at.press("down", "o", then=lambda: opened == [f"http://127.0.0.1:{port}"])


async def test_a_port_is_offered_once_and_its_line_goes_with_its_program_or_with_x() -> None:
    async with port_desk() as each:
        each.listening(5173, 8000)
        await each.at.sees("5173 (vite) →", "8000 (vite) →")
        each.listening(5173)
        await each.at.loses("8000 (vite)")
        each.listening(5173, 8000)
        await each.at.press("down", "x", sees="Port 5173 is not offered in this project any more.")
        assert each.ignored == [5173]
        await each.at.loses("(vite) →")


async def test_no_offer_comes_beside_a_card() -> None:
    async with port_desk() as each:
        await each.at.turn("go", then=lambda: each.at.view.reducer.running)
        answer = each.at.session.ask("r1", "Bash", {"command": "make"})
        await each.at.card_focused()
        each.listening(5173)
        await each.at.pilot.pause(0.3)
        assert "vite" not in each.at.screen
        await each.at.answer("1")
        await answer
        await each.at.sees(OFFER.format(5173))


async def test_the_list_forwards_and_opens_the_marked_port(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    monkeypatch.setattr(webbrowser, "open", opened.append)
    port = free_port()
    async with port_desk() as each:
        await each.at.give("/ports", sees="No program of this session listens on a port.")
        each.listening(port)
        await each.at.give("/ports", sees=f"› {port} (vite)  not forwarded")
        await each.at.press("enter", sees=f"is http://127.0.0.1:{port} on this machine.")
        await each.at.give(f"/ports pin {port}", sees="stays forwarded")
        await each.at.give("/ports", sees=f"› {port} (vite)  http://127.0.0.1:{port}, 0 connections, pinned")
        await each.at.press("enter", then=lambda: opened == [f"http://127.0.0.1:{port}"])
        await each.at.loses("Ports of the host")
        assert each.at.app.focused is each.at.composer
