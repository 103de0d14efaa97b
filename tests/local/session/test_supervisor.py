"""One session over many connections: nothing is lost, nothing comes twice, and the person sees what happens."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
from tests.support.hosts.scripted_host import ScriptedHost, no_waits, session_on
from tests.support.network.link_peer import Peer

from ccb.local.session import dialing as attempts
from ccb.local.session.dialing import AttachOptions, KnownSession, WorkerConnection
from ccb.local.session.remote_session import RemoteSession
from ccb.local.session.session_client import EventGap, Item, LinkChange, LinkState, OutputPiece, ReplayEnd, SessionEvent
from ccb.tunnel.errors import (
    AuthFailed,
    CcbError,
    ConnectionLost,
    Dropped,
    NodeGone,
    ProtocolError,
    Unreachable,
    UsageError,
)
from ccb.tunnel.link.link import Greeting
from ccb.tunnel.link.worker_refusals import refusal_error
from ccb.tunnel.wire import frames as wire
from ccb.tunnel.wire.control_protocol import SET_MODEL, Request, RequestFailed

ME, BOB = "alice@laptop pid 1 aaa", "bob@desk pid 2 bbb"


def come_back(hello: Greeting) -> str:
    return "ccb ssh devbox --resume 1"


@pytest.fixture
def host() -> ScriptedHost:
    return ScriptedHost()


async def until(session: RemoteSession, state: LinkState, seen: list[Item] | None = None) -> LinkChange:
    """Read up to the next change to `state`."""
    async with asyncio.timeout(60):
        async for item in session.events():
            if seen is not None:
                seen.append(item)
            if isinstance(item, LinkChange) and item.state is state:
                return item
    raise AssertionError(f"the session ended before it was {state}")


async def reconnected(session: RemoteSession, peer: Peer, host: ScriptedHost) -> Peer:
    peer.hang_up()
    await until(session, LinkState.RECONNECTING)
    return (await host.granted())[0]


async def fenced_and_taken_back(session: RemoteSession, peer: Peer) -> None:
    await peer.send(wire.Fenced(2, "bob"))
    await until(session, LinkState.FENCED)
    session.take_back()


async def rest(session: RemoteSession) -> list[Item]:
    async with asyncio.timeout(60):
        return [item async for item in session.events()]


async def test_after_a_loss_it_asks_for_what_it_has_not_and_every_event_comes_once(host: ScriptedHost) -> None:
    async with session_on(host, AttachOptions(who=ME)) as (session, peer):
        await peer.say({"n": 1})
        await peer.say({"n": 2})
        seen: list[Item] = []
        peer.hang_up()
        await until(session, LinkState.RECONNECTING, seen)
        again, attach = await host.granted(seq=3)
        assert (attach.have, attach.role, attach.epoch) == (2, "driver", 2)
        assert attach.options == {"client": ME}
        await again.send(*(wire.Event(n, 2, "message", {"n": n}) for n in (1, 2, 3, 4)))  # a host that repeats itself
        await again.send(wire.Bye())
        seen += await rest(session)
        received = [(item.body["n"], item.replayed) for item in seen if isinstance(item, SessionEvent)]
        assert received == [(1, False), (2, False), (3, True), (4, False)]
        states = [item.state for item in seen if isinstance(item, LinkChange)]
        assert (states[0], states[-2:]) == (LinkState.RECONNECTING, [LinkState.CONNECTED, LinkState.CLOSED])


async def test_what_was_sent_and_not_confirmed_is_sent_again_in_order_under_the_same_ids(host: ScriptedHost) -> None:
    async with session_on(host) as (session, peer):
        first = await session.prompt("one")
        second = await session.prompt("two")
        assert (await peer.next(wire.Input)).id == first
        await peer.next(wire.Input)
        await peer.send(wire.Applied(1, first))
        await peer.say({"type": "assistant"})
        await anext(session.events())  # so the confirmation has been taken
        peer.hang_up()
        await until(session, LinkState.RECONNECTING)
        third = await session.prompt("three")
        assert session.unsent == 2
        again, _ = await host.granted()
        assert [(await again.next(wire.Input)).id for _ in range(2)] == [second, third]


async def test_a_control_request_and_a_wish_to_stop_outlive_the_connection(host: ScriptedHost) -> None:
    async with session_on(host) as (session, peer):
        prompt = await session.prompt("last")
        await peer.next(wire.Input)
        asking = asyncio.create_task(session.request(Request(SET_MODEL, "opus")))
        request = await peer.next(wire.Input)
        await session.stop(finish=True)
        assert (await peer.next(wire.Stop)).finish
        again = await reconnected(session, peer, host)
        assert [(await again.next(wire.Input)).id for _ in range(2)] == [prompt, request.id]
        assert (await again.next(wire.Stop)).finish
        response = {"subtype": "success", "request_id": request.id, "response": {"model": "opus"}}
        await again.say({"type": "control_response", "response": response})
        async with asyncio.timeout(60):
            assert await asking == {"model": "opus"}


async def test_failed_attempts_are_counted_with_their_reason_and_the_next_one_is_announced(host: ScriptedHost) -> None:
    async with session_on(host) as (session, peer):
        host.refusals = [Unreachable("no route"), Unreachable("no name")]
        peer.hang_up()
        seen: list[Item] = []
        await asyncio.gather(host.granted(), until(session, LinkState.CONNECTED, seen))
        changes = [item for item in seen if isinstance(item, LinkChange)]
        announced = [(each.attempt, each.reason) for each in changes if each.retry_at is not None]
        assert [number for number, _ in announced] == [1, 2, 3]
        assert announced[1:] == [(2, "no route"), (3, "no name")]


@pytest.mark.parametrize("patience", [0, 0.3], ids=["before an attempt", "while one hangs"])
async def test_it_gives_up_when_its_patience_ends_and_says_how_to_come_back(
    host: ScriptedHost, patience: float
) -> None:
    async with session_on(host, AttachOptions(patience=patience, resume=come_back)) as (session, peer):
        asking = asyncio.create_task(session.request(Request(SET_MODEL, None)))
        await peer.next(wire.Input)
        host.hanging = True
        peer.hang_up()
        with pytest.raises(ConnectionLost, match=rf"could not be made again within {patience} s") as caught:
            await rest(session)
        for late in (asking, session.prompt("late")):
            with pytest.raises(ConnectionLost):
                await late
        assert "ccb ssh devbox --resume 1" in caught.value.do
        assert session.state is LinkState.LOST
        assert patience == 0 or len(host.dials) == 2


async def test_a_host_that_wants_a_password_is_tried_once_and_then_waits_for_the_person(host: ScriptedHost) -> None:
    async with session_on(host, AttachOptions(can_ask=True)) as (session, peer):
        host.refusals = [AuthFailed("devbox wants a password")]
        peer.hang_up()
        assert (await until(session, LinkState.NEEDS_PERSON)).reason == "devbox wants a password"
        assert host.dials == [True, False], "the first login may ask, the reconnect is quiet"
        session.retry()
        await asyncio.gather(host.granted(), until(session, LinkState.CONNECTED))
        assert host.dials == [True, False, True]


async def test_who_wants_to_try_while_an_attempt_finds_no_node_is_asked_at_once(host: ScriptedHost) -> None:
    @asynccontextmanager
    async def dial(known: KnownSession | None, ask: bool) -> AsyncIterator[WorkerConnection]:
        if host.refusals:
            session.retry()
        async with host.dial(known, ask) as connection:
            yield connection

    options = AttachOptions(can_ask=True, waits=lambda: itertools.chain([0.0], itertools.repeat(600.0)))
    async with RemoteSession(dial, options) as session:
        peer, _ = await host.granted()
        host.refusals = [NodeGone("node n1 does not answer")]
        peer.hang_up()
        await asyncio.gather(host.granted(), until(session, LinkState.CONNECTED))
    assert host.dials == [True, False, True]


@pytest.mark.parametrize(
    "refusal",
    [
        AuthFailed("refused"),
        refusal_error(wire.Refused("no_session", "there is no session 5e55 on this host", {}), "devbox"),
    ],
    ids=["a login without a person", "a session that was removed"],
)
async def test_a_refusal_that_no_patience_changes_ends_the_session(host: ScriptedHost, refusal: CcbError) -> None:
    async with session_on(host) as (session, peer):
        host.refusals = [refusal]
        peer.hang_up()
        with pytest.raises(type(refusal), match=refusal.what):
            await rest(session)


async def test_fenced_it_watches_refuses_input_and_takes_back_only_when_told(host: ScriptedHost) -> None:
    async with session_on(host, AttachOptions(who=ME)) as (session, peer):
        await peer.send(wire.Fenced(2, "bob@desk\x07"))
        change = await until(session, LinkState.FENCED)
        assert "bob@desk" in change.reason and "\x07" not in change.reason
        assert not session.driving
        await peer.say({"n": 1})
        assert isinstance(await anext(session.events()), SessionEvent), "it still sees what happens"
        with pytest.raises(UsageError, match="another client"):
            await session.prompt("mine")
        session.take_back()
        again, attach = await host.granted()
        assert (attach.role, attach.have) == ("driver", 1)
        await until(session, LinkState.CONNECTED)
        assert session.driving
        identity = await session.prompt("mine")
        assert (await again.next(wire.Input)).id == identity


@pytest.mark.parametrize(
    ("driver", "role", "state"), [(BOB, "viewer", LinkState.FENCED), (ME, "driver", LinkState.CONNECTED)]
)
async def test_a_reconnect_drives_on_unless_another_client_has_taken_over_meanwhile(
    host: ScriptedHost, driver: str, role: str, state: LinkState
) -> None:
    async with session_on(host, AttachOptions(who=ME)) as (session, peer):
        host.greeting = replace(host.greeting, epoch=7 if driver == BOB else host.greeting.epoch, driver=driver)
        peer.hang_up()
        granting = host.granted(role=role, driver=driver if role == "viewer" else "")
        (_, attach), change = await asyncio.gather(granting, until(session, state))
        assert attach.role == role
        assert role == "driver" or "bob@desk" in change.reason


async def test_after_a_take_over_an_unconfirmed_input_waits_and_an_unconfirmed_request_is_refused(
    host: ScriptedHost,
) -> None:
    async with session_on(host, AttachOptions(who=ME)) as (session, peer):
        late = await session.prompt("too late")
        await peer.next(wire.Input)
        asking = asyncio.create_task(session.interrupt())
        await peer.next(wire.Input)
        await peer.send(wire.Fenced(2, "bob"))
        async with asyncio.timeout(60):
            with pytest.raises(RequestFailed, match="“bob” drives"):
                await asking
        session.take_back()
        again, _ = await host.granted()
        mine = await session.prompt("mine")
        assert [(await again.next(wire.Input)).id for _ in range(2)] == [late, mine]


async def test_a_snapshot_is_passed_on_and_the_next_loss_asks_from_there(host: ScriptedHost) -> None:
    async with RemoteSession(host.dial, AttachOptions(waits=no_waits, tail=1000)) as session:
        peer = await host.next_peer()
        await peer.send(
            wire.Attached(1, "driver", 52),
            wire.Snapshot(1, 50, {"model": "opus"}),
            wire.Event(51, 1, "message", {"n": 51}),
        )
        events = session.events()
        assert await anext(events) == EventGap(50, {"model": "opus"})
        assert await anext(events) == SessionEvent("message", {"n": 51}, 51, replayed=True)
        peer.hang_up()
        again, attach = await host.granted(seq=52)
        assert attach.have == 51
        await again.send(*(wire.Event(n, 2, "message", {"n": n}) for n in (52, 53)), wire.Bye())
        came = [each for each in await rest(session) if not isinstance(each, LinkChange)]
        last = SessionEvent("message", {"n": 52}, 52, replayed=True)
        assert came == [last, ReplayEnd(), SessionEvent("message", {"n": 53}, 53)], "it was cut short before"


async def test_earlier_events_names_of_files_and_output_are_asked_of_the_host(host: ScriptedHost) -> None:
    host.greeting = replace(host.greeting, capabilities=[wire.NAMES])
    async with session_on(host) as (session, peer):
        naming = asyncio.create_task(session.names("ca"))
        question = await peer.next(wire.FindNames)
        await peer.send(wire.NamesFound(1, question.request, {"names": ["cart.py"], "settled": True}))
        found = await naming
        assert found is not None and found.names == ("cart.py",)
        with pytest.raises(UsageError, match="too old"):
            await session.output("bash_1", 0, 100)
        session.hello.capabilities.append(wire.OUTPUT)
        reading = asyncio.create_task(session.output("bash_1", 7, 100))
        wanted = await peer.next(wire.ReadOutput)
        assert (wanted.task_id, wanted.after, wanted.most, wanted.before) == ("bash_1", 7, 100, None)
        odd = {"status": 7, "seconds": -1, "start": "x", "next": 10**30, "text": "t", "begun": "b"}
        await peer.send(wire.OutputRead(1, wanted.request, odd))
        assert await reading == OutputPiece("7", 0.0, 0, 10**12, "t", "b")
        asking = asyncio.create_task(session.earlier(50, 1000))
        fetch = await peer.next(wire.Fetch)
        assert (fetch.before, fetch.most) == (50, 1000)
        records = [{"seq": 49, "kind": "message", "body": {"n": 49}}, "nonsense", {"seq": "x"}]
        await peer.send(wire.Past(1, fetch.request, {"records": records}))
        assert await asking == [SessionEvent("message", {"n": 49}, 49, replayed=True)]
        lost = asyncio.create_task(session.earlier(49))
        await peer.next(wire.Fetch)
        peer.hang_up()
        with pytest.raises(ConnectionLost):
            await lost


async def test_a_gap_is_never_shown_as_silence(host: ScriptedHost) -> None:
    async with session_on(host) as (session, peer):
        seen: list[Item] = []
        for _ in range(2):
            await peer.send(wire.Event(2, 1, "message", {}))
            await until(session, LinkState.RECONNECTING, seen)
            peer, attach = await host.granted()
            assert attach.have == 0
        await peer.send(wire.Event(2, 1, "message", {}))
        with pytest.raises(ProtocolError, match="missing"):
            await rest(session)
        assert not any(isinstance(item, SessionEvent) for item in seen)


async def test_a_drop_before_the_first_attach_is_tried_again(host: ScriptedHost) -> None:
    host.refusals = [Dropped("closed in the handshake"), ConnectionLost("closed in the upload")]
    async with session_on(host):
        assert len(host.dials) == 3


@pytest.mark.parametrize(("refusals", "dials"), [([Unreachable("port closed")], 1), ([Dropped("closed")] * 50, 5)])
async def test_a_refusal_of_the_first_attach_is_an_error_as_a_drop_is_in_the_end(
    host: ScriptedHost, refusals: list[CcbError], dials: int
) -> None:
    host.refusals = [*refusals]
    with pytest.raises(type(refusals[0])):
        async with RemoteSession(host.dial, AttachOptions(waits=no_waits)):
            raise AssertionError("not reached")
    assert len(host.dials) == dials


async def test_options_go_along_until_the_host_has_confirmed_an_attach(host: ScriptedHost) -> None:
    options = {"client": ME, "model": "opus"}
    async with RemoteSession(host.dial, AttachOptions(waits=no_waits, who=ME, options=options)):
        (await host.next_peer()).hang_up()
        peer, attach = await host.granted()
        assert attach.options == options
        assert [known and known.begun for known in host.known] == [None, False]
        peer.hang_up()
        _, attach = await host.granted()
        assert attach.options == {"client": ME}


@pytest.mark.parametrize("confirms", [True, False])
async def test_what_was_just_sent_is_confirmed_before_the_goodbye(host: ScriptedHost, confirms: bool) -> None:
    async with session_on(host) as (session, peer):
        prompt = await session.prompt("and go")
        leaving = asyncio.create_task(session.close(done=True))
        assert (await peer.next(wire.Input)).id == prompt
        if confirms:
            await peer.send(wire.Applied(1, prompt))
        assert (await peer.next(wire.Detach)).done
        await peer.send(wire.Bye()) if confirms else peer.hang_up()
        await leaving
        assert session.unsent == (0 if confirms else 1) and session.state is LinkState.CLOSED
        with pytest.raises(ConnectionLost):
            await session.prompt("late")


async def test_a_reconnect_that_ends_on_another_host_of_the_same_home_is_tried_again(host: ScriptedHost) -> None:
    """One name may stand for many login nodes; the worker lives on one of them."""
    elsewhere = wire.Refused("in_use", "the session is kept by a worker on nodeb", {"host": "nodeb", "do": "Go there."})
    async with session_on(host) as (session, peer):
        host.refusals = [refusal_error(elsewhere, "login.cluster")]
        peer.hang_up()
        seen: list[Item] = []
        (again, _), _ = await asyncio.gather(host.granted(), until(session, LinkState.CONNECTED, seen))
        assert any(isinstance(item, LinkChange) and "nodeb" in item.reason for item in seen)
        host.refusals = [refusal_error(wire.Refused("bad_attach", "no such event", {}), "login.cluster")]
        again.hang_up()
        with pytest.raises(UsageError, match="no such event"):
            await rest(session)


@pytest.mark.parametrize("begun", [False, True], ids=["a newcomer", "who takes back"])
async def test_who_was_asked_to_drive_drives_although_another_client_attached(host: ScriptedHost, begun: bool) -> None:
    async with RemoteSession(host.dial, AttachOptions(who=ME, waits=no_waits)) as session:
        if begun:
            peer, attach = await host.granted()
            await peer.send(wire.Fenced(attach.epoch + 1, BOB))
            await until(session, LinkState.FENCED)
            session.take_back()
        peer = await host.next_peer()
        attach = await peer.next(wire.Attach)
        host.greeting = replace(host.greeting, epoch=attach.epoch, driver=BOB)
        await peer.send(wire.Fenced(attach.epoch, BOB))
        _, again = await host.granted()
        assert (again.role, again.epoch) == ("driver", attach.epoch + 1)
        await until(session, LinkState.CONNECTED)
        assert session.driving


async def test_a_client_whose_own_earlier_attach_arrives_late_still_drives(host: ScriptedHost) -> None:
    async with session_on(host, AttachOptions(who=ME)) as (session, peer):
        await peer.send(wire.Fenced(2, ME))
        assert "an earlier connection of this ccb" in (await until(session, LinkState.RECONNECTING)).reason
        _, attach = await host.granted()
        await until(session, LinkState.CONNECTED)
        assert attach.role == "driver" and session.driving


async def test_a_session_that_was_stopped_meanwhile_is_over_as_after_a_goodbye(host: ScriptedHost) -> None:
    async with session_on(host) as (session, peer):
        host.refusals = [refusal_error(wire.Refused("stopped", "the session was stopped", {}), "devbox")]
        peer.hang_up()
        assert (await until(session, LinkState.CLOSED)).reason == "devbox: “the session was stopped”"
        assert await rest(session) == []
        assert session.ended_on_host


async def test_a_screen_whose_events_the_host_has_lost_says_so_and_goes_on(host: ScriptedHost) -> None:
    async with session_on(host, AttachOptions(later_tail=1000)) as (session, peer):
        for n in (1, 2, 3, 4):
            await peer.say({"n": n})
        host.greeting = replace(host.greeting, seq=2)
        peer.hang_up()
        again, attach = await host.granted(seq=4)
        assert attach.have == 2
        await again.send(*(wire.Event(n, 2, "message", {"new": n}) for n in (3, 4)), wire.Bye())
        seen = await rest(session)
        at = next(at for at, item in enumerate(seen) if isinstance(item, SessionEvent) and item.kind == "damaged")
        lost = seen[at]
        assert isinstance(lost, SessionEvent) and "lost the last 2 event" in lost.body["what"]
        assert seen[at + 1] == EventGap(2, {}), "so nothing that was open before is taken for open"
        assert [item.body for item in seen[at + 2 :] if isinstance(item, SessionEvent)] == [{"new": 3}, {"new": 4}]


async def test_garbage_now_and_then_does_not_end_a_session_that_gets_on(host: ScriptedHost) -> None:
    async with session_on(host) as (session, peer):
        for seq in range(1, 6):
            await peer.send(wire.Event(seq, 1, "message", {}), wire.Event(seq + 2, 1, "message", {}))
            await until(session, LinkState.RECONNECTING)
            peer, attach = await host.granted()
            assert attach.have == seq


async def test_a_request_without_an_answer_ends_only_in_connected_time(host: ScriptedHost) -> None:
    async with session_on(host) as (session, peer):
        with pytest.raises(RequestFailed, match="no answer"):
            await session.request(Request(replace(SET_MODEL, deadline_s=0.2), None))
        assert peer


async def test_an_attempt_that_hangs_is_given_up_when_the_network_has_changed(host: ScriptedHost) -> None:
    async with session_on(host) as (session, peer):
        host.hanging = True
        peer.hang_up()
        async with asyncio.timeout(60):
            while len(host.dials) < 2:
                await anext(session.events())
        host.hanging = False
        session.doubt("the network has changed")
        await host.granted()
        await until(session, LinkState.CONNECTED)
        assert len(host.dials) == 3


@pytest.mark.parametrize("change", ["the person", "the machine"])
async def test_between_two_attempts_a_reason_to_try_at_once_is_one(
    host: ScriptedHost, change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attempts, "_STUCK_S", 0.0)
    terms = AttachOptions(waits=lambda: itertools.chain((0.0,), itertools.repeat(3600.0)))
    async with RemoteSession(host.dial, terms) as session:
        peer, _ = await host.granted()
        host.refusals = [Unreachable("nobody listens")]
        peer.hang_up()
        while (await until(session, LinkState.RECONNECTING)).reason != "nobody listens":
            pass
        if change == "the person":
            session.retry()
        else:
            session.doubt("the network has changed")
        await asyncio.gather(host.granted(), until(session, LinkState.CONNECTED))


@pytest.mark.parametrize("fulfilled", [False, True], ids=["another has taken over", "only a later hello tells of it"])
async def test_a_wish_to_drive_whose_grant_was_lost_fences_nobody_who_took_over_after_it(
    host: ScriptedHost, fulfilled: bool
) -> None:
    async with session_on(host, AttachOptions(who=ME)) as (session, peer):
        await fenced_and_taken_back(session, peer)
        lost = await host.next_peer()
        asked = await lost.next(wire.Attach)  # granted, but the answer is lost
        assert asked.role == "driver"
        epoch, driver = (asked.epoch, ME) if fulfilled else (asked.epoch + 1, "bob")
        host.greeting = replace(host.greeting, epoch=epoch, driver=driver)
        lost.hang_up()
        if fulfilled:
            overtaken = await host.next_peer()
            again = await overtaken.next(wire.Attach)
            host.greeting = replace(host.greeting, epoch=again.epoch, driver="bob")  # bob attached at the same moment
            await overtaken.send(wire.Fenced(again.epoch, "bob"))
        else:
            _, again = await host.granted(role="viewer", driver="bob")
        assert again.role == ("driver" if fulfilled else "viewer")
        assert "bob" in (await until(session, LinkState.FENCED)).reason and not session.driving
