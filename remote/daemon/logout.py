"""Hosts that end a user's processes at logout (logind with KillUserProcesses), and how the daemon survives there.

Logind puts the processes of a login into a scope and kills the whole scope at logout, even if the user lingers. Only
processes under the user's own service manager stay, and that manager outlives the login if the user lingers.

This module is imported before hello. It imports next to nothing, and starts a process only where it must.
"""

from __future__ import annotations

import os
import time

from ..session_store.session_paths import in_login_scope, lingers

BOUND = (
    "this system ends background processes at logout (KillUserProcesses), so the session is bound to this connection:"
    " when the connection is lost, running tools are ended, and a reconnect goes on from the journal. "
)
BOUND_IN_MEMORY = (
    "this system ends background processes at logout (KillUserProcesses), so the session is bound to this connection:"
    " it is in memory only and ends with the connection. "
)
_DO = {
    False: "To let sessions go on, run once on the host: loginctl enable-linger",
    True: "It could not be moved under your service manager; an administrator can exclude you: "
    "KillExcludeUsers in logind.conf",
}
_DIRECTORIES = ("etc/systemd", "run/systemd", "usr/local/lib/systemd", "usr/lib/systemd")
"""Where logind looks for its configuration, the most important directory first: the first logind.conf wins, and the
first drop-in of each name."""

_TRUE = ("1", "yes", "y", "true", "t", "on")
_MOVE_S = 2.0


def bound_note(root: str = "/", *, in_memory: bool = False) -> str:
    """Return the note for a session that ends with its connection. It says why, and what the person can do."""
    return (BOUND_IN_MEMORY if in_memory else BOUND) + _DO[lingers(root)]


def kills(user: str = "", root: str = "/") -> bool:
    """Return whether logind kills the processes that `user` ("" for this user) leaves running at logout. `root` is the
    root of the file system; tests set it."""
    user = user or _user_name()
    kill = False
    only: list[str] = []
    exclude = ["root"]
    for path in _files(root):
        for name, value, commented in _assignments(path):
            if name == "KillUserProcesses" and value.lower() in (*_TRUE, "0", "no", "n", "false", "f", "off"):
                kill = value.lower() in _TRUE
            elif name == "KillOnlyUsers" and not commented:
                only = [*only, *value.split()] if value else []
            elif name == "KillExcludeUsers" and not commented:
                exclude = [*exclude, *value.split()] if value else []
    return kill and user not in exclude and (not only or user in only)


def _files(root: str) -> list[str]:
    """Return the main configuration file, then the drop-ins in the order of their names."""
    tops = [os.path.join(root, each) for each in _DIRECTORIES]
    main = [path for path in (os.path.join(top, "logind.conf") for top in tops) if os.path.exists(path)]
    drop_ins: dict[str, str] = {}
    for top in tops:
        folder = os.path.join(top, "logind.conf.d")
        try:
            names = os.listdir(folder)
        except OSError:
            continue
        for name in names:
            if name.endswith(".conf"):
                drop_ins.setdefault(name, os.path.join(folder, name))
    return main[:1] + [drop_ins[name] for name in sorted(drop_ins)]


def _assignments(path: str) -> list[tuple[str, str, bool]]:
    """Return (name, value, commented out) for each setting in the section [Login]. A commented line of the main file
    shows a default of this system. The defaults come first, so that a set value overrides them."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            text = file.read(1 << 20).replace("\\\n", " ")
    except OSError:
        return []
    section = ""
    defaults: list[tuple[str, str, bool]] = []
    found: list[tuple[str, str, bool]] = []
    for line in map(str.strip, text.splitlines()):
        if line.startswith("["):
            section = line
        name, equals, value = line.lstrip("#; ").partition("=")
        if section == "[Login]" and equals:
            commented = line[0] in "#;"
            (defaults if commented else found).append((name.strip(), value.strip(), commented))
    return [*defaults, *found] if path.endswith("/logind.conf") else found


def _user_name() -> str:
    import pwd

    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return ""


def move_out(session: str, root: str = "/") -> bool:
    """Move this process under the user's own service manager, if that manager outlives the login. Return whether the
    process has left the login's scope."""
    if not lingers(root):
        return False
    import subprocess

    properties = ["2", "PIDs", "au", "1", str(os.getpid()), "Description", "s", "ccb session " + session, "0"]
    manager = ["org.freedesktop.systemd1", "/org/freedesktop/systemd1", "org.freedesktop.systemd1.Manager"]
    call = ["StartTransientUnit", "ssa(sv)a(sa(sv))", "ccb-%s.scope" % session, "fail", *properties]
    try:
        asked = subprocess.run(
            ["busctl", "--user", "--quiet", "call", *manager, *call],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=_MOVE_S,
            check=False,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return False
    deadline = time.monotonic() + _MOVE_S
    while asked.returncode == 0 and time.monotonic() < deadline:
        if not in_login_scope(root):
            return True
        time.sleep(0.01)  # the manager moves us some time after it has answered
    return False
