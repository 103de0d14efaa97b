"""Systems that end what a user left running when the login ends (logind's KillUserProcesses).

A login's processes are in a scope of its own, which is killed as a whole, also for a user who lingers: only what is
under the user's own service manager stays, and that manager outlives the logins of those who linger.

On the way to hello, so it imports next to nothing and starts no process before it knows that it has to.
"""

from __future__ import annotations

import os
import time

from ..sessions.paths import in_login_scope, lingers

BOUND = (
    "this system ends background processes at logout (KillUserProcesses), so the session is bound to this connection: when it is"
    " lost, running tools are ended, and a reconnect goes on from the journal. "
)
BOUND_IN_MEMORY = (
    "this system ends background processes at logout (KillUserProcesses), so the session is bound to this connection: as it is in"
    " memory only, it ends with it. "
)
_DO = {
    False: "To let sessions go on, run once on the host: loginctl enable-linger",
    True: "It could not be moved under your service manager; an administrator can exclude you: KillExcludeUsers in logind.conf",
}
_DIRECTORIES = ("etc/systemd", "run/systemd", "usr/local/lib/systemd", "usr/lib/systemd")
"""Under the root, the first one wins: for the main file as a whole, for each drop-in of the same name."""

_TRUE = ("1", "yes", "y", "true", "t", "on")
_MOVE_S = 2.0


def bound_note(root: str = "/", *, in_memory: bool = False) -> str:
    """What the person has to know then, and can do."""
    return (BOUND_IN_MEMORY if in_memory else BOUND) + _DO[lingers(root)]


def kills(user: str = "", root: str = "/") -> bool:
    """Whether logind is set to kill what this user (default: ours) leaves running. `root` is that of the file system, for tests."""
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
    """The main file, then the drop-ins in the order of their names."""
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
    """Name, value and whether it is commented out, in the section [Login]. A commented line of the main file tells the
    default that this system was built with; the real ones follow it."""
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
    """Put this process under the user's own service manager, if that outlives the login. Whether it has left the login."""
    if not lingers(root):
        return False
    import subprocess

    properties = ["2", "PIDs", "au", "1", str(os.getpid()), "Description", "s", "ccb session " + session, "0"]
    manager = ["org.freedesktop.systemd1", "/org/freedesktop/systemd1", "org.freedesktop.systemd1.Manager"]
    call = ["StartTransientUnit", "ssa(sv)a(sa(sv))", "ccb-%s.scope" % session, "fail", *properties]
    try:
        asked = subprocess.run(
            ["busctl", "--user", "--quiet", "call", *manager, *call],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=_MOVE_S, check=False,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return False
    deadline = time.monotonic() + _MOVE_S
    while asked.returncode == 0 and time.monotonic() < deadline:
        if not in_login_scope(root):
            return True
        time.sleep(0.01)  # the manager moves us in its own time
    return False
