"""One attached session as its clients see it, over a real socket with a host that says what the test wants."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from unittest.mock import MagicMock

import pytest
from tests.support.hosts.scripted_host import ScriptedHost, session_on
from tests.support.network.link_peer import Peer

from ccb.local.session import link_reader
from ccb.local.session.dialing import AttachOptions
from ccb.local.session.link_reader import MAX_QUEUED, MAX_QUEUED_BYTES
from ccb.local.session.remote_session import RemoteSession
from ccb.local.session.session_client import Item, LaptopNotice, LinkChange, LinkState, ReplayEnd, SessionEvent
from ccb.tunnel.errors import CcbError, UsageError
from ccb.tunnel.wire import control_protocol as control
from ccb.tunnel.wire.frames import Ack, Bye, Detach, Input, Json, Progress, Stop


@asynccontextmanager
async def attached() -> AsyncIterator[tuple[RemoteSession, Peer]]:
    async with session_on(ScriptedHost(), AttachOptions(patience=0)) as (session, peer):
        yield session, peer


async def all_of(session: RemoteSession) -> list[Item]:
    async with asyncio.timeout(60):
        return [item async for item in session.events() if not isinstance(item, ReplayEnd)]


def success(request: Input, payload: Json | None = None) -> Json:
    response: Json = {"subtype": "success", "request_id": request.body["request_id"]}
    return {"type": "control_response", "response": response | ({"response": payload} if payload is not None else {})}


async def test_a_prompt_is_a_public_user_message_under_its_own_id_and_has_a_limit() -> None:
    async with attached() as (session, peer):
        identity = await session.prompt("hello")
        given = await peer.next(Input)
        assert given.id == given.body["uuid"] == identity
        assert given.body["type"] == "user" and given.body["message"] == {"role": "user", "content": "hello"}
        assert await session.prompt("again", uuid="my-own") == "my-own"
        with pytest.raises(UsageError, match="too large"):
            await session.prompt("x" * (65 * 1024 * 1024))


async def test_events_progress_and_notices_of_the_laptop_come_in_order_until_the_host_says_bye() -> None:
    async with attached() as (session, peer):
        session.warn("the host asks too much")
        await peer.say({"type": "assistant"})
        await peer.say({"id": "x"}, kind="tool_start")
        await peer.send(Progress(2, 1, "k", {"type": "stream_event"}), Bye("finished"))
        assert await all_of(session) == [
            LaptopNotice("the host asks too much"),
            SessionEvent("message", {"type": "assistant"}, 1),
            SessionEvent("tool_start", {"id": "x"}, 2),
            SessionEvent("progress", {"type": "stream_event"}, 2),
            LinkChange(LinkState.CLOSED, "“finished”"),
        ]
        assert session.state is LinkState.CLOSED


async def test_a_witness_learns_that_another_client_has_answered() -> None:
    answer = {"type": "control_response", "response": {"subtype": "success", "request_id": "r1"}}
    async with attached() as (session, peer):
        witness = MagicMock()
        session.watched_by(witness)
        await peer.say({"id": "answer:r1", "body": answer}, kind="input")
        await peer.send(Bye())
        await all_of(session)
        witness.withdrawn.assert_called_once_with("r1")


async def test_control_requests_get_their_own_answers_in_any_order_and_the_reader_those_to_others() -> None:
    foreign = {"type": "control_response", "response": {"subtype": "success", "request_id": "sdk-1"}}
    async with attached() as (session, peer):
        model = asyncio.create_task(session.request(control.Request(control.SET_MODEL, "opus")))
        mode = asyncio.create_task(session.request(control.Request(control.SET_PERMISSION_MODE, "plan")))
        wrong = asyncio.create_task(session.request(control.Request(control.SET_PERMISSION_MODE, "x")))
        first, second, third = [await peer.next(Input) for _ in range(3)]
        assert first.body["request"] == {"subtype": "set_model", "model": "opus"}
        error = {"subtype": "error", "request_id": third.body["request_id"], "error": "no \x1b[31msuch mode"}
        await peer.say({"type": "control_response", "response": error})
        await peer.say(success(second, {"mode": "plan"}))
        await peer.say(success(first))
        assert (await model, await mode) == ({}, {"mode": "plan"})
        with pytest.raises(control.RequestFailed, match="no such mode"):
            await wrong
        await peer.say(foreign)
        await peer.say({"type": "control_response", "response": "nonsense"})
        await peer.send(Bye())
        assert next(item.body for item in await all_of(session) if isinstance(item, SessionEvent)) == foreign


async def test_interrupt_answer_refuse_and_stop_are_the_public_objects() -> None:
    asked: Json = {"type": "control_request", "request_id": "r1", "request": {"subtype": "initialize"}}
    async with attached() as (session, peer):
        interrupting = asyncio.create_task(session.interrupt())
        request = await peer.next(Input)
        assert request.body["request"] == {"subtype": "interrupt"} and request.id == request.body["request_id"]
        await peer.say(success(request, {"still_queued": []}))
        await interrupting
        await session.answer("ask-1", {"behavior": "deny", "message": "no"})
        answer = await peer.next(Input)
        assert answer.id == "answer:ask-1"
        assert answer.body["response"]["response"] == {"behavior": "deny", "message": "no"}
        await session.refuse("ask-2", "nobody there")
        assert (await peer.next(Input)).body["response"]["subtype"] == "error"
        for _ in range(2):
            await session.send(asked)
        first, second = await peer.next(Input), await peer.next(Input)
        assert first.body == second.body == asked
        assert len({first.id, second.id, "r1"}) == 3, "another process of the same client counts from one again"
        await session.stop(finish=True)
        assert (await peer.next(Stop)).finish
        await session.close()
        assert await peer.next(Detach)
        assert session.state is LinkState.CLOSED and await all_of(session) == []


@pytest.mark.parametrize(
    ("count", "size", "room", "most"),
    [(MAX_QUEUED * 40, 2_000, MAX_QUEUED_BYTES, MAX_QUEUED * 40), (MAX_QUEUED - 10, 20_000, 4 << 20, MAX_QUEUED / 2)],
    ids=["many events", "large events, before they fill the memory"],
)
async def test_a_reader_that_does_not_read_holds_the_host_back_and_loses_nothing(
    count: int, size: int, room: int, most: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link_reader, "MAX_QUEUED_BYTES", room)
    async with attached() as (session, peer):
        sent = 0

        async def talk() -> None:
            nonlocal sent
            for sent in range(count):
                await peer.say({"type": "assistant", "n": sent, "fill": "x" * size})
            await peer.send(Bye())

        talking = asyncio.create_task(talk())
        done, _ = await asyncio.wait({talking}, timeout=0.5)
        assert not done and sent < most, "the host must meet back-pressure"
        got = [item.body["n"] for item in await all_of(session) if isinstance(item, SessionEvent)]
        await talking
        assert got == list(range(count))
        assert (await peer.next(Ack)).seq <= count


async def test_an_event_over_the_limit_of_the_queue_still_arrives(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link_reader, "MAX_QUEUED_BYTES", 100_000)
    async with attached() as (session, peer):
        for number in range(5):
            await peer.say({"type": "assistant", "n": number, "fill": "x" * 20_000})
        await peer.send(Bye())
        assert [item.body["n"] for item in await all_of(session) if isinstance(item, SessionEvent)] == list(range(5))


@pytest.mark.parametrize("levels", [195, 205, 600])
async def test_a_message_that_is_nested_too_deeply_does_not_reach_the_reader(levels: int) -> None:
    body: Json = {"type": "assistant", "deep": 1}
    for _ in range(levels):
        body["deep"] = [body["deep"]]
    async with attached() as (session, peer):
        await peer.say(body)
        await peer.send(Bye())
        if levels < 200:
            assert [item.body for item in await all_of(session) if isinstance(item, SessionEvent)] == [body]
            return
        with pytest.raises(CcbError, match="more than 200 levels"):
            await all_of(session)
