"""The help of the command line, made from the table of options."""

from __future__ import annotations

import textwrap

from .options import OPTIONS

_USAGE = """\
Usage: ccb ssh [user@]host[:/path] [DIR] [PROMPT]   an agent on another machine, seen from this terminal
       ccb ssh host --local [DIR] [PROMPT]          the same, with the worker on this machine
       ccb [PATH] [PROMPT]                          an agent in a directory of this machine
       ccb auth login|status|logout                 the model credential of this machine
       ccb ps [HOST]                                the sessions of a host (of this machine)
       ccb attach HOST [ID] [--view]                go on with a session that runs there, or watch it
       ccb logs|stop HOST ID                        what a session did; end its worker (stop HOST --all: every one)
       ccb gc|clean HOST [--dry-run]                remove what is stale; remove everything of ccb
       ccb doctor [HOST] [--json]                   what is in the way, on this machine and on the host

The host comes before everything else that is not an option. Without -p the terminal interface starts and PROMPT is sent
first; with -p PROMPT (and what is piped in) is answered on stdout.

Options:
"""

_FOOTER = """
Paths: host:/srv/app, host:~/app, host:app (below the home directory), ssh://user@host:2222/srv/app, '[::1]:/srv/app'.
"""


def help_text(width: int = 100) -> str:
    """All of it, ready to print."""
    lines = []
    for option in OPTIONS:
        names = ", ".join(sorted(option.names, key=len))
        left = f"  {names} <{option.metavar}>" if option.metavar else f"  {names}"
        wrapped = textwrap.wrap(option.help, max(20, width - 38)) or [""]
        if len(left) > 36:
            lines.append(left)
            left = ""
        lines.append(f"{left:<38}{wrapped[0]}")
        lines += [" " * 38 + line for line in wrapped[1:]]
    return _USAGE + "\n".join(lines) + "\n" + _FOOTER
