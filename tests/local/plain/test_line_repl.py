"""The REPL as lines: what is printed, what a line of the person does, and what a host cannot do to the terminal."""

from __future__ import annotations

import asyncio
import re
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.local.tui.test_file_commands import file_commands
from tests.support.model.fake_model import FakeModel
from tests.support.person.laptop import tidy_laptop
from tests.support.person.terminal import terminal
from tests.support.repl.scripted_session import MODEL, ScriptedSession, hello, question, session_rule

from ccb.local.plain import line_repl
from ccb.local.plain.line_repl import FirstLoginPrompts, LineRepl
from ccb.local.session.session_client import LinkState
from ccb.local.slash_commands.session_api import NO_LAPTOP, LaptopSide, ReplInfo
from ccb.local.terminal.terminal_prompts import prompts_for
from ccb.local.transcript.questions import REVERSE_PORT, ReversedPort
from ccb.tunnel.errors import CcbError
from ccb.tunnel.plain_text import as_line
from ccb.tunnel.wire.control_protocol import ProjectTrust, Request

EVIL = "\x1b]52;c;ZXZpbA==\x07\x9d2;owned\x9c\x1b[2J\u202e\x1b]8;;http://evil/\x1b\\"


@dataclass
class Person:
    repl: LineRepl
    session: ScriptedSession
    printed: list[str] = field(default_factory=list)
    typed: asyncio.Queue[str | None] = field(default_factory=asyncio.Queue)
    running: asyncio.Task[CcbError | None] | None = None

    async def lines(self) -> AsyncIterator[str]:
        while (line := await self.typed.get()) is not None:
            yield line

    @property
    def text(self) -> str:
        return "\n".join(self.printed)

    def types(self, *lines: str) -> None:
        for line in lines:
            self.typed.put_nowait(line)

    async def until(self, condition: Any) -> None:
        end = time.monotonic() + 60
        while not condition():
            assert time.monotonic() < end, self.text
            await asyncio.sleep(0.01)

    async def reads(self, *texts: str) -> None:
        await self.until(lambda: all(text in self.text for text in texts))


@pytest.fixture
async def at() -> AsyncIterator[Person]:
    async with plain() as person:
        yield person


@asynccontextmanager
async def plain(
    session: ScriptedSession | None = None,
    *,
    waits: bool = False,
    ahead: float = 0.0,
    laptop: LaptopSide = NO_LAPTOP,
    cwd: str = "/srv/shop",
) -> AsyncIterator[Person]:
    """The session as lines. `ahead` are the seconds after a question in which a line is no answer."""
    session = session or ScriptedSession(greeting=hello(cwd=cwd))
    printed: list[str] = []
    info = ReplInfo("devbox", "/srv/shop", MODEL, "default", "0.1.0", "ccb ssh x")
    repl = LineRepl(session, info, lambda *lines: printed.extend(map(as_line, lines)), laptop)
    person = Person(repl, session, printed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(line_repl, "_TYPED_AHEAD_S", ahead)
        patch.setattr(line_repl, "_TICK_S", 0.01)
        person.running = asyncio.create_task(repl.run(person.lines(), waits=waits))
        try:
            yield person
        finally:
            person.typed.put_nowait(None)
            person.running.cancel()
            await asyncio.gather(person.running, return_exceptions=True)
            await session.close()


async def test_a_turn_is_printed_once_each_part_when_it_is_complete(at: Person) -> None:
    at.types("count the \\", "lines")
    await at.until(lambda: at.session.prompts == ["count the \nlines"])
    at.session.begin()
    at.session.text("I **count**.")
    call = at.session.call("Bash", command="wc -l /srv/shop/a.txt")
    at.session.run(call)
    at.session.done(call, "\n".join(f"line {number}" for number in range(40)))
    at.session.done(at.session.call("Read", file_path="/srv/shop/a.txt"), "1\tx\n2\ty")
    at.session.done(at.session.call("TaskCreate", subject="Test it", description=""), "Task #1 created successfully")
    at.session.finish()
    await at.reads("ccb: the agent is done and waits for you")
    assert at.printed[:2] == ["I **count**.", "Bash: wc -l /srv/shop/a.txt"]
    assert "line 5\n  (28 lines are not shown)\n  line 34" in at.text
    assert "Read: a.txt\n  2 lines" in at.text and "TaskCreate\n  open: Test it\nccb: " in at.text
    assert "count the" not in at.text, "what the person has typed is on the screen already"
    assert at.text.count("I **count**.") == 1


async def test_an_approval_has_numbered_answers(at: Person) -> None:
    rule = session_rule("Bash", "make *")
    asked = at.session.ask("q1", "Bash", {"command": "make all"}, permission_suggestions=[rule])
    await at.reads(
        "The agent asks to use Bash on devbox:/srv/shop:", "  $ make all", "1: Yes, once", "4: No, and say why"
    )
    at.types("go on", "2")
    await at.reads("Type the number of an answer.")
    answer = await asked
    assert answer["behavior"] == "allow" and answer["updatedPermissions"] == [{**rule, "destination": "session"}]
    assert at.session.prompts == []
    refused = at.session.ask("q2", "Bash", {"command": "rm x"})
    await at.reads("$ rm x")
    at.types("4 use git rm")
    assert (await refused) == {
        "behavior": "deny",
        "message": "The user denied this; it was not done. The user says: use git rm",
    }


async def test_a_rule_can_be_kept_for_the_host_and_the_directory() -> None:
    kept: list[Sequence[dict[str, Any]]] = []

    async def keep(updates: Sequence[dict[str, Any]]) -> None:
        kept.append(updates)

    async with plain(laptop=LaptopSide(cast(Any, SimpleNamespace(keep=keep)))) as at:
        rule = session_rule("Bash", "make *")
        asked = at.session.ask("q1", "Bash", {"command": "make all"}, permission_suggestions=[rule])
        await at.reads("3: Yes, and always here: make *, in ")
        at.types("3")
        await at.reads("ccb: Kept for this host and directory, on the laptop: allow make *")
        assert (await asked)["updatedPermissions"] == kept[0] == [{**rule, "destination": "localSettings"}]
        asked = at.session.ask("q2", "Bash", {"command": "docker ps"}, reads_services=True)
        await at.reads("5: Yes, and always here: reading with docker, kubectl, systemctl")
        at.types("5")
        assert (await asked)["updatedPermissions"][0]["rules"] == [
            {"toolName": "Bash", "ruleContent": "reads:services"}
        ]


async def test_a_line_typed_before_the_question_could_be_read_is_no_answer() -> None:
    async with plain(ahead=3600) as at:
        asked = at.session.ask("q1", "Bash", {"command": "rm -r build"})
        await at.reads("$ rm -r build")
        at.types("1")
        await at.reads("so it is no answer")
        assert not asked.done()


async def test_a_call_that_is_too_long_to_read_can_only_be_denied(at: Person) -> None:
    asked = at.session.ask("q1", "Bash", {"command": "x\n" * 30_000})
    await at.reads("4: No")
    assert "1: Yes" not in at.text
    at.types("1", "4")
    assert (await asked)["behavior"] == "deny"


async def test_questions_of_the_agent_are_answered_by_numbers_or_own_words(at: Person) -> None:
    questions = [
        {"question": "Which one?", "header": "One", "options": [{"label": "red"}, {"label": "blue"}]},
        {"question": "Which?", "options": [{"label": "a"}, {"label": "b"}], "multiSelect": True},
        {"question": "Why?", "options": [{"label": "x"}, {"label": "y"}]},
    ]
    asked = at.session.ask("q1", "AskUserQuestion", {"questions": questions})
    await at.reads("The agent asks: Which one?", "2: blue")
    at.types("1,2", "2", "1 2", "because it is late")
    answers = (await asked)["updatedInput"]["answers"]
    assert answers == {"Which one?": "blue", "Which?": "a, b", "Why?": "because it is late"}
    assert "Only one answer is possible." in at.text


async def test_whether_a_project_may_count_is_asked_here(at: Person) -> None:
    hook = {"kind": "hook", "name": "a hook", "detail": "", "path": "/srv/shop/s"}
    question = ProjectTrust("/srv/shop", "f", [hook])
    for line, trusted in (("1", True), ("2", False)):
        at.printed.clear()
        asking = at.session.ask_trust(question, line)
        await at.reads("1: trust them", "Do you trust the files of /srv/shop?", "a hook")
        at.types(line)
        assert await asking == {"trusted": trusted}


async def test_whether_the_host_may_reach_a_port_is_asked_here(at: Person) -> None:
    for line, allowed in (("1", True), ("2", False)):
        at.printed.clear()
        asking = at.session.ask_here(Request(REVERSE_PORT, ReversedPort("devbox", 3000), id=line))
        await at.reads("Let devbox reach port 3000 of this laptop?", "Programs of all users", "2: no")
        at.types(line)
        assert await asking == {"allowed": allowed}


async def test_a_question_of_the_laptop_itself_is_asked_too(at: Person) -> None:
    at.session.progress(question("own 1", "mcp__notes__add", {"text": "milk"}))
    await at.reads("The agent asks to use mcp__notes__add", "milk")
    at.types("4")
    await at.until(lambda: "own 1" in at.session.answers)
    assert at.session.answers["own 1"]["behavior"] == "deny"


async def test_the_connection_and_the_end_are_told_as_lines(at: Person) -> None:
    at.session.link(LinkState.RECONNECTING, "the network is down")
    await at.reads("ccb: reconnecting: the network is down")
    at.session.link(LinkState.CONNECTED)
    await at.reads("ccb: connected")
    at.types("! make", "/status", "/nothing")
    await at.until(lambda: at.session.prompts == ["make", "/nothing"])
    assert at.session.command_lines == ["make"] and "mode ask" in at.text
    at.types("/quit")
    assert at.running is not None and await at.running is None
    assert "ccb ssh x" in "".join(at.repl.farewell())


async def test_ctrl_c_interrupts_a_turn_and_nothing_else(at: Person) -> None:
    assert not await at.repl.interrupted()
    at.session.begin()
    await at.until(lambda: at.repl.reducer.running)
    assert await at.repl.interrupted() and at.session.interrupts == 1


async def test_without_a_terminal_the_end_of_input_waits_for_the_agent() -> None:
    async with plain(waits=True) as at:
        at.types("go")
        await at.until(lambda: at.session.prompts == ["go"])
        at.session.begin()
        at.typed.put_nowait(None)
        await at.until(lambda: at.repl.reducer.running)
        assert at.running is not None and not at.running.done()
        at.session.text("Done.")
        at.session.finish()
        await at.running
        assert "Done." in at.text


async def test_nothing_that_the_host_says_reaches_the_terminal_as_a_command(at: Person) -> None:
    at.session.begin(model=EVIL)
    at.session.text(EVIL)
    call = at.session.call(EVIL, command=EVIL)
    at.session.run(call)
    at.session.done(call, EVIL, is_error=True)
    at.session.link(LinkState.RECONNECTING, EVIL)
    at.session.link(LinkState.CONNECTED)
    at.session.ask("q1", EVIL, {"command": EVIL, EVIL: EVIL}, decision_reason=EVIL, sandbox=EVIL)
    await at.reads("4: No")
    options = [{"label": EVIL, "description": EVIL}, {"label": "b"}]
    at.types("4")
    at.session.ask("q2", "AskUserQuestion", {"questions": [{"question": EVIL, "options": options}]})
    await at.reads("n alone declines")
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", at.text)


async def test_a_login_after_the_first_one_reads_no_line_of_the_person() -> None:
    class Asked:
        memory = prompts_for(headless=True).memory

        async def password(self, prompt: str, attempt: int) -> str | None:
            return "secret"

    prompts = FirstLoginPrompts(Asked())  # type: ignore[arg-type]
    assert await prompts.password("u@h", 1) == "secret"
    prompts.over()
    assert await prompts.password("u@h", 1) is None


@pytest.mark.programs
async def test_a_real_terminal_gets_lines_and_one_session_after_another(tmp_path: Path, fake_model: FakeModel) -> None:
    project = tmp_path / "project"
    project.mkdir()
    fake_model.add(
        {"blocks": [{"type": "tool_use", "name": "Bash", "input": {"command": "touch made"}}]},
        {"text": "Made-it."},
        {"text": "Second-answer."},
        {"text": "Third-answer."},
    )
    ready = "Type a prompt; /help says more."
    with tidy_laptop(tmp_path, fake_model.url) as laptop:
        argv = [sys.executable, "-m", "ccb", str(project), "--plain"]
        async with terminal(argv, laptop.env, str(laptop.home)) as running:
            await running.shows(ready)
            running.type("make \x1b]11;rgb:0/0/0\x07it\x1b[?62;4c\n")  # what the terminal itself says comes between
            await running.shows("4: No, and say why (a reason may follow)")
            while not (project / "made").exists():
                running.type("1\n")
                await asyncio.sleep(0.3)
            await running.shows("Made-it.")
            assert fake_model.requests[0].last_user_text.endswith("\nmake it")
            running.type("/new\n")
            await running.shows("this session stays on the host: ccb")
            await running.until(lambda: running.text.count(ready) == 2)
            running.type("two\n")
            await running.shows("Second-answer.")
            assert "make it" not in str(fake_model.requests[-1].messages)
            running.type("/resume\n")
            await running.shows("/resume N goes on with one")
            listed = [line for line in running.text.splitlines() if "make it (" in line]
            running.type(f"/resume {listed[-1].strip()[0]}\n")
            await running.until(lambda: running.text.count(ready) == 3)
            running.type("three\n")
            await running.shows("Third-answer.")
            assert "Made-it." in str(fake_model.requests[-1].messages)
            running.type("\x04")
            assert await running.ended() == 0
            await running.shows("Come back with:")
            assert b"\x1b" not in running.written


@pytest.mark.programs
async def test_files_are_copied_and_ctrl_c_breaks_a_copy_off(tmp_path: Path) -> None:
    (tmp_path / "plot.png").write_bytes(b"pixels")
    (tmp_path / "a.txt").write_text("one")
    (tmp_path / "b.txt").write_text("two!")
    viewer = tmp_path / "viewer"
    viewer.write_text("#!/bin/sh\n")
    viewer.chmod(0o755)
    gate = asyncio.Event()

    async with (
        file_commands(tmp_path / "opened", gate, str(viewer)) as laptop,
        plain(laptop=laptop, cwd=str(tmp_path)) as at,
    ):
        at.types(f"/get plot.png {tmp_path}/one")
        await at.reads("ccb: copying ↓ plot.png; Ctrl+C breaks it off")
        assert at.repl.busy and await at.repl.interrupted()
        await at.reads("↓ plot.png: broken off; the same command goes on")
        assert not await at.repl.interrupted()
        gate.set()
        at.types(f"/get plot.png {tmp_path}/two", "/get", f"/put {tmp_path}/nothing")
        await at.reads(f"ccb: Copied plot.png (6 B) to {tmp_path}/two on the laptop", "this command is /get REMOTE")
        await at.reads(f"ccb: error: {tmp_path}/nothing on this machine: No such file or directory")
        assert (tmp_path / "two").read_bytes() == b"pixels" and not (tmp_path / "one").exists()
        at.types("/open", "/open a.txt")
        await at.reads("no file waits to be opened: /open PATH fetches one of the host")
        await at.reads("ccb: a.txt · text · 3 B; /open alone opens it with viewer")
        at.types("/open b.txt")
        await at.reads(", after the 1 before it")
        at.printed.clear()
        at.types("/open")
        await at.reads("ccb: Opened a.txt with", "ccb: b.txt · text · 4 B; /open alone opens it")
        assert at.session.prompts == []
