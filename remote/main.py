"""Find or start a session's daemon, then bridge the channel to it. Imports only what every connection needs."""

from __future__ import annotations

import errno
import json
import os
import select
import socket
import time

from .session_store import session_paths, sockets
from .session_store.locks import in_use, lock_file, wake_owner
from .session_store.refusal import HostRefusal, bug_refusal, unusable
from .session_store.session_paths import resolve_directory

TYPE_CHECKING = False

if TYPE_CHECKING:
    from typing import NoReturn

    from .session_store.session_registry import SessionEntry

_CHUNK = 256 * 1024
_MAX_HELD = 1024 * 1024  # bytes held for a reader that is slower than its writer
_LAST_BYTES_S = 5.0  # seconds that one end gets to read the last bytes of the other, closed end


class _Flow:
    """One direction: read from `source` while there is room, write to `sink` while there is something to write."""

    def __init__(self, source: int, sink: int) -> None:
        self.source, self.sink = source, sink
        self.held = bytearray()
        self.ended = False  # the source is at its end
        self.gone = False  # the sink is closed

    @property
    def finished(self) -> bool:
        """Whether all bytes of the source have reached the sink, or cannot reach it any more."""
        return self.ended and not self.held

    @property
    def broken(self) -> bool:
        return self.ended or self.gone

    def wait_in(self, poller: select.poll) -> None:
        if not self.broken and len(self.held) < _MAX_HELD:
            poller.register(self.source, select.POLLIN)
        if self.held:
            poller.register(self.sink, select.POLLOUT)

    def step(self) -> bool:
        """Read and write what can be at once. Return whether anything has moved."""
        before, written = len(self.held), 0
        if not self.broken and before < _MAX_HELD:
            try:
                data = os.read(self.source, _CHUNK)
                self.ended = not data
                self.held += data
            except BlockingIOError:
                pass
            except OSError:
                self.ended = True
        read = len(self.held) - before
        if self.held:
            try:
                with memoryview(self.held) as held:
                    written = os.write(self.sink, held[:_CHUNK])
                del self.held[:written]
            except BlockingIOError:
                pass
            except OSError:
                self.gone = True
                self.held.clear()
        return bool(read or written)


def run(channel_in: int, channel_out: int, daemon: socket.socket) -> None:
    """Relay until one end has closed and the other has read the last bytes, or has stopped reading."""
    for each in (channel_in, channel_out, daemon.fileno()):
        os.set_blocking(each, False)
    inward, outward = _Flow(channel_in, os.dup(daemon.fileno())), _Flow(daemon.fileno(), channel_out)
    give_up: float | None = None
    while not (inward.finished or outward.finished or (inward.gone and outward.gone)):
        poller, timeout_ms = select.poll(), None
        if inward.broken or outward.broken:
            now, timeout_ms = time.monotonic(), 100
            give_up = give_up or now + _LAST_BYTES_S
            if now > give_up:
                return
        else:
            poller.register(channel_out, 0)  # a closed channel shows as an error on its output
        inward.wait_in(poller)
        outward.wait_in(poller)
        if dict(poller.poll(timeout_ms)).get(channel_out, 0) & (select.POLLERR | select.POLLHUP | select.POLLNVAL):
            outward.gone = True
            outward.held.clear()
        moved = inward.step(), outward.step()
        if any(moved):
            give_up = None


Params = dict[str, object]

_ANSWER_DEADLINE_S = 20.0  # seconds for a daemon to send hello
_END_S = 12.0  # the last of these, in which a daemon without a socket is asked to leave instead of to listen again
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EFBIG)
_FORBIDDEN = (errno.EACCES, errno.EPERM)


def start(params: Params, bundle: str, storage: str) -> int:
    """Serve one connection on file descriptors 0 and 1. Return the exit code of the channel.

    `bundle` is the hash of the worker bundle, `storage` says where it is: `disk` or `memory`. `params` are the start
    parameters:

    - `session`: the UUID; for an existing session, a unique prefix is enough.
    - `cwd`: absolute, `~…`, relative to the home directory, or "" for the home directory.
    - `named`: the person has chosen `cwd`; a session that exists goes on there, wherever it was.
    - `shell`: see `DaemonLaunch`.
    - `create`: start a new session when there is none of that id. With `fresh`, refuse one that exists.
    - `continue`: take the most recently used session of `cwd`.
    - `fork_of` (an id), or `fork` with `continue`: make `session` a copy of that one. Without `fresh`, an earlier
      connection may have made the copy.
    - `again`: the client reconnects by itself after a lost connection; a session that was stopped is not started for
      it.
    - `take_over`: the boot id of a node of a shared home that a person has said to be gone; its session goes on here.
    - `in_memory`: the session was in memory when the client last saw it.
    - `worktree`: a new session works in a git worktree of this name, of the repository that holds `cwd`.
    - `grace_s`, `idle_s`: the limits of a new daemon, in seconds.
    - `job`: `keeps`: this process is the job of a site's engine, and becomes the daemon, which waits for its first
      prompt as long as the job lasts. `leads`: a job has the daemon or will soon have it, so start none.
    - `notes`: the stub's notes for the person.
    - `bundle_path`: where the stub found or wrote the bundle, "" if nowhere.
    - `no_copy`: why the stub has compiled the worker from the bundle, "" if it has used the compiled copy beside it.
    - `command`: run a host command instead of a session; see `host_commands`.
    - `more`: the SHA-256 and the size of the second bundle, which has the host commands.
    """
    users_umask = os.umask(0o077)
    if "command" in params:
        from .host_commands.host_command import run_command

        return run_command({**params, "umask": users_umask}, bundle)
    try:
        deadline = time.monotonic() + _ANSWER_DEADLINE_S
        daemon = _find_or_start(_Start(params, bundle, storage, users_umask, deadline))
    except Exception as error:  # noqa: BLE001 - the person would be shown the traceback
        refusal = _refusal_of(error)
        frame = {"t": "refused", "code": refusal.code, "message": refusal.message, "data": refusal.data}
        os.write(1, json.dumps(frame).encode() + b"\n")
        return 1
    run(0, 1, daemon)
    return 0


class _Start:
    """The circumstances of one start. (Not a dataclass: importing `dataclasses` would delay hello.)"""

    def __init__(self, params: Params, bundle: str, storage: str, users_umask: int, deadline: float) -> None:
        self.params, self.bundle, self.storage, self.users_umask = params, bundle, storage, users_umask
        self.deadline = deadline  # monotonic, for the daemon's hello


def _refusal_of(error: Exception) -> HostRefusal:
    what = "the session cannot be started on the host"
    if isinstance(error, HostRefusal):
        return error
    if not isinstance(error, OSError):
        return bug_refusal(what, error)
    evidence = "%s: %s" % (error.filename, error.strerror) if error.filename else str(error)
    if error.filename and error.errno in _FORBIDDEN:
        return unusable(what, error)
    text = "%s: %s" % (what, evidence)
    if error.errno in _FULL:
        return HostRefusal("no_storage", text, {"tried": [evidence]})
    return HostRefusal("no_processes" if error.errno == errno.EAGAIN else "internal", text, {})


def _find_or_start(start: _Start) -> socket.socket:
    """Return a connection to the session's daemon. Start the daemon when none is alive. Raise HostRefusal, OSError."""
    directory, directory_notes = _directory_without_home(start.params)
    params = {**start.params, "cwd": directory}
    if is_fork(params):  # a copy is on the disk; a session in memory with the same id is a different one
        _in_memory({"fresh": True}, str(params.get("session") or ""), start.deadline)
    by_id = not (params.get("continue") or is_fork(params))
    named = str(params.get("session") or "") if by_id else ""
    daemon = _in_memory(params, named, start.deadline) if named else None
    if daemon is not None:
        return daemon
    session = named
    try:
        session, state, params = chosen_session(params)
        daemon = _in_memory(params, session, start.deadline) if session != named else None
        if daemon is not None:
            return daemon
        notes = [*_notes_of_the_bundle(params, start.storage), *directory_notes]
        start.params = {**params, "notes": notes}
        return _connect_or_start(start, session_paths.find_paths(session, state))
    except session_paths.NoPlace as error:
        raise HostRefusal("no_storage", "no directory on the host is writable", {"tried": error.notes}) from None
    except sockets.Stranger as stranger:
        text = "%s listens where the session %s would" % (stranger, session)
        raise HostRefusal("in_use", text, {}) from None


def chosen_session(params: Params) -> tuple[str, str, Params]:
    """Return the id of the session, its known state directory and how to start it. A copy is made here."""
    session = str(params.get("session") or "")
    latest, forking = bool(params.get("continue")), is_fork(params)
    if not latest:
        _check_id(session)
    if not (latest or forking):
        is_whole = len(session) == 36 and session_paths.state_exists(session)
        if params.get("create", True) or is_whole:
            return session, "", params
    if latest:
        from .session_store import session_registry

        path = os.path.realpath(resolve_directory(str(params.get("cwd") or "~")))
        last_used = session_registry.latest_of(path)
        if last_used is None:
            raise HostRefusal("no_session", "there is no session of %s to go on with" % path, {})
        entry = last_used
        params = {**params, "named": params.get("named") or not entry.works_in(path)}
    else:
        entry = _found(str(params.get("fork_of") or session), params)
    if not forking:
        return entry.session, entry.directory, {**params, "create": False}
    return session, "", _copied(entry, session, params)


def is_fork(params: Params) -> bool:
    return bool(params.get("fork") or params.get("fork_of"))


def _check_id(session: str) -> None:
    if not session_paths.is_session_id(session):
        raise HostRefusal("internal", "%r is no session id" % session[:80], {})


def _found(wanted: str, params: Params) -> SessionEntry:
    from .session_store import session_registry

    try:
        return session_registry.the_one(wanted, session_registry.sessions())
    except HostRefusal as refusal:
        if refusal.data["near"] or not params.get("in_memory"):
            raise
    import asyncio

    from .system.process import stop_marked

    asyncio.run(stop_marked(wanted))  # a session on the disk does that when it is resumed
    text = "the session %s was in memory only on this host, and its worker has ended" % wanted[:64]
    raise HostRefusal("no_session", text, {"near": []})


def _copied(entry: SessionEntry, session: str, params: Params) -> Params:
    """Copy a session under a new id. Return how the copy is started."""
    from .session_store.fork import fork, unused_copy_of

    if not entry.directory:
        text = "the session %s is in memory only on the host and cannot be copied" % entry.session
        raise HostRefusal("no_storage", text, {})
    _check_id(session)
    if session_paths.state_exists(session) or not fork(entry, session):
        # An earlier connection, now lost, may have made the copy, which may be the latest session of its directory now.
        source = "" if params.get("fresh") else unused_copy_of(session)
        if not source or entry.session not in (source, session):
            raise in_use(session)
    cwd, named = params.get("cwd") or entry.cwd, bool(params.get("named"))
    last = str(entry.summary.get("directory") or "")
    if not named and os.path.isdir(last):  # the journal of a copy begins with the first one
        cwd, named = last, True
    return {**params, "create": False, "fresh": False, "cwd": cwd, "named": named}


def _directory_without_home(params: Params) -> tuple[str, list[str]]:
    """Return the directory to work in, and notes. With none named and no home, it is that of the login."""
    named, home = str(params.get("cwd") or ""), session_paths.home_directory()
    if named or not (params.get("create", True) or params.get("continue")):
        return named, []
    try:
        if home:
            resolve_directory(home)
            return "", []
        why = "there is no home directory"
    except HostRefusal as refusal:
        why = refusal.message
    try:
        here = resolve_directory(os.getcwd())
    except (OSError, HostRefusal):  # the directory belongs to another user, as with sudo, or is gone
        here = "/"
    return here, ["%s, and no directory was named: the session is in %s" % (why, here)]


def _notes_of_the_bundle(params: Params, storage: str) -> list[str]:
    notes, path = params.get("notes"), str(params.get("bundle_path") or "")
    texts = [str(each) for each in notes] if isinstance(notes, list) else []
    if storage == "memory":
        return [*texts, "the worker's program is in memory only, and is sent again with every connection"]
    return [*texts, "the worker's program is in %s" % os.path.dirname(path)] if texts else []


def _in_memory(params: Params, session: str, deadline: float) -> socket.socket | None:
    """Return a connection to the daemon of a session in memory, None for no daemon of this user there."""
    address = sockets.memory_address(session)
    try:
        daemon = sockets.connect(address, deadline) if address else None
    except sockets.Stranger:
        return None
    if daemon is not None and params.get("fresh"):
        daemon.close()
        raise in_use(session)
    return daemon


def _end_elsewhere(params: Params, where: session_paths.SessionPaths) -> None:
    """End the daemon of a session that is continued in another directory than before."""
    if where.state and params.get("cwd") and not (params.get("create", True) or params.get("again")):
        from .daemon.daemon_start import end_where_it_was

        end_where_it_was(params, where.state)


def _refuse_used(params: Params, where: session_paths.SessionPaths, deadline: float) -> NoReturn:
    """Refuse a new session whose id has a daemon already."""
    if not where.lock:
        sockets.connect(where.socket, deadline)  # raises Stranger when another user listens there
    raise in_use(str(params["session"]))


def _daemon_of_job(where: session_paths.SessionPaths, deadline: float, log: dict[str, object]) -> socket.socket:
    """Return a connection to the daemon that the job of the session keeps; it may just start."""
    while time.monotonic() < deadline:
        daemon = sockets.connect(where.socket, deadline)
        if daemon is not None:
            return daemon
        time.sleep(0.05)
    raise HostRefusal("internal", "the job of the session has no worker", log)


def _connect_or_start(start: _Start, where: session_paths.SessionPaths) -> socket.socket:
    """Return a connection to the daemon at these paths. The process that gets the session's lock starts it."""
    params = start.params
    log: dict[str, object] = {"log": where.file("daemon.log")} if where.state else {}
    if params.get("job") == "leads":
        return _daemon_of_job(where, start.deadline, log)
    keeps = params.get("job") == "keeps"
    _end_elsewhere(params, where)
    signals_sent: set[int] = set()
    while True:
        lock = lock_file(where.lock) if where.lock else sockets.claim(where.socket)
        owner: dict[str, object] | None = None
        if lock is not None:
            from .daemon.daemon_start import start_daemon

            owner = start_daemon(params, start.bundle, where, lock, start.users_umask)
        elif params.get("fresh"):
            _refuse_used(params, where, start.deadline)
        address = where.socket if owner is None else str(owner.get("socket") or "")
        daemon = None if keeps else sockets.connect(address, start.deadline)  # an earlier run of the job still ends
        if daemon is not None:
            return daemon
        if lock is not None and owner is None:
            raise HostRefusal("internal", "the session's daemon ended before it said hello", log)
        if owner is not None:
            wake_owner(owner, signals_sent, end=time.monotonic() > start.deadline - _END_S)
        if time.monotonic() > start.deadline:
            raise HostRefusal("internal", "the session's daemon does not answer", log)
        time.sleep(0.02)  # the owner of the lock is about to listen or to end; when it ends, this process gets the lock
