"""What a headless run says when a session goes wrong: a real run and a real `Session` on a scripted host."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import signal
import tty
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import cast

import pytest
from tests.support.hosts.scripted_host import ScriptedHost, no_waits
from tests.support.network.link_peer import HELLO, Peer
from tests.support.person.laptop import Json

from ccb.local.command_line.arguments import Arguments
from ccb.local.command_line.exit_codes import ExitCode
from ccb.local.command_line.parser import parse_arguments
from ccb.local.config.project_records import Projects
from ccb.local.config.settings import Settings
from ccb.local.connect import connect_session
from ccb.local.connect.connect_session import OpenSession
from ccb.local.connect.dialer import FileConnection
from ccb.local.connect.host_sessions import HostSessions
from ccb.local.connect.project_trust import ProjectDesk
from ccb.local.headless import headless_run as headless
from ccb.local.session.dialing import AttachOptions
from ccb.local.session.own_hooks import NotificationHooks
from ccb.local.session.remote_session import RemoteSession
from ccb.tunnel.transports.pipe import Transport
from ccb.tunnel.wire.frames import Applied, Attach, Bye, Event, Fetch, Input, Past, Ping, Pong, Refused, Snapshot, Stop
from ccb.tunnel.wire.session_options import SessionOptions

pytestmark = pytest.mark.usefixtures("interrupts")

STREAMS = ["--input-format", "stream-json", "--output-format", "stream-json", "--verbose"]
RESUME = "ccb ssh devbox:/srv/app --resume 1111"
RESULT: Json = {"type": "result", "subtype": "success", "is_error": False, "result": "Done.", "session_id": "1111"}


def user(text: str) -> Json:
    return {"type": "user", "message": {"role": "user", "content": text}}


@dataclass
class Piped:
    stdin: int
    stdout: int
    ended: asyncio.Task[int]

    def send(self, *bodies: Json) -> None:
        os.write(self.stdin, b"".join(json.dumps(body).encode() + b"\n" for body in bodies))

    def end_input(self) -> None:
        os.close(self.stdin)
        self.stdin = os.open(os.devnull, os.O_WRONLY)

    async def results(self) -> tuple[int, list[Json]]:
        async with asyncio.timeout(30):
            code = await self.ended
        lines = [json.loads(line) for line in os.read(self.stdout, 1 << 16).splitlines()]
        return code, [line for line in lines if line["type"] == "result"]


async def no_login() -> Transport:
    raise AssertionError


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> ScriptedHost:
    """The host of every session of this test; a connection to it that is lost stays lost."""
    host = ScriptedHost()

    @asynccontextmanager
    async def connect(_: object, arguments: Arguments, **__: object) -> AsyncIterator[OpenSession]:
        async with RemoteSession(host.dial, AttachOptions(waits=no_waits, patience=0)) as session:
            desk = ProjectDesk(Arguments(), Settings(), Projects({}))
            files = FileConnection(lambda: session.state, lambda: None, no_login)
            hooks, sessions = NotificationHooks({}, ""), cast(HostSessions, None)
            options = SessionOptions()
            yield OpenSession(session, "devbox", options, (), RESUME, desk, sessions, files, hooks, arguments=arguments)

    monkeypatch.setattr(connect_session, "connect_session", connect)
    return host


@pytest.fixture
def interrupts() -> Iterator[None]:
    """A run leaves Ctrl+C ignored, because its process ends there; this one does not."""
    before = signal.getsignal(signal.SIGINT)
    yield
    signal.signal(signal.SIGINT, before)


@asynccontextmanager
async def started(*argv: str, terminal: bool = False, piped: bytes = b"") -> AsyncIterator[Piped]:
    """With `-p`, the input ends behind what is piped in."""
    (stdin, to_stdin), (from_stdout, stdout) = os.pipe(), pty.openpty() if terminal else os.pipe()
    if terminal:
        tty.setraw(stdout)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(headless, "STDIN", stdin)
        patch.setattr(headless, "STDOUT", stdout)
        ended = asyncio.create_task(headless.run_headless(parse_arguments(["ssh", "devbox:/srv/app", *argv])))
        run = Piped(to_stdin, from_stdout, ended)
        os.write(to_stdin, piped)
        if "-p" in argv:
            run.end_input()
        try:
            yield run
        finally:
            os.close(run.stdin)
            await asyncio.gather(ended, return_exceptions=True)
            for fd in (stdin, stdout, from_stdout):
                os.close(fd)


async def answer(peer: Peer, seq: int = 1) -> None:
    taken = await peer.next(Input)
    await peer.send(Applied(1, taken.id), Event(seq, 1, "message", RESULT))


@pytest.mark.parametrize("arrived", [False, True])
async def test_prompts_that_the_host_never_confirmed_are_counted_and_no_others(
    host: ScriptedHost, arrived: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    async with started(*STREAMS) as run:
        run.send(user("first"))
        peer, _ = await host.granted()
        await answer(peer)
        run.send(user("second"), user("third"))
        for _ in range(2):
            taken = await peer.next(Input)
            if arrived:
                await peer.send(Applied(1, taken.id))
        peer.hang_up()
        code, results = await run.results()
    said, err = "2 input(s) were not confirmed by the host and may be lost.", capsys.readouterr().err
    assert code == 75 and (said in err) == ("confirmed" in err) == (not arrived)
    assert [result["is_error"] for result in results] == [False, True]
    assert (said in "\n".join(results[-1]["errors"])) == (not arrived)


async def stops_up_to_now(peer: Peer) -> list[Stop]:
    """The stops that the laptop has sent before it answers a ping."""
    await peer.send(Ping(1, 77))
    stops = []
    while not isinstance(frame := await peer.next(object), Pong):
        stops += [frame] if isinstance(frame, Stop) else []
    return stops


@pytest.mark.parametrize(("seq", "storage"), [(0, "disk"), (0, "memory"), (8, "disk")])
async def test_the_stop_of_a_session_goes_with_its_prompt_unless_the_session_would_be_gone_with_it(
    host: ScriptedHost, seq: int, storage: str
) -> None:
    host.greeting = replace(HELLO, seq=seq, storage=storage)
    async with started("-p", "go") as run:
        peer, _ = await host.granted()
        taken = await peer.next(Input)
        assert await stops_up_to_now(peer) == ([Stop(1, True)] if storage == "disk" else [])
        await peer.send(Applied(1, taken.id), Event(1, 1, "message", RESULT))
        if storage == "memory":
            assert (await peer.next(Stop)).finish
        await peer.send(Bye("done"))
        assert await run.ended == 0


ATTACK = "\x1b]52;c;cm0gLXJm\x07A\x9b31m\x9d0;owned\x9cB\u202egpj.exe\u2028\r\x7fend\ttab\nline"


@pytest.mark.parametrize("terminal", [True, False])
@pytest.mark.parametrize("output", ["text", "json", "json --verbose", "stream-json --verbose"])
async def test_what_a_model_says_cannot_drive_the_terminal_and_a_pipe_gets_it_as_it_is(
    host: ScriptedHost, output: str, terminal: bool
) -> None:
    async with started("-p", "go", "--output-format", *output.split(), terminal=terminal) as run:
        peer, _ = await host.granted()
        taken = await peer.next(Input)
        await peer.send(Applied(1, taken.id), Event(1, 1, "message", {**RESULT, "result": ATTACK}), Bye("done"))
        assert await run.ended == 0
        shown = os.read(run.stdout, 1 << 16).decode()
    if output == "text":
        assert shown == ("AB\ufffdgpj.exe\ufffd␍␡end\ttab\nline\n" if terminal else ATTACK + "\n")
        return
    result = json.loads(shown.strip("[]\n") if output == "json --verbose" else shown)
    assert result["result"] == ATTACK
    assert terminal != any(each in shown for each in "\x7f\x9b\x9c\x9d\u202e\u2028")


EARLIER: Json = {**RESULT, "result": "What the killed run had asked."}
SNAPSHOT: Json = {"result": None, "todos": None, "asks": []}


def turn(prompt: str, result: Json, *, first: int) -> list[Event]:
    items = {"context": [], "items": [{"input": prompt}]}
    bodies: list[tuple[str, Json]] = [("turn_start", {}), ("prompt", items), ("message", result), ("turn_end", {})]
    return [Event(seq, 1, kind, body) for seq, (kind, body) in enumerate(bodies, first)]


@pytest.mark.parametrize(
    ("taken", "replayed"),
    [(0, 0), (2, 0), (3, 0), (2, 4)],
    ids=["its prompt comes after the hello", "it has taken its prompt", "it waits for its end", "it is replayed"],
)
@pytest.mark.slow
async def test_a_result_that_an_earlier_run_had_asked_for_is_not_printed(
    host: ScriptedHost, taken: int, replayed: int
) -> None:
    """A run was killed together with its bridge, so the host takes its last prompt while the next run connects: the
    hello of that run may still say that the session is idle."""
    host.greeting = replace(host.greeting, state="idle")
    async with started("-p", "go", "--output-format", "stream-json", "--verbose") as run:
        peer, _ = await host.granted(seq=replayed or taken)
        seen_prompt = {"input": "old", "uuid": "old", "text": "do it", "taken": True}
        snapshot = {**SNAPSHOT, "prompts": [seen_prompt] if taken and not replayed else []}
        mine = await peer.next(Input)
        await peer.send(Snapshot(1, taken, snapshot), *turn("old", EARLIER, first=1)[taken:])
        await peer.send(Applied(1, mine.id), *turn(mine.id, RESULT, first=5))
        await peer.next(Stop)
        await peer.send(Bye("done"))
        code, results = await run.results()
    assert (code, [result["result"] for result in results]) == (0, ["Done."])


async def test_a_denial_between_two_turns_counts_for_the_run(host: ScriptedHost) -> None:
    """A sub-agent in the background goes on when the turn that started it is over; its end starts another one."""
    task: Json = {"type": "system", "task_id": "t1", "tool_use_id": "t1"}
    news: list[Json] = [
        {"type": "system", "subtype": "permission_denied", "decision_behavior": "ask", "parent_tool_use_id": "t1"},
        {**task, "subtype": "task_notification", "status": "completed"},
    ]
    async with started("-p", "go") as run:
        peer, _ = await host.granted()
        taken = await peer.next(Input)
        await peer.send(Applied(1, taken.id), *turn(taken.id, RESULT, first=1)[:2])
        bodies = [{**task, "subtype": "task_started", "is_backgrounded": True}, RESULT, *news]
        await peer.send(*(Event(seq, 1, "message", body) for seq, body in enumerate(bodies, 3)))
        await peer.send(*turn("task:t1", RESULT, first=7), Bye("done"))
        assert await run.ended == ExitCode.PERMISSION_DENIED


async def test_damage_that_is_found_while_it_runs_is_told(
    host: ScriptedHost, capsys: pytest.CaptureFixture[str]
) -> None:
    async with started("-p", "go", piped=b"piped in") as run:
        peer, _ = await host.granted()
        found: tuple[Json, ...] = ({}, {"what": "line 7 is damaged \x1b[31mred"})
        await peer.send(*(Event(seq, 1, "damaged", body) for seq, body in enumerate(found, 1)))
        await answer(peer, 3)
        await peer.send(Bye("the session has ended"))
        assert await run.ended == 0
    err = capsys.readouterr().err
    assert err.count("journal is damaged") == 1
    assert "ccb: on the host: the session's journal is damaged: “line 7 is damaged red”" in err and "\x1b" not in err


async def test_damage_that_a_worker_found_before_this_run_was_there_is_told_when_it_started_for_this_run(
    host: ScriptedHost, capsys: pytest.CaptureFixture[str]
) -> None:
    """The events of the past are not sent to a run that resumes, so it asks for the last of them."""
    told = [
        ("damaged", {"what": "old news"}),
        ("worker", {"mark": "a"}),
        ("message", {"type": "assistant"}),
        ("damaged", {"what": "line 3"}),
        ("damaged", {"what": "line 5"}),
        ("message", {"type": "result"}),
        ("turn_end", {}),
        ("worker", {"mark": "b"}),
        ("options", {}),
    ]
    records = [{"seq": seq, "kind": kind, "body": body} for seq, (kind, body) in enumerate(told, 1)]
    async with started(*STREAMS) as run:
        peer, _ = await host.granted()
        await peer.send(Snapshot(1, 9, {"asks": []}))
        fetch = await peer.next(Fetch)
        assert fetch.before == 10
        run.send(user("go"))
        await answer(peer, 10)
        await peer.send(Past(1, fetch.request, {"records": records}), Bye())
        code, _ = await run.results()
    err = capsys.readouterr().err
    assert code == 0 and "old news" not in err
    assert err.index("journal is damaged: “line 3”") < err.index("journal is damaged: “line 5”")


@pytest.mark.parametrize("storage", ["disk", "memory"])
async def test_a_run_whose_session_is_ended_there_is_told_so_and_how_it_goes_on(
    storage: str, host: ScriptedHost, capsys: pytest.CaptureFixture[str]
) -> None:
    host.greeting = replace(host.greeting, storage=storage)
    async with started(*STREAMS) as run:
        run.send(user("go"))
        peer, _ = await host.granted()
        taken = await peer.next(Input)
        await peer.send(Applied(1, taken.id), Bye("the session has ended"))
        code, results = await run.results()
    err = capsys.readouterr().err
    on_disk = f"`ccb logs devbox {HELLO.session}` says more. Go on with: {RESUME}"
    in_memory = "Start a new one: it was in memory only."
    assert (code, len(results)) == (75, 1)
    assert "  “the session has ended”\n" in err and "“the session has ended”" in results[0]["errors"]
    assert (on_disk in err, in_memory in err) == (storage == "disk", storage == "memory")


async def test_a_session_that_the_host_refuses_is_not_said_to_go_on(
    host: ScriptedHost, capsys: pytest.CaptureFixture[str]
) -> None:
    async with started("-p", "go") as run:
        peer = await host.next_peer()
        await peer.next(Attach)
        await peer.send(Refused("bad_attach", "no such option"))
        code = await run.ended
    err = capsys.readouterr().err
    assert code and "no such option" in err and "goes on" not in err


IDENTITY = "55555555-5555-4555-8555-555555555555"


@pytest.mark.parametrize("fate", ["answered", "on an older page", "without a result", "taken back", "lost", "fresh"])
async def test_a_known_prompt_gets_one_result(fate: str, host: ScriptedHost) -> None:
    """The host confirms the prompt and says no more. The run finds what became of it in the journal."""
    sent: tuple[str, Json] = ("input", {"id": IDENTITY, "body": {**user("go"), "uuid": IDENTITY}})
    told = [(event.kind, event.body) for event in turn(IDENTITY, EARLIER, first=1)]
    later = [(event.kind, event.body) for event in turn("other", RESULT, first=1)]
    journal = {
        "answered": [sent, *told],
        "on an older page": [sent, *told, *later],
        "without a result": [sent, *told[:2], *told[3:], *later],
        "taken back": [sent, ("unqueued", {"id": IDENTITY}), *later],
    }.get(fate, later)
    records = [{"seq": seq, "kind": kind, "body": body} for seq, (kind, body) in enumerate(journal, 1)]
    async with started(*STREAMS) as run:
        peer, _ = await host.granted(seq=len(journal))
        await peer.send(Snapshot(1, len(journal), {**SNAPSHOT, "prompts": []}))
        run.send({**user("go"), "uuid": IDENTITY})
        run.end_input()
        while not isinstance(frame := await peer.next(object), Stop):
            if isinstance(frame, Fetch):
                page = records[max(0, frame.before - 5) : frame.before - 1]
                await peer.send(Past(1, frame.request, {"records": page}))
            elif isinstance(frame, Input):
                await peer.send(Applied(1, frame.id))
                if fate == "fresh":
                    seq = len(journal) + 1
                    await peer.send(Event(seq, 1, *sent), *turn(IDENTITY, EARLIER, first=seq + 1))
        await peer.send(Bye("done"))
        code, results = await run.results()
    (result,) = results
    if fate in ("answered", "on an older page", "fresh"):
        assert (code, result["result"]) == (0, EARLIER["result"])
    else:
        assert (code, result["terminal_reason"]) == (1, "answered_before")
        assert "sent to the session before" in result["errors"][0]
