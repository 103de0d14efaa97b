"""`ccb disconnect`: end the SSH connections that are kept on this machine."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

from ccb.tunnel.openssh.kept_records import Kept, all_kept
from ccb.tunnel.plain_text import one_line

from ..command_line.exit_codes import ExitCode
from ..command_line.model import Arguments
from ..terminal.console import print_line
from .sessions.table import age_text


def run_disconnect(arguments: Arguments, environ: Mapping[str, str] = os.environ) -> ExitCode:
    """End the kept connections to the host, or all of them. Return AGENT_FAILED if one could not be ended."""
    target = arguments.connection.target
    found = all_kept(environ, target.login if target is not None else None)
    code = ExitCode.OK
    for kept in found:
        if kept.end():
            print_line(f"disconnected {one_line(kept.host)}")
        else:
            code = ExitCode.AGENT_FAILED
            sys.stderr.write(f"ccb: not disconnected: {one_line(kept.host)}: its process {kept.pid} does not end\n")
    if not found:
        print_line(f"No connection to {target.login} is kept." if target is not None else "No connection is kept.")
    return code


def kept_line(kept: Kept) -> str:
    """Return a kept connection as a line for `ccb ps`."""
    host = one_line(kept.host)
    return f"SSH connection to {host} kept for {age_text(kept.left_s)} more; `ccb disconnect {host}` ends it"
