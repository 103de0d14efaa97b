"""The directories of a session. Imported before hello, so it imports next to nothing."""

from __future__ import annotations

import os
import stat

from . import sockets
from .refusal import HostRefusal

_MAX_NAMES = 5000  # entries of a directory to search for a name like the missing one
_MAX_NEAR = 5


def resolve_directory(path: str) -> str:
    """Return the absolute directory for `path`. Raise HostRefusal, with similar names, for none."""
    full = absolute_path(path)
    try:
        with os.scandir(full):
            os.stat(os.path.join(full, "."))  # fails where this user may not enter
    except NotADirectoryError:
        if os.path.exists(full):
            raise HostRefusal("not_a_directory", "%s is not a directory" % full, {"path": full}) from None
        raise _missing(full) from None
    except FileNotFoundError:
        raise _missing(full) from None
    except OSError as error:
        data: dict[str, object] = {"path": full, "reason": error.strerror or str(error)}
        raise HostRefusal("no_such_path", "%s cannot be used: %s" % (full, error.strerror), data) from None
    return full


def absolute_path(path: str) -> str:
    home = home_directory()
    if path == "~" or path.startswith("~/"):
        full = home + path[1:]
    elif path.startswith("~"):
        full = os.path.expanduser(path)
    else:
        full = os.path.join(home or "/", path)
    return os.path.normpath(full or "/")


def _missing(full: str) -> HostRefusal:
    """Return the refusal for a missing directory, with the nearest parent that exists, and similar names there."""
    import difflib

    parent, wanted = os.path.split(full)
    while parent != "/" and not os.path.isdir(parent):
        parent, wanted = os.path.split(parent)
    try:
        names = sorted(name for name in os.listdir(parent) if os.path.isdir(os.path.join(parent, name)))[:_MAX_NAMES]
    except OSError:
        names = []
    by_case = {name.lower(): name for name in names}
    close = difflib.get_close_matches(wanted.lower(), list(by_case), n=_MAX_NEAR, cutoff=0.5)
    near = [os.path.join(parent, by_case[name]) for name in close]
    return HostRefusal("no_such_path", "%s does not exist" % full, {"path": full, "parent": parent, "near": near})


MAX_SOCKET_PATH = 100  # bytes. sun_path holds 108 on Linux, 104 on other systems
_STATE_ROOM = 8192  # bytes that must be free: what the first turn writes
_RUNTIME_ROOM = 512  # bytes of a lock file
MADE = ".made"  # file with the parents that were created for a directory of ccb; deploy/stub.py writes it, too
PLAN = "plan.md"  # file in a session's directory that holds its plan
STOPPED = "stopped"  # file that `ccb stop` leaves: only a person starts such a session again, which removes it
MOVED = "moved"  # file that names the machine to which the session has moved: no worker goes on with it here


class NoPlace(Exception):
    """No directory is writable. `notes` lists the directories that were tried, and why each failed."""

    def __init__(self, notes: list[str]) -> None:
        super().__init__("; ".join(notes))
        self.notes = notes


class SessionPaths:
    """`state` is the session's own directory, `runtime` that of all sockets and locks of this user; both are "" for a
    session in memory. `notes` say which better ones failed. `durable` is False when the state is in `runtime` or in
    memory. `lock` is "" where the socket is the lock."""

    def __init__(self, state: str, runtime: str, session: str, durable: bool, notes: list[str]) -> None:
        self.state, self.runtime, self.durable, self.notes = state, runtime, durable, notes
        self.socket = os.path.join(runtime, session + ".sock") if runtime else sockets.memory_address(session)
        self.lock = os.path.join(runtime, session + ".lock") if runtime else ""

    @property
    def storage(self) -> str:
        return "disk" if self.durable else "volatile" if self.state else "memory"

    def file(self, name: str) -> str:
        return os.path.join(self.state, name) if self.state else ""


_VOLATILE = "the session is kept in %s, which may not outlive a restart of the host"
MEMORY_NOTE = (
    "no file can be made on this host, so the session is kept in memory only: it survives a lost connection, but not"
    " the end of its worker (a restart of the host, a kill, the end of a headless run); long outputs are not kept whole"
)


def memory_paths(session: str, notes: list[str]) -> SessionPaths:
    """Return the paths of a session in memory. Raise NoPlace where the system has no sockets without files."""
    if not sockets.memory_address(session):
        raise NoPlace(notes)
    return SessionPaths("", "", session, False, [*notes, MEMORY_NOTE])


def is_session_id(text: str) -> bool:
    """Return whether a text can be a session id: ids are parts of file names."""
    return 0 < len(text) <= 64 and not text.startswith(".") and "/" not in text and "\0" not in text


def home_directory() -> str:
    """Return the home directory of this user; "" when there is none."""
    home = os.environ.get("HOME") or os.path.expanduser("~")
    return home if home.startswith("/") else ""


def private_directory(path: str, top: str, made: list[str] | None = None) -> str:
    """Create `path` below `top` (0700); `made` gets what was. Raise OSError where it is another user's."""
    made = [] if made is None else made
    missing, step = [], top
    while not os.path.isdir(step):
        missing.append(step)
        step = os.path.dirname(step)
    if missing:
        made += reversed(missing)
        os.makedirs(top, 0o700, exist_ok=True)
    step = top
    for name in os.path.relpath(path, top).split(os.sep):
        step = os.path.join(step, name)
        try:
            os.mkdir(step, 0o700)
            made.append(step)
        except FileExistsError:
            pass
        if missing:  # `ccb clean` removes these parents again
            try:
                fd = os.open(os.path.join(step, MADE), os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
                os.write(fd, "\n".join(missing).encode("utf-8", "replace"))
                os.close(fd)
            except OSError:
                pass
            missing = []
        info = os.lstat(step)
        if not stat.S_ISDIR(info.st_mode):
            raise NotADirectoryError(20, "is not a directory", step)
        if info.st_uid != os.getuid():
            raise PermissionError(1, "belongs to another user", step)
        if stat.S_IMODE(info.st_mode) & 0o077:
            os.chmod(step, 0o700)
    return path


def try_to_write(directory: str, size: int) -> None:
    """Write a file of `size` bytes, and remove it: only that shows a full disk. Raise OSError."""
    probe = os.path.join(directory, ".probe-" + os.urandom(8).hex())  # on a shared home, other hosts have the same pids
    fd = os.open(probe, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    try:
        if os.write(fd, b"x" * size) < size:
            os.write(fd, b"x" * size)  # the second write raises the reason
    finally:
        os.unlink(probe)
        os.close(fd)


def _is_usable(path: str, top: str, room: int, notes: list[str]) -> bool:
    """Make the directory and write `room` bytes. If it fails, undo it and say why."""
    made: list[str] = []
    try:
        private_directory(path, top, made)
        try_to_write(path, room)
    except OSError as error:
        notes.append(_said(error, path))
        for each in reversed(made):
            for remove, name in ((os.unlink, os.path.join(each, MADE)), (os.rmdir, each)):
                try:
                    remove(name)
                except OSError:
                    pass
        return False
    return True


def _said(error: OSError, path: str) -> str:
    return "%s: %s" % (error.filename or path, error.strerror or error)


def in_login_scope(root: str = "/") -> bool:
    try:
        with open(os.path.join(root, "proc/self/cgroup"), encoding="utf-8", errors="replace") as file:
            parts = file.read().replace("\n", "/").split("/")
    except OSError:
        return False
    return any(part.startswith("session-") and part.endswith(".scope") for part in parts)


def goes_at_logout(directory: str, root: str = "/") -> bool:
    """Return whether logind removes this directory, and a session's socket in it, at the user's last logout."""
    return os.path.normpath(directory) == "/run/user/%d" % os.getuid() and not lingers(root)


def lingers(root: str = "/") -> bool:
    """Return whether logind keeps this user's service manager running without a login. Tests set `root`."""
    try:
        names = os.listdir(os.path.join(root, "var/lib/systemd/linger"))
    except OSError:
        return False
    return bool(names) and user_name() in names


def user_name() -> str:
    import pwd

    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return ""


def runtime_directory(session: str) -> tuple[str, list[str]]:
    """Return the directory for sockets, and notes on those that are not used. Raise NoPlace."""
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
        elif top == xdg and not (os.path.isdir(top) and os.stat(top).st_uid == os.getuid()):
            notes.append("%s: is no directory of this user" % top)
        elif _is_usable(path, top, _RUNTIME_ROOM, notes):
            return path, notes
    raise NoPlace(notes)


def durable_directory(session: str) -> tuple[str, str]:
    """Return the state directory on the disk, and the one to create it below; ("", "") without a home."""
    home = home_directory()
    top = os.environ.get("XDG_STATE_HOME") or ""
    if not top.startswith("/"):
        top = os.path.join(home, ".local", "state") if home else ""
    return (os.path.join(top, "ccb", "sessions", session), top) if top else ("", "")


def state_exists(session: str) -> bool:
    path, _ = durable_directory(session)
    try:
        return bool(path) and "/" not in session and os.path.getsize(os.path.join(path, "journal.jsonl")) > 0
    except OSError:
        return False


def find_paths(session: str, state: str = "") -> SessionPaths:
    """Return the paths of `session`; make what is missing. `state` is that of one that exists. Raise NoPlace."""
    path, top = durable_directory(session)
    if state and state != path:
        runtime = os.path.dirname(os.path.dirname(state))
        _must_be_ours(state, os.path.dirname(runtime))
        return SessionPaths(state, runtime, session, False, [_VOLATILE % state])
    try:
        runtime, notes = runtime_directory(session)
    except NoPlace as error:
        runtime, notes = "", error.notes
    exists = state or state_exists(session)
    if exists:
        _must_be_ours(path, top)
    if not path:
        notes.append("there is no home directory")
    elif exists or _is_usable(path, top, _STATE_ROOM, notes):
        where = SessionPaths(path, runtime, session, True, notes)
        if not where.socket:
            raise NoPlace(notes)
        return where
    volatile = os.path.join(runtime, "sessions", session)
    if runtime and _is_usable(volatile, runtime, _STATE_ROOM, notes):
        return SessionPaths(volatile, runtime, session, False, [*notes, _VOLATILE % volatile])
    return memory_paths(session, notes)


def _must_be_ours(directory: str, top: str) -> None:
    try:
        private_directory(directory, top)
    except OSError as error:
        raise NoPlace([_said(error, directory)]) from None
