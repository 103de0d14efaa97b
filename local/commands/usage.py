"""`ccb usage`, `ccb audit`, `ccb proxy`."""

from __future__ import annotations

import json
import shutil
import textwrap
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ccb.tunnel.errors import NoSuchSession, UsageError
from ccb.tunnel.plain_text import HostText, age_text, neutralise, one_line

from ..command_line.arguments import Arguments
from ..command_line.exit_codes import ExitCode
from ..command_line.transport_choice import shown_host
from ..config.policy import ledger_folder
from ..ledger.call_ledger import AuditEntry, UsageSum, dollars, read_ledger
from ..ledger.proxy_control import ProxyState, ask, parse_state, running
from ..terminal.console import print_line
from .session_table import aligned, cut

_MAX_SHOWN = 1_000
_INDENT = " " * 21
_TITLES = {
    "prompt": "said here",
    "told": "message from outside, of",
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
_DAY_S = 86400
_MAX_NAME = 40
_TOKENS = ("input_tokens", "cache_write_tokens", "cache_read_tokens", "output_tokens")
_ADDED = ("calls", "failed", *_TOKENS, "usd", "estimated")
_HEADINGS = ("CALLS", "FAILED", "INPUT", "CACHED", "OUTPUT", "COST", "LAST")


def run_audit(arguments: Arguments, environ: Mapping[str, str]) -> int:
    """Run `ccb audit` and return the exit code. It is 1 if something was tampered with."""
    wanted = arguments.rest[0]
    found: list[tuple[str, AuditEntry]] = read_ledger(ledger_folder(environ), lambda ledger: ledger.audited(wanted), [])
    if not found:
        raise NoSuchSession(f"this machine has seen no session {wanted}", do="`ccb usage --by session` lists them.")
    if arguments.host_command.json:
        lines: Iterator[str] = (json.dumps({"session": session, **asdict(each)}) for session, each in found)
    else:
        lines = audit_lines(found, shutil.get_terminal_size((100, 24)).columns)
    print_line(*lines)
    tampered = any(each.kind == "tampering" for _, each in found)
    return ExitCode.AGENT_FAILED if tampered else ExitCode.OK


def audit_lines(found: Sequence[tuple[str, AuditEntry]], width: int = 100) -> Iterator[str]:
    """Yield the entries for a person to read, session by session, then how many there are of each kind. `width` are the
    columns of the terminal: a text must not wrap, because its next line could look like an entry."""
    asked = {each.tool_use for _, each in found if each.kind == "decided"}
    before = ("", "")
    for session, each in found:
        if (session, each.host) != before:  # another host may give its session the same ID
            yield f"session {session}{f' on {shown_host(each.host)}' if each.host else ''}"
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


def run_proxy(arguments: Arguments, environ: Mapping[str, str]) -> int:
    action, session = arguments.rest[0], next(iter(arguments.rest[1:]), "")
    everything = arguments.host_command.all
    found = list(running(environ))
    if action == "list":
        as_json = arguments.host_command.json
        for _, state in found:
            print_line(json.dumps(asdict(state)) if as_json else _line(state))
        if not found and not as_json:
            print_line("No session calls models through this machine now.")
        return ExitCode.OK
    if bool(session) == everything:
        raise UsageError("give the ID of one session, or --all", do="`ccb proxy list` shows them.")
    chosen: list[Path] = [path for path, each in found if everything or each.session.startswith(session)]
    if not chosen:
        which = "no session" if everything else f"no session {session}"
        raise NoSuchSession(f"{which} calls models through this machine now", do="`ccb proxy list` shows them.")
    for path in chosen:
        revoked = parse_state(ask(path, {"do": "revoke"}))
        if revoked is None or not revoked.revoked:
            raise NoSuchSession(f"the ccb behind {path} did not answer", do="End it: it is the process in the name.")
        print_line(f"{revoked.session} on {shown_host(revoked.host)} may call no models any more.")
    return ExitCode.OK


def _line(state: ProxyState) -> str:
    calls = "1 call" if state.under_way == 1 else f"{state.under_way} calls"
    may = "may call no models any more" if state.revoked else f"{calls} under way"
    if state.expires_s is not None and not state.revoked:
        may += f", may call models for {state.expires_s / 3600:.1f} h"
    return f"{state.session}  {shown_host(state.host)}:{HostText(state.directory).path}  {may}  (pid {state.pid})"


def run_usage(arguments: Arguments, environ: Mapping[str, str]) -> int:
    by, days = arguments.host_command.by, arguments.host_command.days
    since = time.time() - days * _DAY_S if days else 0.0
    sums: list[UsageSum] = read_ledger(ledger_folder(environ), lambda ledger: ledger.sums(by, since=since), [])
    if arguments.host_command.json:
        for each in sums:
            fields = {by if name == "group" else name: value for name, value in asdict(each).items()}
            print_line(json.dumps(fields))
    else:
        print_line(*(usage_table(by, sums, time.time()) if sums else ["No model calls yet."]))
    return ExitCode.OK


def usage_table(by: str, sums: Sequence[UsageSum], now: float) -> list[str]:
    """Return a heading, a line for each sum, and their total if there are several. `now` is the Unix time."""
    added: dict[str, Any] = {name: sum(getattr(each, name) for each in sums) for name in _ADDED}
    total = UsageSum("total", **added, last=max(each.last for each in sums))
    shown = (*sums, *([total] if len(sums) > 1 else []))
    return aligned([(by.upper(), *_HEADINGS), *(_row(each, by, now) for each in shown)], len(_HEADINGS))


def _row(each: UsageSum, by: str, now: float) -> tuple[str, ...]:
    return (
        cut(one_line(shown_host(each.group) if by == "host" else each.group) or "-", _MAX_NAME),
        f"{each.calls:,}",
        f"{each.failed:,}",
        f"{each.input_tokens + each.cache_write_tokens:,}",
        f"{each.cache_read_tokens:,}",
        f"{each.output_tokens:,}",
        f"{'~' if each.estimated else ''}{dollars(each.usd)}",
        f"{age_text(now - each.last)} ago",
    )
