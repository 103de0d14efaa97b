"""The directories of a session on the host: durable state, and sockets and locks that must not be on a shared file system.

On the way to hello, so it imports next to nothing.
"""

from __future__ import annotations

import os
import stat

MAX_SOCKET_PATH = 100
"""Bytes; sun_path holds 108 on Linux, 104 elsewhere."""


MADE = ".made"
"""A file in a directory of ours that lists the parents which were made for it; also written by deploy/stub.py."""


class NoPlace(Exception):
    """Nothing is writable; `notes` say what was tried and why it failed."""

    def __init__(self, notes: list[str]) -> None:
        super().__init__("; ".join(notes))
        self.notes = notes


class Places:
    """`state` is the session's own directory (journal, log, large outputs), `runtime` is shared by the sessions of this
    user on this host. `notes` say which better place could not be used. `durable` is False when the state is in `runtime`."""

    def __init__(self, state: str, runtime: str, session: str, durable: bool, notes: list[str]) -> None:
        self.state = state
        self.runtime = runtime
        self.durable = durable
        self.notes = notes
        self.socket = os.path.join(runtime, session + ".sock")
        self.lock = os.path.join(runtime, session + ".lock")


def is_session_id(text: str) -> bool:
    """Whether this can name files of a session."""
    return 0 < len(text) <= 64 and not text.startswith(".") and "/" not in text and "\0" not in text


def home_directory() -> str:
    """The home of this user, "" when there is none."""
    home = os.environ.get("HOME") or os.path.expanduser("~")
    return home if home.startswith("/") else ""


def private_directory(path: str, top: str) -> str:
    """Make `path` below `top` with mode 0700. Every step below `top` must be a directory of ours; raises OSError if not."""
    missing, step = [], top
    while not os.path.isdir(step):
        missing.append(step)
        step = os.path.dirname(step)
    if missing:
        os.makedirs(top, 0o700, exist_ok=True)
    step = top
    for name in os.path.relpath(path, top).split(os.sep):
        step = os.path.join(step, name)
        try:
            os.mkdir(step, 0o700)
        except FileExistsError:
            pass
        if missing:
            _note_made(step, missing)
            missing = []
        info = os.lstat(step)
        if not stat.S_ISDIR(info.st_mode):
            raise NotADirectoryError(20, "is not a directory", step)
        if info.st_uid != os.getuid():
            raise PermissionError(1, "belongs to another user", step)
        if stat.S_IMODE(info.st_mode) & 0o077:
            os.chmod(step, 0o700)
    return path


def _note_made(directory: str, parents: list[str]) -> None:
    """Remember in `directory` that its `parents` (the nearest one first) were not there before; `clean` takes them away again."""
    try:
        fd = os.open(os.path.join(directory, MADE), os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        os.write(fd, "\n".join(parents).encode("utf-8", "replace"))
        os.close(fd)
    except OSError:
        pass


def _writable(path: str) -> None:
    """Raise OSError unless a file can be made in `path` (a full disk and a read-only mount show only so)."""
    probe = os.path.join(path, ".probe-%d" % os.getpid())
    fd = os.open(probe, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    try:
        os.write(fd, b"x")
    except OSError as error:
        raise OSError(error.errno, error.strerror, path) from None
    finally:
        os.close(fd)
        os.unlink(probe)


def _said(error: OSError) -> str:
    return "%s: %s" % (error.filename or "?", error.strerror or error)


def in_login_scope(root: str = "/") -> bool:
    """Whether logind manages this process as part of a login."""
    try:
        with open(os.path.join(root, "proc/self/cgroup"), encoding="utf-8", errors="replace") as file:
            parts = file.read().replace("\n", "/").split("/")
    except OSError:
        return False
    return any(part.startswith("session-") and part.endswith(".scope") for part in parts)


def goes_at_logout(directory: str, root: str = "/") -> bool:
    """Whether this is the directory that logind removes with the last login of a user who does not linger: a session that
    outlives the connection would lose its socket there."""
    if os.path.normpath(directory) != "/run/user/%d" % os.getuid():
        return False
    return not lingers(root)


def lingers(root: str = "/") -> bool:
    """Whether the system keeps what this user runs without a login. `root` is that of the file system, for tests."""
    directory = os.path.join(root, "var/lib/systemd/linger")
    try:
        names = os.listdir(directory)
    except OSError:
        return False
    if not names:
        return False
    import pwd

    try:
        return pwd.getpwuid(os.getuid()).pw_name in names
    except KeyError:
        return False


def runtime_directory(session: str) -> tuple[str, list[str]]:
    """A directory for sockets, and notes on the better ones that failed. Raises NoPlace."""
    notes: list[str] = []
    tops = []
    xdg = os.environ.get("XDG_RUNTIME_DIR") or ""
    if xdg.startswith("/") and not goes_at_logout(xdg):
        tops.append((xdg, "ccb"))
    tops.append(("/tmp", "ccb-%d" % os.getuid()))  # noqa: S108 - every step is checked to be ours
    home = home_directory()
    if home:
        tops.append((home, ".ccb-run"))
    for top, name in tops:
        path = os.path.join(top, name)
        if len(os.fsencode(os.path.join(path, session + ".sock"))) > MAX_SOCKET_PATH:
            notes.append("%s: too long for a socket" % path)
            continue
        try:
            if top == xdg and os.stat(top).st_uid != os.getuid():
                raise PermissionError(1, "belongs to another user", top)
            private_directory(path, top)
            _writable(path)
        except OSError as error:
            notes.append(_said(error))
            continue
        return path, notes
    raise NoPlace(notes)


def durable_directory(session: str) -> tuple[str, str]:
    """The state directory that `session` has on the disk, and the directory it is made in; "" without a home."""
    home = home_directory()
    top = os.environ.get("XDG_STATE_HOME") or ""
    if not top.startswith("/"):
        top = os.path.join(home, ".local", "state") if home else ""
    return (os.path.join(top, "ccb", "sessions", session), top) if top else ("", "")


def state_exists(session: str) -> bool:
    """Whether there is a session of that very id on the disk."""
    path, _ = durable_directory(session)
    return bool(path) and "/" not in session and os.path.exists(os.path.join(path, "journal.jsonl"))


def find_places(session: str, state: str = "") -> Places:
    """Directories for `session`, made when missing; `state` is the state directory of one that exists. Raises NoPlace."""
    runtime, notes = runtime_directory(session)
    path, top = durable_directory(session)
    volatile = os.path.join(runtime, "sessions", session)
    if path and state in ("", path):
        try:
            private_directory(path, top)
            _writable(path)
            return Places(path, runtime, session, True, notes)
        except OSError as error:
            notes.append(_said(error))
    elif not path:
        notes.append("there is no home directory")
    try:
        private_directory(volatile, runtime)
        _writable(volatile)
    except OSError as error:
        raise NoPlace([*notes, _said(error)]) from None
    notes.append("the session is kept in %s, which may not outlive a restart of the host" % volatile)
    return Places(volatile, runtime, session, False, notes)
