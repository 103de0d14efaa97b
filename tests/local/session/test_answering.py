"""What the worker asks of the laptop: a closed set, each request answered at most once, whatever is replayed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
from tests.support.hosts.scripted_host import ScriptedHost, no_waits, read_by
from tests.support.machine.waiting import until
from tests.support.network.link_peer import Peer

from ccb.local.session.answering import MAX_ANSWERING, MAX_OPEN, MAX_WAITING, MAX_WAITING_BYTES, REFUSES
from ccb.local.session.dialing import AttachOptions
from ccb.local.session.newest import MAX_ID, Newest
from ccb.local.session.outbox import MAX_INPUTS
from ccb.local.session.remote_session import RemoteSession
from ccb.local.session.session_client import EventGap, Item, LaptopNotice, LinkChange, LinkState, SessionEvent
from ccb.tunnel.errors import UsageError
from ccb.tunnel.wire.control_protocol import (
    CAN_USE_TOOL,
    AnsweredBy,
    Request,
    RequestKind,
    RequestRefused,
    Success,
    ToolApproval,
    payload_of,
    public_answer,
    public_withdrawal,
)
from ccb.tunnel.wire.frames import Applied, Event, Fetch, Input, Json, Past, Progress, Snapshot
from ccb.tunnel.wire.outside_messages import TELL_SESSION, OutsideMessage

FETCH: RequestKind[Json, Json] = RequestKind(
    "fetch", AnsweredBy.LAPTOP, payload_of, write=dict, read=dict, journalled=False, deadline_s=30
)
OTHER: RequestKind[Json, Json] = RequestKind("rm_rf", AnsweredBy.LAPTOP, payload_of, write=dict)


class Service:
    """Notes each call; a call waits until it is allowed to go on."""

    def __init__(self, *, ready: bool = True) -> None:
        self.calls: list[Json] = []
        self.called = asyncio.Event()
        self.cancelled = asyncio.Event()
        self.go_on = asyncio.Event()
        if ready:
            self.go_on.set()

    async def __call__(self, payload: Json) -> Json:
        self.calls.append(payload)
        self.called.set()
        try:
            await self.go_on.wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        if payload.get("url") == "file:":
            raise RequestRefused("only the web", "scheme")
        if payload.get("url") == "bug":
            raise KeyError("oops")
        return {"text": f"page {payload['url']}"}


@asynccontextmanager
async def answering(
    host: ScriptedHost, service: Service, *, once: bool = False, seq: int = 0, role: str = "driver", tail: int = 0
) -> AsyncIterator[tuple[RemoteSession, Peer, list[Item]]]:
    """A session whose attach was granted, which serves FETCH, leaves approvals to its reader, and is read into a list.
    Another client drives if it is a viewer."""
    seen: list[Item] = []
    async with RemoteSession(host.dial, AttachOptions(waits=no_waits, role=role, tail=tail)) as session:
        session.register(FETCH, service, lambda _: once)
        session.register(CAN_USE_TOOL)
        async with read_by(session, seen.append):
            peer, _ = await host.granted(role=role, seq=seq, driver="bob" if role == "viewer" else "")
            yield session, peer, seen


def ask(url: str, request_id: str = "f1") -> Json:
    return Request(FETCH, {"url": url}, id=request_id).public()


def other(request_id: str, **payload: object) -> Json:
    return Request(OTHER, payload, id=request_id).public()


def approval(number: int, command: str = "ls") -> Json:
    question = ToolApproval("Bash", "Bash", {"command": command}, "t1", [])
    return Request(CAN_USE_TOOL, question, id=f"q{number}").public()


QUESTION = approval(1)


async def progress(peer: Peer, body: Json, seq: int = 0) -> None:
    await peer.send(Progress(seq, 1, f"request:{body['request_id']}", body))


async def answer_of(peer: Peer) -> Json:
    given = await peer.next(Input)
    response: Json = given.body["response"]
    assert given.id == f"answer:{response['request_id']}"
    return response


async def reaches(session: RemoteSession, state: LinkState, seen: list[Item]) -> None:
    await until(lambda: any(isinstance(item, LinkChange) and item.state is state for item in seen))


async def reconnected(session: RemoteSession, peer: Peer, seen: list[Item], host: ScriptedHost, seq: int = 0) -> Peer:
    peer.hang_up()
    await reaches(session, LinkState.RECONNECTING, seen)
    return (await host.granted(seq=seq))[0]


@pytest.fixture
def host() -> ScriptedHost:
    return ScriptedHost()


async def test_a_service_answers_refuses_or_fails_and_its_request_is_not_the_readers_to_see(
    host: ScriptedHost, caplog: pytest.LogCaptureFixture
) -> None:
    service = Service()
    async with answering(host, service) as (_, peer, seen):
        await progress(peer, ask("a"))
        assert await answer_of(peer) == {"subtype": "success", "request_id": "f1", "response": {"text": "page a"}}
        await peer.say(ask("b", "f2"))
        assert (await answer_of(peer))["response"] == {"text": "page b"}
        for url, error in (("file:", "only the web"), ("bug", "internal error on the laptop: KeyError")):
            await progress(peer, ask(url, url))
            response = await answer_of(peer)
            assert (response["subtype"], response["error"]) == ("error", error)
        assert "rm_rf" not in caplog.text
        await peer.say(other("r1", path="/"))  # nobody has registered it
        response = await answer_of(peer)
        assert (response["subtype"], response["error_code"]) == ("error", "unsupported_request")
        assert "rm_rf" in caplog.text
        assert [each["url"] for each in service.calls] == ["a", "b", "file:", "bug"]
        assert not [item for item in seen if isinstance(item, SessionEvent)]


async def test_a_service_runs_once_although_the_request_is_asked_again_after_a_drop(host: ScriptedHost) -> None:
    service = Service()
    async with answering(host, service) as (session, peer, seen):
        await progress(peer, ask("a"))
        await answer_of(peer)  # it is lost with the connection: nobody confirms it
        again = await reconnected(session, peer, seen, host)
        await progress(again, ask("a"))
        assert (await answer_of(again))["response"] == {"text": "page a"}, "the answer that was kept"
        assert session.unsent == 1
        await again.send(Applied(1, "answer:f1"))
        await progress(again, ask("a"))
        await progress(again, ask("b", "f2"))
        assert (await answer_of(again))["request_id"] == "f2"
        assert service.calls == [{"url": "a"}, {"url": "b"}]


async def test_a_replay_that_holds_the_answer_starts_no_service(host: ScriptedHost) -> None:
    service = Service()
    async with answering(host, service, seq=4) as (_, peer, _):
        await peer.say(ask("a", "f1"))
        await peer.say(ask("b", "f2"))
        answer = {"subtype": "success", "request_id": "f1", "response": {}}
        body = {"id": "answer:f1", "body": {"type": "control_response", "response": answer}}
        await peer.say(body, kind="input")
        assert not service.calls
        await peer.say(public_withdrawal("f0"))
        assert (await answer_of(peer))["request_id"] == "f2"
        assert service.calls == [{"url": "b"}]


async def test_a_withdrawn_request_stops_its_service_and_gets_no_answer(host: ScriptedHost) -> None:
    service = Service(ready=False)
    async with answering(host, service) as (session, peer, _):
        await progress(peer, ask("a"))
        async with asyncio.timeout(60):
            await service.called.wait()
            await progress(peer, public_withdrawal("f1"))
            await service.cancelled.wait()
        service.go_on.set()
        await progress(peer, ask("b", "f2"))
        assert (await answer_of(peer))["request_id"] == "f2" and session.unsent == 1


@pytest.mark.parametrize("once", [False, True])
async def test_a_viewer_answers_nothing_until_it_drives_nor_what_may_run(host: ScriptedHost, once: bool) -> None:
    service = Service()
    async with answering(host, service, once=once, role="viewer") as (session, peer, seen):
        await peer.say(ask("a"))
        await reaches(session, LinkState.FENCED, seen)
        assert not service.calls
        host.greeting = replace(host.greeting, driver="bob")
        session.take_back()
        again, _ = await host.granted(seq=1)
        answer = await answer_of(again)
        assert answer["subtype"] == "error" if once else answer["response"] == {"text": "page a"}
        assert len(service.calls) == (0 if once else 1)


async def test_a_viewer_sends_a_message_again_under_its_id_after_a_drop(host: ScriptedHost) -> None:
    terms = AttachOptions(role="viewer", answers=True, waits=no_waits)
    async with RemoteSession(host.dial, terms) as session, read_by(session, lambda item: None):
        peer, _ = await host.granted(role="viewer", driver="bob")
        asking = asyncio.create_task(session.request(Request(TELL_SESSION, OutsideMessage("hello", "ci"))))
        first = await peer.next(Input)
        peer.hang_up()
        again, _ = await host.granted(role="viewer", driver="bob")
        second = await again.next(Input)
        assert (second.id, second.body, second.epoch) == (first.id, first.body, 0)
        answer = public_answer(Success(first.body["request_id"], {"driven": True}))
        await again.send(Event(1, 1, "message", answer))
        assert await asking == {"driven": True}
        with pytest.raises(UsageError, match="another client drives"):
            await session.prompt("not a viewer's")


async def test_what_must_not_run_twice_is_refused_if_an_earlier_client_may_have_begun_it(host: ScriptedHost) -> None:
    service = Service()
    async with answering(host, service, once=True, seq=1) as (session, peer, seen):
        await peer.say(ask("a"))
        refused = await answer_of(peer)
        assert refused["subtype"] == "error" and "Whether it had any effect is not known" in refused["error"]
        await peer.send(Applied(1, "answer:f1"))
        await peer.say(ask("b", "f2"))
        assert (await answer_of(peer))["response"] == {"text": "page b"}
        await peer.send(Applied(1, "answer:f2"))
        again = await reconnected(session, peer, seen, host, seq=3)
        await again.send(Event(3, 1, "message", ask("c", "f3")))
        assert (await answer_of(again))["response"] == {"text": "page c"}, "it came while this client was away"
        assert service.calls == [{"url": "b"}, {"url": "c"}]


async def test_what_must_not_run_twice_is_refused_if_another_client_drove_meanwhile(host: ScriptedHost) -> None:
    service = Service()
    async with answering(host, service, once=True) as (session, peer, seen):
        host.greeting = replace(host.greeting, epoch=host.greeting.epoch + 1)  # somebody has driven it, and left
        again = await reconnected(session, peer, seen, host, seq=1)
        await again.send(Event(1, 1, "message", ask("a")))
        refused = await answer_of(again)
        assert refused["subtype"] == "error" and "Whether it had any effect is not known" in refused["error"]
        await again.send(Event(2, 1, "message", ask("b", "f2")))
        assert (await answer_of(again))["response"] == {"text": "page b"}
        assert service.calls == [{"url": "b"}]


async def test_the_open_requests_of_a_snapshot_are_answered(host: ScriptedHost) -> None:
    async with answering(host, Service(), tail=100, seq=7) as (_, peer, seen):
        await peer.send(Snapshot(1, 7, {"asks": [ask("a"), QUESTION], "model": "m"}))
        assert (await answer_of(peer))["response"] == {"text": "page a"}
        await until(lambda: seen)
        assert seen[0] == EventGap(7, {"asks": [QUESTION], "model": "m"}), "the reader is shown only its own questions"


async def test_a_flood_of_requests_takes_few_tasks_and_each_is_answered_when_others_have_left(
    host: ScriptedHost,
) -> None:
    """While the worker confirms no answer the outbox is full, and even refusals wait."""
    async with answering(host, Service()) as (_, peer, seen):
        asked = {f"f{number}" for number in range(MAX_INPUTS + MAX_WAITING)}
        for request_id in sorted(asked):
            await progress(peer, other(request_id))
        await peer.say({"type": "system", "subtype": "status"})
        await until(lambda: any(isinstance(item, SessionEvent) for item in seen))
        assert sum(task.get_name().startswith("answer f") for task in asyncio.all_tasks()) <= MAX_ANSWERING
        for _ in range(len(asked)):
            response = await answer_of(peer)
            asked.remove(response["request_id"])
            await peer.send(Applied(1, f"answer:{response['request_id']}"))
        assert not asked


async def everything_is_read(session: RemoteSession, peer: Peer) -> None:
    """Return when the session has read what the host has sent so far."""
    asking = asyncio.create_task(session.earlier(1))
    await peer.send(Past(1, (await peer.next(Fetch)).request, {"records": []}))
    assert await asking == []


@pytest.mark.parametrize("in_snapshot", [False, True])
@pytest.mark.parametrize("late", [False, True])
async def test_an_approval_is_left_to_its_reader(host: ScriptedHost, in_snapshot: bool, late: bool) -> None:
    """`late`: the REPL is still starting while the replay brings the open question."""
    async with RemoteSession(host.dial, AttachOptions(waits=no_waits, tail=100)) as session:
        if not late:
            session.register(CAN_USE_TOOL)
        peer, _ = await host.granted(seq=1)
        if in_snapshot:
            await peer.send(Snapshot(1, 1, {"asks": [QUESTION]}))
        else:
            await peer.say(QUESTION)
        await everything_is_read(session, peer)
        if late:
            session.register(CAN_USE_TOOL)
        async with asyncio.timeout(60):
            first = await anext(session.events())
        if in_snapshot:
            assert isinstance(first, EventGap) and first.body["asks"] == [QUESTION]
        else:
            assert isinstance(first, SessionEvent) and first.body == QUESTION
        await asyncio.gather(*(task for task in asyncio.all_tasks() if task.get_name() == "answer q1"))
        assert session.unsent == 0, "only the reader answers"
        await session.answer("q1", {"behavior": "allow"})
        assert (await answer_of(peer))["response"] == {"behavior": "allow"}


async def test_requests_that_came_before_their_kinds_were_registered_go_where_they_belong(host: ScriptedHost) -> None:
    service = Service()
    async with RemoteSession(host.dial, AttachOptions(waits=no_waits)) as session:
        peer, _ = await host.granted()
        await progress(peer, ask("a", "f1"))
        await peer.say(ask("b", "f2"))
        await peer.say(public_withdrawal("f2"))
        await peer.say(QUESTION)
        await peer.say(public_withdrawal("q1"))
        await everything_is_read(session, peer)
        session.register(FETCH, service)
        session.register(CAN_USE_TOOL)
        events = session.events()
        async with asyncio.timeout(60):
            seen = [await anext(events) for _ in range(3)]
        assert [item.body for item in seen if isinstance(item, SessionEvent)] == [QUESTION, public_withdrawal("q1")]
        assert (await answer_of(peer))["request_id"] == "f1"
        assert service.calls == [{"url": "a"}]


def questions_in(seen: list[Item]) -> list[str]:
    return [str(item.body["request_id"]) for item in seen if isinstance(item, SessionEvent)]


async def test_of_thousands_of_open_questions_the_reader_gets_a_hundred_and_is_told_once(host: ScriptedHost) -> None:
    async with answering(host, Service()) as (session, peer, seen):
        for number in range(MAX_OPEN):
            await peer.say(approval(number))
        asking = asyncio.create_task(say_all(peer, [approval(number) for number in range(MAX_OPEN, 3_000)]))
        for number in range(MAX_OPEN, MAX_OPEN + 100):
            given = await peer.next(Input)
            await peer.send(Applied(1, given.id))
            assert given.body["response"]["request_id"] == f"q{number}"
            assert REFUSES in given.body["response"]["error"]
            assert given.body["response"]["error_code"] == "too_many_requests"
        await asking
        await everything_is_read(session, peer)
        assert questions_in(seen) == [f"q{number}" for number in range(MAX_OPEN)]
        told = [item.text for item in seen if isinstance(item, LaptopNotice)]
        assert told == [f"The host asks too much at once: {REFUSES}."]


async def say_all(peer: Peer, bodies: list[Json]) -> None:
    for body in bodies:
        await peer.say(body)


async def test_an_answered_question_makes_room_for_another(host: ScriptedHost) -> None:
    async with answering(host, Service()) as (session, peer, seen):
        await say_all(peer, [approval(number) for number in range(MAX_OPEN)])
        await everything_is_read(session, peer)
        await session.answer("q7", {"behavior": "deny", "message": "no"})
        await peer.say(public_withdrawal("q8"))
        await say_all(peer, [approval(number) for number in (500, 501, 502)])
        assert [(await answer_of(peer))["request_id"] for _ in range(2)] == ["q7", "q502"]
        await everything_is_read(session, peer)
        assert questions_in(seen)[MAX_OPEN:] == ["q8", "q500", "q501"]


async def test_open_questions_take_a_limited_amount_of_memory(host: ScriptedHost) -> None:
    async with answering(host, Service()) as (session, peer, seen):
        await say_all(peer, [approval(number, "x" * 240_000) for number in range(40)])
        refused = await answer_of(peer)
        await everything_is_read(session, peer)
        shown = len(questions_in(seen))
        assert 5 < shown < 15 and refused["request_id"] == f"q{shown}"


async def test_the_open_questions_of_a_snapshot_are_limited_too(host: ScriptedHost) -> None:
    async with answering(host, Service(), tail=1, seq=10) as (session, peer, seen):
        await peer.send(Snapshot(1, 10, {"asks": [approval(number) for number in range(MAX_OPEN + 3)]}))
        assert [(await answer_of(peer))["request_id"] for _ in range(3)] == ["q100", "q101", "q102"]
        await everything_is_read(session, peer)
        (skipped,) = (item for item in seen if isinstance(item, EventGap))
        assert [each["request_id"] for each in skipped.body["asks"]] == [f"q{number}" for number in range(MAX_OPEN)]


async def test_requests_withdrawn_by_the_thousand_do_not_end_the_session(host: ScriptedHost) -> None:
    """A request that still waits is no longer among those whose ids are remembered."""
    async with answering(host, Service(), seq=1) as (session, peer, seen):
        await progress(peer, other("f0"))
        for number in range(1, 10_100):
            await progress(peer, other(f"f{number}"))
            await progress(peer, public_withdrawal(f"f{number}") | {"request_id": f"f{number}"})
        again = await reconnected(session, peer, seen, host)
        await progress(again, ask("a", "g1"))
        assert (await answer_of(again))["response"] == {"text": "page a"}


async def test_large_requests_that_wait_take_limited_memory(
    host: ScriptedHost, caplog: pytest.LogCaptureFixture
) -> None:
    padding = "x" * 200_000
    fitting = MAX_WAITING_BYTES // (24 * 200_300)  # a line may take 24 times its length in memory
    async with answering(host, Service(), seq=1) as (_, peer, _):
        await progress(peer, other("f" * (MAX_ID + 1)))
        for number in range(fitting + 10):
            await progress(peer, other(f"f{number}", padding=padding))
        await peer.say({"type": "system", "subtype": "status"})  # the replay is over
        answered = [(await answer_of(peer))["request_id"] for _ in range(fitting)]
        assert answered == [f"f{number}" for number in range(fitting)]
        assert caplog.text.count("a request of the worker is dropped") == 11
        await progress(peer, ask("a", "g1"))
        assert (await answer_of(peer))["request_id"] == "g1", "there is room again"


def test_the_newest_entries_are_kept_and_no_long_id() -> None:
    kept: Newest[str, int] = Newest(3)
    for number in range(5):
        kept[f"{number}"] = number
    kept["x" * (MAX_ID + 1)] = 5
    assert kept == {"2": 2, "3": 3, "4": 4}
    assert [kept.setdefault("4", 9), kept.setdefault("5", 5), kept.setdefault("x" * 1_000, 6)] == [4, 5, 6]
    assert list(kept) == ["3", "4", "5"]
