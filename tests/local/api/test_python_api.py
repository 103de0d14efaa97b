"""The Python API over a real OpenSSH server, with a scripted model."""

from __future__ import annotations

import asyncio
import contextlib
import os
import pickle
import re
import signal
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, field_validator
from tests.support.hosts.reached_host import Host
from tests.support.hosts.sshd import sshd as serve
from tests.support.machine.processes import processes_of
from tests.support.machine.waiting import until
from tests.support.model.model_script import uses
from tests.support.network.relay import relay

import ccb
from ccb.local.api import host as host_module
from ccb.local.api import options as options_module
from ccb.local.api import prompts as prompts_module
from ccb.local.api import session as session_module
from ccb.local.api.events import Schema
from ccb.local.api.options import HostOptions, OpeningOptions
from ccb.local.command_line.arguments import OPTIONS, Group

pytestmark = pytest.mark.visited
Connect = Callable[..., ccb.Host]
LONG = {"text": "A long answer that stands still in the middle.", "stall_after": 4}


@pytest.fixture
def connect(host: Host, monkeypatch: pytest.MonkeyPatch) -> Connect:
    """`ccb.connect` to the host of this test, as a program on the laptop calls it."""
    for name, value in host.laptop.env.items():
        monkeypatch.setenv(name, value)

    def connected(path: str = "~", port: int | None = None, **options: Any) -> ccb.Host:
        way: dict[str, Any] = {
            "port": port or host.server.port,
            "identity_file": host.server.identity,
            "ssh_options": [f"UserKnownHostsFile={host.server.trust(port or host.server.port)}", "IdentitiesOnly=yes"],
        }
        return ccb.connect(f"{host.login}:{path}", **{**way, **options})

    return connected


@pytest.fixture(autouse=True)
async def limit() -> AsyncIterator[None]:
    async with asyncio.timeout(60):
        yield


async def test_a_prompt_streams_typed_events_and_ends_with_its_answer(host: Host, connect: Connect) -> None:
    host.put("notes.txt", b"forty-two\n")
    host.model.add(
        uses("Read", file_path="notes.txt"), {"text": "It says forty-two.", "when": {"has_tool_result": True}}
    )
    async with connect() as there, await there.session() as session:
        prompt = session.prompt("What do the notes say?")
        events = [event async for event in prompt]
    streamed = "".join(event.text for event in events if isinstance(event, ccb.Text))
    call = next(event for event in events if isinstance(event, ccb.ToolCall))
    result = next(event for event in events if isinstance(event, ccb.ToolResult))
    answer = events[-1]
    assert streamed == "It says forty-two."
    assert (call.name, call.input, result.id, result.is_error) == ("Read", {"file_path": "notes.txt"}, call.id, False)
    assert "forty-two" in result.text and call.raw["type"] == "assistant"
    assert answer is prompt.result and prompt.result.ok and prompt.result.text == streamed
    assert prompt.result.session_id == session.id and prompt.result.cost == prompt.result.total_cost > 0
    await until(lambda: not processes_of(host.user))


class Port(BaseModel):
    name: str
    port: int


class Ports(BaseModel):
    ports: list[Port]

    @field_validator("ports")
    @classmethod
    def only_some(cls, ports: list[Port]) -> list[Port]:
        assert len(ports) < 2, "too many"
        return ports


async def test_an_answer_has_the_type_that_was_asked_for_and_the_next_one_need_not(
    host: Host, connect: Connect
) -> None:
    given = {"ports": [{"name": "web", "port": 80}]}
    host.model.add(uses("StructuredOutput", **given), {"text": "Plain."})
    host.model.add(uses("StructuredOutput", ports=given["ports"] * 2))
    async with connect() as there, await there.session() as session:
        answer = await session.run("Which ports?", schema=Ports)
        assert answer.data == Ports(ports=[Port(name="web", port=80)])
        plain = await session.run("And now?")
        with pytest.raises(ccb.TurnFailed, match="too many"):
            await session.run("Again?", schema=Ports)
    assert (plain.text, plain.data) == ("Plain.", None)


async def test_early_leaving_ends_the_turn_and_the_session_goes_on(host: Host, connect: Connect) -> None:
    host.model.add(LONG, {"text": "Second."})
    async with connect() as there, await there.session() as session:
        async for event in session.prompt("go"):
            if isinstance(event, ccb.Text):
                break
        assert (await session.run("again")).text == "Second."


@pytest.mark.quick_rows(2)
@pytest.mark.parametrize("how", ["closed by another task", "cancelled", "cancelled at each await", "interrupted"])
async def test_a_turn_that_ends_from_outside(host: Host, connect: Connect, how: str) -> None:
    host.model.add(LONG, {"text": "Second."})
    async with connect() as there, await there.session() as session:
        prompt, streams = session.prompt("go"), asyncio.Event()

        async def read() -> None:
            async for event in prompt:
                if isinstance(event, ccb.Text):
                    streams.set()

        reading = asyncio.create_task(read())
        await streams.wait()
        if how == "cancelled":
            reading.cancel()
        elif how == "cancelled at each await":  # as anyio does, and so FastAPI
            while not reading.done():
                reading.cancel()
                await asyncio.sleep(0)
        elif how == "interrupted":
            await prompt.interrupt()
        else:
            await prompt.aclose()
        with contextlib.suppress(asyncio.CancelledError):
            await reading
        if how == "interrupted":
            assert prompt.result is not None and not prompt.result.ok
        assert (await session.run("again")).text == "Second."


async def test_a_close_that_is_cancelled_goes_on(host: Host, connect: Connect) -> None:
    async with connect() as there:
        session = await there.session()
        closing = asyncio.create_task(there.close())
        await asyncio.sleep(0)
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
    assert session.closed
    await until(lambda: not processes_of(host.user))


async def test_a_cut_in_the_middle_is_seen_and_costs_nothing(host: Host, connect: Connect) -> None:
    host.model.add(LONG)
    async with relay(host.server.port) as between, connect(port=between.port) as there:
        events = []
        session = await there.session()
        async for event in session.prompt("go"):
            events.append(event)
            if isinstance(event, ccb.Text) and between.connections == 1:
                between.cut()
            if isinstance(event, ccb.Connection) and event.state == "connected":
                host.model.release()
    assert "".join(each.text for each in events if isinstance(each, ccb.Text)) == LONG["text"]
    assert isinstance(events[-1], ccb.Answer) and events[-1].text == LONG["text"]
    assert [each.state for each in events if isinstance(each, ccb.Connection)] == ["reconnecting", "connected"]


async def test_a_program_that_reads_no_events_may_still_ask_and_close(
    host: Host, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While many events wait, the host is not read; what the program asks of it is answered all the same."""
    monkeypatch.setattr(prompts_module, "_AHEAD", 3)
    host.model.add({"text": "word " * 60, "pieces": [5], "delay": 0.05, "stall_after": 50})
    host.model.add({"text": "Second."})
    async with connect() as there, await there.session() as session:
        prompt = session.prompt("go")
        events = aiter(prompt)
        await anext(events)
        await until(lambda: prompt.waiting == 3)
        await session.set_model("claude-y")
        await prompt.interrupt()
        await prompt.aclose()
        assert (await session.run("again")).text == "Second."


async def test_a_stream_that_another_task_begins_and_ends_as_web_servers_do(host: Host, connect: Connect) -> None:
    host.model.add(LONG, {"text": "Second."})
    async with connect() as there, await there.session() as session:

        async def body() -> AsyncGenerator[str, None]:
            async for event in session.prompt("go"):
                if isinstance(event, ccb.Text):
                    yield event.text

        response = body()
        assert await asyncio.ensure_future(anext(response))
        await asyncio.create_task(response.aclose())
        assert (await session.run("again")).text == "Second."


async def test_a_loop_for_each_turn(host: Host, connect: Connect) -> None:
    host.model.add({"text": "First."}, {"text": "Second.", "when": lambda request: "First." in str(request.messages)})

    async def turn(session_id: str | None) -> ccb.Answer[None]:
        async with connect() as there, await there.session(resume=session_id) as session:
            return await session.run("hi")

    first = await asyncio.to_thread(lambda: asyncio.run(turn(None)))
    second = await asyncio.to_thread(lambda: asyncio.run(turn(first.session_id)))
    assert (second.text, second.session_id) == ("Second.", first.session_id)
    assert second.total_cost == pytest.approx(first.cost + second.cost)


async def test_the_program_answers_for_the_person(host: Host, connect: Connect) -> None:
    asked: list[ccb.Approval] = []

    async def permits(approval: ccb.Approval) -> bool | ccb.Allow | ccb.Deny:
        asked.append(approval)
        if "rm" in approval.input["command"]:
            return ccb.Deny("Nothing is removed here.")
        return ccb.Allow({**approval.input, "command": "echo allowed > made"})

    def answers(question: ccb.Question | ccb.Form) -> str:
        assert isinstance(question, ccb.Question) and question.options == ("red", "blue")
        return "blue"

    options = [{"label": each, "description": each} for each in ("red", "blue")]
    ask = {"question": "Which colour?", "header": "Colour", "options": options}
    host.model.add(uses("Bash", command="touch made"), uses("Bash", command="rm -rf ~/x"))
    host.model.add(uses("AskUserQuestion", questions=[ask]), {"text": "Done."})
    async with connect(permissions=permits, questions=answers) as there, await there.session() as session:
        results = [each async for each in session.prompt("go") if isinstance(each, ccb.ToolResult)]
        assert await there.read("made") == b"allowed\n"
    assert [each.tool for each in asked] == ["Bash", "Bash"]
    assert "Nothing is removed here." in results[1].text and "blue" in results[2].text


@pytest.mark.parametrize(
    ("raised", "seen"),
    [(ZeroDivisionError(), ZeroDivisionError), (SystemExit(3), SystemExit), (asyncio.CancelledError(), RuntimeError)],
    ids=lambda each: type(each).__name__,
)
async def test_what_a_callback_raises_reaches_the_program_and_allows_nothing(
    host: Host, connect: Connect, raised: BaseException, seen: type[BaseException]
) -> None:
    async def broken(approval: ccb.Approval) -> bool:
        raise raised

    host.model.add(uses("Bash", command="touch ~/made"), {"text": "Second.", "times": 0})
    async with connect(permissions=broken) as there, await there.session() as session:
        with pytest.raises(seen):
            await session.run("go")
        assert (await session.run("again")).text == "Second."
    assert not (host.home / "made").exists()


async def test_tools_of_the_program_run_in_it_and_their_failures_are_for_the_model(
    host: Host, connect: Connect
) -> None:
    @ccb.tool
    def lookup(ticket: int) -> dict[str, object]:
        """Look up a ticket."""
        if ticket > 99:
            raise SystemExit("usage: lookup")
        if ticket > 9:
            raise LookupError("no such ticket")
        return {"ticket": ticket, "title": "The nightly job fails"}

    host.model.add(*(uses("mcp__program__lookup", ticket=each) for each in (7, 10, "seven", 100)), {"text": "Done."})
    async with connect(own_tools=[lookup]) as there, await there.session() as session:
        results = [each async for each in session.prompt("go") if isinstance(each, ccb.ToolResult)]
    assert [each.is_error for each in results] == [False, True, True, True]
    assert "usage" in results[3].text
    assert "nightly" in results[0].text and "no such ticket" in results[1].text and "ticket" in results[2].text
    body = host.model.requests[0].body
    assert body is not None
    (offered,) = [each for each in body["tools"] if each["name"] == "mcp__program__lookup"]
    assert offered["description"] == "Look up a ticket." and offered["input_schema"]["required"] == ["ticket"]


async def test_what_the_program_does_on_the_host_itself(
    host: Host, connect: Connect, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host.put("app", None)
    host.put(".bashrc", b"echo welcome")
    async with connect("~/app") as there:
        done = await there.run("cat; pwd; echo said >&2; exit 3", input="it's\n")
        assert (done.code, done.stdout, done.stderr) == (3, f"it's\n{host.home}/app\n".encode(), "said\n")
        await there.write("data.bin", b"\0\xff" * 100)
        assert await there.read("data.bin") == (host.home / "app/data.bin").read_bytes() == b"\0\xff" * 100
        await there.copy(":data.bin", tmp_path / "copy")
        assert (tmp_path / "copy").read_bytes() == b"\0\xff" * 100
        with pytest.raises(ccb.errors.NoSuchPath) as missing:
            await there.read("nothing")
        assert missing.value.exit_code == 66 and missing.value.do
        with pytest.raises(ccb.errors.UsageError, match="no directory"):
            await there.run("true", directory="/nowhere")
        with pytest.raises(TimeoutError):
            await there.run("sleep 60", timeout=0.2)
        with pytest.raises(ccb.errors.ConnectionLost, match="signal"):
            await there.run("kill -9 $$")
        monkeypatch.setattr(host_module, "MAX_BYTES", 1000)
        with pytest.raises(ccb.errors.CopyFailed, match="printed more"):
            await there.run("yes")
        with pytest.raises(ValueError, match=":PATH"):
            await there.copy("here", "there")
        assert host.server.logins == 1


async def test_more_sessions_than_the_server_runs_on_a_connection(host: Host, connect: Connect, tmp_path: Path) -> None:
    host.model.add({"text": "Done.", "times": 5})
    async with serve(tmp_path / "strict", ["MaxSessions 2"]) as server:
        way = {"identity_file": server.identity, "ssh_options": [f"UserKnownHostsFile={server.known_hosts}"]}
        async with connect(port=server.port, **way) as there:
            sessions = await asyncio.gather(*(there.session() for _ in range(5)))
            assert (await there.run("echo hi")).text == "hi\n"
            answers = await asyncio.gather(*(each.run("go") for each in sessions))
            assert [each.text for each in answers] == ["Done."] * 5
        assert server.logins == 3
    await until(lambda: not processes_of(host.user))


async def test_a_port_of_the_host_is_here(host: Host, connect: Connect) -> None:
    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"hello")
        writer.close()

    async with await asyncio.start_server(greet, "127.0.0.1", 0) as server, connect() as there:
        forward = await there.forward(server.sockets[0].getsockname()[1])
        reader, writer = await asyncio.open_connection("127.0.0.1", forward.local)
        assert await reader.read() == b"hello"
        writer.close()


async def test_closing_has_a_deadline_whatever_the_host_does(
    host: Host, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prompts_module, "INTERRUPT_S", 0.2)
    monkeypatch.setattr(session_module, "CLOSE_S", 0.2)
    monkeypatch.setattr(host_module, "CLOSE_S", 0.2)
    host.model.add(LONG)
    async with relay(host.server.port) as between:
        there = connect(port=between.port)
        async with asyncio.timeout(40):
            await there.__aenter__()
            session = await there.session()
            async with contextlib.aclosing(session.prompt("go")) as prompt:
                await anext(aiter(prompt))
                between.freeze()
        began = asyncio.get_running_loop().time()
        await there.close()
        assert asyncio.get_running_loop().time() - began < 10
        with pytest.raises(ccb.CcbError):
            await session.run("again")


async def test_what_still_opens_when_the_host_is_closed_ends_at_once(host: Host, connect: Connect) -> None:
    async with relay(host.server.port) as between:
        there = connect(port=between.port)
        with pytest.raises(RuntimeError, match="enter the host"):
            await there.run("true")
        async with there:
            between.freeze()
            opening = asyncio.create_task(there.session())
            await asyncio.sleep(0)
        async with asyncio.timeout(5):
            with pytest.raises(ccb.errors.UsageError, match="was closed"):
                await opening
    with pytest.raises(RuntimeError, match="enter the host"):
        await there.session()


async def test_a_running_turn_is_steered_and_a_session_changed(host: Host, connect: Connect) -> None:
    host.model.add(uses("Bash", command="read line < fifo"), {"text": "Yes.", "when": {"user_contains": "also this"}})
    host.model.add({"text": "Second.", "when": lambda request: request.body["model"] == "claude-y"})
    async with connect(permission_mode="bypassPermissions") as there, await there.session() as session:
        await there.run("mkfifo fifo")
        prompt = session.prompt("go")
        async for event in prompt:
            if isinstance(event, ccb.ToolCall):
                await prompt.steer("also this")
                await there.run("echo > fifo")
        assert prompt.result is not None and prompt.result.text == "Yes."
        with pytest.raises(ccb.errors.UsageError, match="does not run"):
            await prompt.steer("late")
        with pytest.raises(RuntimeError, match="once"):
            aiter(prompt)
        with pytest.raises(ccb.errors.UsageError, match="refuses"):
            await session.set_permission_mode("nonsense")
        await session.set_model("claude-y")
        assert (await session.run("again")).text == "Second."


async def test_a_failed_turn_is_an_error_with_exit_code_and_answer(host: Host, connect: Connect) -> None:
    host.model.add(uses("Bash", command="true"), {"text": "late"})
    async with connect(max_turns=1) as there, await there.session() as session:
        with pytest.raises(ccb.TurnFailed) as failed:
            await session.run("go")
    again = pickle.loads(pickle.dumps(failed.value))  # as it comes out of a process pool
    for each in (failed.value, again):
        assert each.exit_code == 4 and each.answer.raw["subtype"] == "error_max_turns"


NO_KEYWORDS = {
    *("--json-schema", "--debug-file", "--session-mirror", "--await-initialize", "--initialize-fields", "--init-only"),
    *("--rewind-files", "--resume-session-at", "--resume-drops-turn", "--init", "--maintenance", "--thinking-display"),
    *("--include-hook-events", "--system-prompt-file", "--append-system-prompt-file"),
}
"""Options of which a program does what they do in another way, or not at all."""


def test_options_are_those_of_the_command_line() -> None:
    groups = (Group.CONNECTION, Group.SESSION, Group.AGENT, Group.PERMISSIONS, Group.SDK, Group.PORTS)
    offered = {*HostOptions.__annotations__, *OpeningOptions.__annotations__}
    known = [each for each in OPTIONS if each.group in groups and NO_KEYWORDS.isdisjoint(each.names)]
    assert offered == set(map(options_module._keyword, known))
    with pytest.raises(TypeError, match="'resume'"):  # it is one session's
        ccb.connect("devbox:/srv", resume="x")  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="'modle'; did you mean model"):
        ccb.connect("devbox:/srv", modle="opus")  # type: ignore[call-arg]
    with pytest.raises(ccb.errors.UsageError, match="--effort"):
        ccb.connect("devbox:/srv", effort="most")
    for target, why in (("-oProxyCommand=x", "no host"), ("/nowhere", "no such directory")):
        with pytest.raises(ccb.errors.UsageError, match=why):
            ccb.connect(target)


PUBLIC = [
    "Allow", "Answer", "Approval", "CcbError", "Completed", "Connection", "Deny", "Event", "Form", "Host",
    "Message", "Notice", "Other", "Prompt", "Question", "Session", "SessionInfo", "Task", "Text", "Thinking",
    "Tool", "ToolCall", "ToolOutput", "ToolResult", "TurnFailed", "connect", "errors", "printable", "sync", "tool",
]  # fmt: skip


@pytest.mark.parametrize("schema", [Port, {"type": "object"}])
def test_an_answer_without_the_data_that_was_asked_for_is_no_answer(schema: object) -> None:
    with pytest.raises(ValueError, match="agents of others"):
        Schema(schema).read(None)


def test_the_public_names_are_frozen() -> None:
    """To take one away is a new major version, to add one a minor one: docs/guide/python-api.md."""
    assert sorted(vars(ccb)["__all__"]) == sorted([*PUBLIC, "__version__"])
    assert all(getattr(ccb, name) for name in PUBLIC)
    stub = Path(ccb.__file__).with_suffix(".pyi").read_text()
    typed = re.findall(r"(?:as|def) (\w+)(?:$|\()", stub, re.MULTILINE)
    assert sorted(typed) == PUBLIC, "mypy knows the same names"
    for own, blocking in ((ccb.Host, ccb.sync.Host), (ccb.Session, ccb.sync.Session)):
        inner = {"open", "opened", "closed", "remote", "reader", "found", "come_back", "leave", "abandon"}
        public = {name for name in vars(own) if not name.startswith("_")} - inner
        assert public == {name for name in vars(blocking) if not name.startswith("_")}


async def test_the_blocking_api(host: Host, connect: Connect) -> None:
    host.model.add(LONG, {"text": "Second."}, uses("Bash", command="touch ~/made"), {"text": "Late.", "times": 0})

    def leaves(approval: ccb.Approval) -> bool:
        raise SystemExit("the person has had enough")

    def program() -> None:
        with ccb.sync.Host(connect(permissions=leaves)) as there, there.session() as session:
            for event in session.prompt("go"):
                if isinstance(event, ccb.Text):
                    break
            assert session.run("again").text == "Second."
            with pytest.raises(SystemExit, match="enough"):
                session.run("third")
            assert there.run("echo hi").text == "hi\n"
            assert [each.id for each in there.sessions()] == [session.id]
            if not (child := os.fork()):
                signal.alarm(10)
                with contextlib.suppress(RuntimeError):
                    there.run("true")
                    os._exit(1)
                os._exit(0)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0, "a fork has no loop"
        for late in (lambda: there.run("true"), lambda: session.run("late")):
            with pytest.raises(RuntimeError, match=r"enter the host|was closed"):
                late()
        session.close()

    await asyncio.to_thread(program)
