"""`ccb proxy`: which sessions call models through this machine, and the switch that ends that."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from ccb.tunnel.errors import NoSuchSession, UsageError
from ccb.tunnel.plain_text import HostText

from ...command_line.exit_codes import ExitCode
from ...control.client import ask, running
from ...control.sockets import ProxyState
from ...terminal.guarded_streams import print_line
from ..running import CommandParser, exit_code


def proxy_parser() -> CommandParser:
    parser = CommandParser(prog="ccb proxy", description="Show and end what calls models through this machine.")
    actions = parser.add_subparsers(dest="action", metavar="list|revoke", required=True)
    listing = actions.add_parser("list", help="list the sessions that may call models through this machine now")
    listing.add_argument("--json", action="store_true", help="print one JSON object in each line")
    revoking = actions.add_parser("revoke", help="let a session call no models any more; calls under way end at once")
    revoking.add_argument("session", nargs="?", metavar="SESSION", help="its ID, or the beginning of it")
    revoking.add_argument("--all", action="store_true", help="every session of this machine")
    return parser


def run_proxy(args: Sequence[str], environ: Mapping[str, str] = os.environ) -> int:
    """Run `ccb proxy ARGS` and return the exit code."""
    return exit_code(lambda: _run(args, environ))


def _run(args: Sequence[str], environ: Mapping[str, str]) -> int:
    options = proxy_parser().parse_args(list(args))
    if options.action == "list":
        _list(environ, as_json=options.json)
    else:
        _revoke(environ, options.session or "", everything=options.all)
    return ExitCode.OK


def _list(environ: Mapping[str, str], *, as_json: bool) -> None:
    found = [state for _, state in running(environ)]
    if as_json:
        for state in found:
            print_line(json.dumps(asdict(state)))
        return
    if not found:
        print_line("No session calls models through this machine now.")
    for state in found:
        print_line(f"{_line(state)}")


def _line(state: ProxyState) -> str:
    calls = "1 call" if state.under_way == 1 else f"{state.under_way} calls"
    may = "may call no models any more" if state.revoked else f"{calls} under way"
    if state.expires_s is not None and not state.revoked:
        may += f", may call models for {state.expires_s / 3600:.1f} h"
    return f"{state.session}  {state.host}:{HostText(state.directory).path}  {may}  (pid {state.pid})"


def _revoke(environ: Mapping[str, str], session: str, *, everything: bool) -> None:
    if bool(session) == everything:
        raise UsageError("give the ID of one session, or --all", do="`ccb proxy list` shows them.")
    chosen: list[Path] = [path for path, each in running(environ) if everything or each.session.startswith(session)]
    if not chosen:
        which = "no session" if everything else f"no session {session}"
        raise NoSuchSession(f"{which} calls models through this machine now", do="`ccb proxy list` shows them.")
    for path in chosen:
        state = ask(path, "revoke")
        if state is None or not state.revoked:
            raise NoSuchSession(f"the ccb behind {path} did not answer", do="End it: it is the process in the name.")
        print_line(f"{state.session} on {state.host} may call no models any more.")
