"""`ccb audit`: what this machine has seen of a session."""

from __future__ import annotations

import json
import os
import shutil
import textwrap
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict

from ccb.tunnel.errors import NoSuchSession
from ccb.tunnel.plain_text import neutralise

from ...command_line.exit_codes import ExitCode
from ...config.log import state_dir
from ...ledger.entries import AuditEntry
from ...ledger.store import read_ledger
from ...terminal.guarded_streams import print_line
from ..running import CommandParser, exit_code

_MAX_SHOWN = 1_000
_INDENT = " " * 21
_TITLES = {
    "prompt": "said here",
    "asked": "asked the model",
    "also": "also sent to the model",
    "wanted": "the model wants",
    "there": "the provider ran for the model",
    "decided": "decided here",
    "result": "result",
    "unseen": "result of a call that was not seen here",
    "tampering": "TAMPERING: result of a call that no model made",
    "unchecked": "not looked at",
    "unrecorded": "not recorded any more",
    "revoked": "all model calls ended by the person",
}


def audit_parser() -> CommandParser:
    parser = CommandParser(prog="ccb audit", description="Show what this machine has seen of a session.")
    parser.add_argument("session", metavar="SESSION", help="its ID, or the beginning of it (`ccb usage --by session`)")
    parser.add_argument("--json", action="store_true", help="print one JSON object in each line")
    return parser


def run_audit(args: Sequence[str], environ: Mapping[str, str] = os.environ) -> int:
    """Run `ccb audit ARGS` and return the exit code. It is 1 if something was tampered with."""
    return exit_code(lambda: _run(args, environ))


def _run(args: Sequence[str], environ: Mapping[str, str]) -> int:
    options = audit_parser().parse_args(list(args))
    found = _entries(options.session, environ)
    if not found:
        raise NoSuchSession(
            f"this machine has seen no session {options.session}", do="`ccb usage --by session` lists them."
        )
    if options.json:
        lines: Iterator[str] = (json.dumps({"session": session, **asdict(each)}) for session, each in found)
    else:
        lines = audit_lines(found, shutil.get_terminal_size((100, 24)).columns)
    for line in lines:
        print_line(line)
    tampered = any(each.kind == "tampering" for _, each in found)
    return ExitCode.AGENT_FAILED if tampered else ExitCode.OK


def _entries(session: str, environ: Mapping[str, str]) -> list[tuple[str, AuditEntry]]:
    return read_ledger(state_dir(environ), lambda ledger: ledger.audited(session), [])


def audit_lines(found: Sequence[tuple[str, AuditEntry]], width: int = 100) -> Iterator[str]:
    """Return the entries for a person to read, session by session, then how many there are of each kind. `width` are
    the columns of the terminal: it must not wrap a text, whose next line could look like an entry."""
    asked = {each.tool_use for _, each in found if each.kind == "decided"}
    before = ("", "")
    for session, each in found:
        if (session, each.host) != before:  # another host may give its session the same ID
            yield f"session {session}{f' on {each.host}' if each.host else ''}"
            before = (session, each.host)
        yield from _shown(each, asked, max(width - len(_INDENT) - 1, 20))
    counts = {kind: sum(each.kind == kind for _, each in found) for kind in _TITLES}
    yield (
        f"tool calls wanted: {counts['wanted']}, decided here: {counts['decided']}, results: {counts['result']}, "
        f"of calls not seen here: {counts['unseen']}, of calls that no model made: {counts['tampering']}"
    )


def _shown(each: AuditEntry, asked: set[str], width: int) -> Iterator[str]:
    clock = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(each.at))
    name = each.name
    if each.kind == "also" and name:
        name = f"as {name}"
    words = [_TITLES.get(each.kind, each.kind), name, each.tool_use]
    if each.kind == "wanted" and each.tool_use not in asked:
        words.append("(not asked here)")
    yield f"{clock}  {' '.join(word for word in words if word)}"
    text = neutralise(each.text)
    cut = text[:_MAX_SHOWN] + (" …" if len(text) > _MAX_SHOWN else "")
    for line in cut.expandtabs().splitlines():
        step = width if line.isascii() else width // 2  # other characters may take two columns
        pieces = textwrap.wrap(line, step, expand_tabs=False, replace_whitespace=False, break_on_hyphens=False)
        yield from (f"{_INDENT}{piece}".rstrip() for piece in pieces or [""])
