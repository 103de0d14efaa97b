"""`ccb disconnect`: end the SSH connections that are kept on this machine."""

from __future__ import annotations

import os
from collections.abc import Mapping

from ccb.tunnel.openssh.kept_records import Kept, all_kept

from ..command_line.exit_codes import ExitCode
from ..command_line.model import Arguments
from ..terminal.guarded_streams import print_line, say
from .sessions.table import age_text


def run_disconnect(arguments: Arguments, environ: Mapping[str, str] = os.environ) -> ExitCode:
    """End the kept connections to the host, or all of them. Return AGENT_FAILED if one could not be ended."""
    target = arguments.connection.target
    found = all_kept(environ, target.login if target is not None else None)
    code = ExitCode.OK
    for kept in found:
        if kept.end():
            print_line(f"disconnected {kept.host}")
        else:
            code = ExitCode.AGENT_FAILED
            say(f"ccb: not disconnected: {kept.host}: its process {kept.pid} does not end")
    if not found:
        print_line(f"No connection to {target.login} is kept." if target is not None else "No connection is kept.")
    return code


def kept_line(kept: Kept) -> str:
    """Return a kept connection as a line for `ccb ps`."""
    host = kept.host
    return f"SSH connection to {host} kept for {age_text(kept.left_s)} more; `ccb disconnect {host}` ends it"
