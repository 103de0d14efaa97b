"""Hosts that end a user's processes at logout (logind with KillUserProcesses), and how the daemon survives there. Only
what is under the user's own service manager stays, if the user lingers: logind kills the whole scope of a login."""

from __future__ import annotations

import os
import shlex
import time

from ..session_store.session_paths import in_login_scope, lingers, user_name

_BOUND = (
    "this system ends background processes at logout (KillUserProcesses), so the session is bound to this connection:"
)
_ENDS = {
    False: "when the connection is lost, running tools are ended, and a reconnect goes on from the journal.",
    True: "it is in memory only and ends with the connection.",
}
_DO = {
    False: "To let sessions go on, run once on the host: loginctl enable-linger",
    True: "It could not be moved under your service manager; an administrator can exclude you: "
    "KillExcludeUsers in logind.conf",
}
_LOGIND = ("org.freedesktop.login1", "/org/freedesktop/login1", "org.freedesktop.login1.Manager")
_MANAGER = ("org.freedesktop.systemd1", "/org/freedesktop/systemd1", "org.freedesktop.systemd1.Manager")
_BUS_S = 2.0


def bound_note(root: str = "/", *, in_memory: bool = False) -> str:
    """Return the note for a session that ends with its connection. It says why, and what the person can do."""
    return " ".join((_BOUND, _ENDS[in_memory], _DO[lingers(root)]))


def kills(user: str = "") -> bool:
    """Return whether logind kills the processes that `user` ("" for this user) leaves running at logout."""
    names = ("KillUserProcesses", "KillOnlyUsers", "KillExcludeUsers")
    told = [shlex.split(line) for line in (_busctl("get-property", *_LOGIND, *names) or "").splitlines()]
    if [each[:1] for each in told] != [["b"], ["as"], ["as"]]:
        return False
    user, only, excluded = user or user_name(), told[1][2:], told[2][2:]
    return told[0][1:] == ["true"] and user not in excluded and (not only or user in only)


def move_out(session: str, root: str = "/") -> bool:
    """Move this process under the user's service manager if that outlives the login. Return whether it has left."""
    if not lingers(root):
        return False
    properties = ("2", "PIDs", "au", "1", str(os.getpid()), "Description", "s", "ccb session " + session, "0")
    unit = ("StartTransientUnit", "ssa(sv)a(sa(sv))", "ccb-%s.scope" % session, "fail", *properties)
    moves = _busctl("--user", "--quiet", "call", *_MANAGER, *unit) is not None
    deadline = time.monotonic() + _BUS_S
    while moves and time.monotonic() < deadline:
        if not in_login_scope(root):
            return True
        time.sleep(0.01)  # the manager moves us some time after it has answered
    return False


def _busctl(*words: str) -> str | None:
    import subprocess

    try:
        argv, nothing = ["busctl", *words], subprocess.DEVNULL
        asked = subprocess.run(argv, stdin=nothing, stdout=subprocess.PIPE, stderr=nothing, timeout=_BUS_S, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return asked.stdout.decode("utf-8", "replace")
