"""A host that puts harm into every text it sends: each command still prints lines of ccb only."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.local.connect.test_host_sessions import frames, worker
from tests.support.repl.hostile_places import ASKED, TOLD, Place, lost
from tests.support.repl.scripted_session import ScriptedSession, hello
from tests.support.run_words import run_words

from ccb.deploy.bundle import Bundle
from ccb.local.command_line.parser import parse_arguments
from ccb.local.commands import cp, host_commands, trust
from ccb.local.config.settings import Settings
from ccb.local.connect import nodes
from ccb.local.connect.startup import LoadedBasics
from ccb.local.doctor.doctor_findings import finding_lines
from ccb.local.doctor.host_checks import host_findings
from ccb.local.plain import line_repl
from ccb.local.plain.line_output import LinePrinter
from ccb.local.plain.line_repl import LineRepl
from ccb.local.slash_commands.session_api import ReplInfo
from ccb.local.terminal import console
from ccb.local.terminal.console import print_line
from ccb.local.transcript.notices import Notices
from ccb.tunnel import plain_text
from ccb.tunnel.errors import Node, Unreachable
from ccb.tunnel.plain_text import HostText
from ccb.tunnel.transports.command_transport import LocalTransport
from ccb.tunnel.transports.node import NodeTransport
from ccb.tunnel.transports.pipe import Transport
from ccb.tunnel.wire.frames import Bye, Frame, Refused, Report

EVIL = (
    "a\nccb: password:\r\nccb: password:\u2028ccb: password:\x85\x1b[1A\x1b]52;c;eA==\x07"
    "\x9b2J\u202e\u2066\x00\x08\tz\n\u200b\x1b[mccb: password:"
)
SESSION = "11111111-0000-4000-8000-000000000000"
_DRIVES = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ufeff]")
_FORGED = re.compile(r"^(?! )\W*ccb: password:", re.MULTILINE)

_CHANGE = dict.fromkeys(("path", "what", "why", "how", "session"), EVIL)
_ROW = {"session": SESSION, **dict.fromkeys(("cwd", "state", "prompt", "host", "storage", "driver"), EVIL)}
_SWITCH = dict.fromkeys(("name", "detail", "path", "source"), EVIL)
REPORTS: dict[str, tuple[Frame, ...]] = {
    "ps --local": (Report("session", _ROW), Report("session", {**_ROW, "host": ""})),
    f"logs --local {SESSION}": (Report("log", {"source": EVIL, "when": EVIL, "text": EVIL}),),
    f"stop --local {SESSION}": tuple(Report(kind, {**_CHANGE, "pid": 1}) for kind in ("stopped", "kept")),
    "gc --local": tuple(Report(kind, {**_CHANGE, "pid": 1}) for kind in ("removed", "stopped", "ended", "kept")),
    "clean --local --yes": tuple(Report(kind, _CHANGE) for kind in ("removed", "stopped", "ended", "kept")),
    "clean --local --dry-run": tuple(Report(kind, _CHANGE) for kind in ("removed", "stopped", "ended", "kept")),
    f"move --local {SESSION} h:/srv --no-files": (Report("session", {"session": SESSION, "moved": True}),),
    f"export --local {SESSION}": (Report("session", {"session": EVIL}),),
    "trust --local": (
        Report("project", {"directory": f"/srv/{EVIL}", "fingerprint": EVIL}),
        Report("problem", {"text": EVIL}),
        *(Report("switch", {"kind": kind, **_SWITCH}) for kind in ("allow", "setting", "hook", "mcp", EVIL)),
    ),
    "gc --local --older-than 1": (
        Refused("in_use", EVIL, dict.fromkeys(("do", "near", "session", "why", EVIL), EVIL)),
    ),
    "ps --local --json": (Report("session", {**_ROW, "session": EVIL}),),
}
"""The command lines, and what the worker answers."""


@pytest.fixture
def transport(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LocalTransport:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return LocalTransport({"PATH": os.environ["PATH"], "HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path)})


def answering(monkeypatch: pytest.MonkeyPatch, transport: LocalTransport, bundle: Bundle) -> None:
    @asynccontextmanager
    async def connect_host(*_: object) -> AsyncIterator[tuple[Transport, LoadedBasics]]:
        yield transport, LoadedBasics(Settings(), bundle)

    for module in (host_commands, trust, cp):
        monkeypatch.setattr(module, "connect_host", connect_host)


def printed(capfd: pytest.CaptureFixture[str]) -> str:
    return "\n".join(capfd.readouterr())


def harmless(text: str) -> None:
    assert "ccb:" in text, "the host's texts were shown"
    assert _DRIVES.findall(text) == []
    assert not _FORGED.search(text), text


@pytest.mark.parametrize("marked", [True, False], ids=["", "where the type that marks its words is off"])
@pytest.mark.parametrize("line", REPORTS)
def test_a_command_prints_no_line_of_the_host(
    line: str,
    marked: bool,
    monkeypatch: pytest.MonkeyPatch,
    transport: LocalTransport,
    capfd: pytest.CaptureFixture[str],
) -> None:
    if not marked:
        monkeypatch.setattr(plain_text.HostText, "cell", property(lambda self: self.raw))
    answering(monkeypatch, transport, worker(frames(*REPORTS[line], Bye())))
    run_words(line.split())
    text = printed(capfd)
    harmless(text)
    assert "json" not in line or "makes no sense: ('session',)" in text, "a session has an ID"


@pytest.mark.parametrize("command", ["logs", "gc", "stop"])
def test_a_host_turns_no_command_into_a_stop(
    command: str, monkeypatch: pytest.MonkeyPatch, transport: LocalTransport, capfd: pytest.CaptureFixture[str]
) -> None:
    gone_to: list[object] = []

    def through(_: Transport, node: Node, __: object) -> NodeTransport:
        gone_to.append(node)
        raise Unreachable("there is no way")

    monkeypatch.setattr(nodes, "through", through)
    kept = Refused("in_use", "kept by a worker on n1", {"host": "n1", "boot": "b"})
    answering(monkeypatch, transport, worker(frames(kept, Bye())))
    run_words([command, "--local", *([SESSION] if command != "gc" else [])])
    assert len(gone_to) == (command == "stop")
    assert command == "stop" or "kept by a worker on n1" in printed(capfd)


def test_the_doctor_prints_no_line_of_the_host(transport: LocalTransport, capfd: pytest.CaptureFixture[str]) -> None:
    check = {"name": EVIL, "state": "warn", "found": EVIL, "fix": EVIL}

    async def examine() -> None:
        async for finding in host_findings(transport, worker(frames(Report("check", check), Bye()))):
            print_line(*finding_lines(finding, 100))

    asyncio.run(examine())
    harmless(printed(capfd))


def test_what_would_be_trusted_is_shown_whole() -> None:
    hook = trust.SwitchRow(kind=HostText("hook"), name=HostText("Stop"), detail=HostText("true " * 500 + "&& x"))
    assert hook.line.endswith("&& x")


@pytest.mark.programs
def test_a_copy_names_no_file_as_a_line(
    monkeypatch: pytest.MonkeyPatch, transport: LocalTransport, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    name = EVIL.replace("\x00", "")
    source, target = tmp_path / "from" / name, tmp_path / "to"
    for each in (source, target):
        each.mkdir(parents=True)
    os.mkfifo(source / name)
    (tmp_path / "from" / "caf\udce9").write_bytes(b"1")
    answering(monkeypatch, transport, worker(b""))
    for number, path in enumerate((source, tmp_path / "from" / "caf\udce9")):
        asyncio.run(cp.copy_files(parse_arguments(["cp", f"devbox:{path}", f"{target}/{number}"]), os.environ))
    text = printed(capfd)
    harmless(text)
    assert "copied caf\\xe9 (1 B)" in text


@pytest.mark.parametrize("place", (*TOLD, *ASKED, lost), ids=lambda place: place.__name__)
@pytest.mark.quick_rows(24)
async def test_a_session_in_lines_has_no_line_of_the_host(
    place: Place, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(line_repl, "_TICK_S", 0.01)
    session = ScriptedSession(greeting=hello(notes=[EVIL], cwd=f"/srv/{EVIL}"))
    info = ReplInfo("devbox", f"/srv/{EVIL}", EVIL, EVIL, "1", sandbox=EVIL)
    seen: list[str] = []

    def write(*lines: str) -> None:
        print_line(*lines)
        seen.extend(lines)

    repl = LineRepl(session, info, write)

    async def lines() -> AsyncIterator[str]:
        for each in ("/status", "/tools", "/model"):
            yield each
        place(session, EVIL)
        async with asyncio.timeout(30):
            while len(seen) < 4:
                await asyncio.sleep(0)
            for _ in range(50):
                await asyncio.sleep(0.001)

    await repl.run(lines(), waits=False)
    for line in repl.farewell():
        write(line)
    await session.close()
    harmless(printed(capfd))


def test_a_notice_is_one_line_unless_it_is_a_list() -> None:
    notices = Notices(LinePrinter(lambda *_: None), "me")
    assert "\n" not in notices.add(EVIL).text
    assert notices.add([EVIL, "ccb's own"]).text.count("\n") == 1


def test_the_check_sees_what_is_printed_without_the_doors(
    monkeypatch: pytest.MonkeyPatch, transport: LocalTransport, capfd: pytest.CaptureFixture[str]
) -> None:
    for module in (console, plain_text):
        monkeypatch.setattr(module, "as_line", lambda text: text)
    monkeypatch.setattr(plain_text.HostText, "cell", property(lambda self: self.raw))
    for line in ("gc --local", "trust --local"):
        answering(monkeypatch, transport, worker(frames(*REPORTS[line], Bye())))
        run_words(line.split())
        text = printed(capfd)
        assert _FORGED.search(text) and {"\x1b", "\x9b", "\u202e", "\u2028"} <= {*_DRIVES.findall(text)}, line


def test_the_linter_refuses_another_way_to_print() -> None:
    ways = ['sys.stdout.write("x")', 'sys.stderr.write("x")', 'sys.stdout.writelines(["x"])', "say = sys.stderr.write"]
    code = ["import sys", "from sys import stderr", "", *ways, 'stderr.write("x")', 'print("x")', ""]
    rules = ["--stdin-filename", "local/commands/new.py", "--select", "TID251,T20", "--output-format", "concise"]
    words = [sys.executable, "-m", "ruff", "check", *rules, "-"]
    done = subprocess.run(words, input="\n".join(code), capture_output=True, text=True, check=False)
    found = re.findall(r"new\.py:(\d+):\d+: (?:TID251|T201) ", done.stdout)
    assert {*"456789"} <= {*found} and done.returncode == 1, done
