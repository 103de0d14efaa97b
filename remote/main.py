"""Where the stub hands over: find the session's daemon, start it when none is alive, then be the bridge to it.

Everything before the daemon's hello runs on a bare interpreter and is compiled from the bundle, so this module imports
only what every connection needs: what starts a daemon, and the bridge, come when they are needed.
"""

from __future__ import annotations

import errno
import json
import os
import socket
import sys
import time

from .sessions import paths, sockets
from .sessions.directory import resolve_directory
from .sessions.ownership import in_use, lock_file, wake_owner
from .sessions.refusal import HostRefusal, unusable
from .sessions.selection import chosen_session, is_fork

Params = dict[str, object]

_ANSWER_DEADLINE_S = 20.0  # for a daemon to say hello
_END_S = (
    12.0  # the last part of these, in which a daemon that has lost its socket is asked to leave, not to listen again
)
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EFBIG)
_FORBIDDEN = (errno.EACCES, errno.EPERM)


def start(params: Params, bundle: str, storage: str) -> int:
    """Serve one connection on file descriptors 0 and 1. Return the exit code of the channel.

    `bundle` is the hash of the worker bundle, `storage` says where it is: `disk` or `memory`. `params` are the start
    parameters:

    - `session`: the UUID; for a session that exists, the start of it is enough.
    - `cwd`: absolute, `~…`, relative to the home directory, or "" for the home directory.
    - `create`: start a new session when there is none of that id. With `fresh`, refuse one that exists.
    - `continue`: take the session of `cwd` that was used last.
    - `fork_of` (an id), or `fork` with `continue`: make `session` a copy of that one. Without `fresh`, an earlier
      connection may have made the copy.
    - `again`: a client comes back by itself after a lost connection; this does not start a session that was stopped.
    - `in_memory`: the session was in memory when the client saw it last.
    - `grace_s`, `idle_s`: the limits of a new daemon, in seconds.
    - `notes`: what the stub has to tell the person.
    - `command`: there is no session, but a host command; see `host_commands`.
    """
    users_umask = os.umask(0o077)
    if "command" in params:
        from .host_commands.commands import run_command

        return run_command(params, bundle)
    try:
        try:
            deadline = time.monotonic() + _ANSWER_DEADLINE_S
            daemon = _find_or_start(_Start(params, bundle, storage, users_umask, deadline))
        except OSError as error:
            raise _start_failed(error) from error
    except HostRefusal as refusal:
        frame = {"t": "refused", "code": refusal.code, "message": refusal.message, "data": refusal.data}
        os.write(1, json.dumps(frame).encode() + b"\n")
        return 1
    from .daemon import bridge

    bridge.run(0, 1, daemon)
    return 0


class _Start:
    """The circumstances of one start. (Not a dataclass: importing `dataclasses` would delay hello.)"""

    def __init__(self, params: Params, bundle: str, storage: str, users_umask: int, deadline: float) -> None:
        self.params = params
        self.bundle = bundle
        self.storage = storage
        self.users_umask = users_umask
        self.deadline = deadline  # monotonic, for the daemon's hello

    def with_params(self, params: Params) -> _Start:
        return _Start(params, self.bundle, self.storage, self.users_umask, self.deadline)


def _start_failed(error: OSError) -> HostRefusal:
    """Return the refusal for a start that the system did not allow."""
    what = "the session cannot be started on the host"
    evidence = "%s: %s" % (error.filename, error.strerror) if error.filename else str(error)
    if error.filename and error.errno in _FORBIDDEN:
        return unusable(what, error)
    text = "%s: %s" % (what, evidence)
    if error.errno in _FULL:
        return HostRefusal("no_storage", text, {"tried": [evidence]})
    return HostRefusal("no_processes" if error.errno == errno.EAGAIN else "internal", text, {})


def _find_or_start(start: _Start) -> socket.socket:
    """Return a connection to the session's daemon, which is started when none is alive. Raise HostRefusal, OSError."""
    directory, directory_notes = _directory_without_home(start.params)
    params = {**start.params, "cwd": directory}
    if is_fork(params):  # a copy is on the disk; a session that lives in memory under its id is another one
        _in_memory({"fresh": True}, str(params.get("session") or ""), start.deadline)
    by_id = not (params.get("continue") or is_fork(params))
    named = str(params.get("session") or "") if by_id else ""
    daemon = _in_memory(params, named, start.deadline) if named else None
    if daemon is not None:
        return daemon
    session, state, params = chosen_session(params)
    try:
        daemon = _in_memory(params, session, start.deadline) if session != named else None
        if daemon is not None:
            return daemon
        notes = [*_notes_of_the_bundle(params.get("notes"), start.storage), *directory_notes]
        return _on_usable_disk(start.with_params({**params, "notes": notes}), session, state)
    except paths.NoPlace as error:
        raise HostRefusal("no_storage", "no directory on the host is writable", {"tried": error.notes}) from None
    except sockets.Stranger as stranger:
        text = "%s listens where the session %s would" % (stranger, session)
        raise HostRefusal("in_use", text, {}) from None


def _directory_without_home(params: Params) -> tuple[str, list[str]]:
    """Return the directory to work in, and notes for the person. When none was named and there is no home directory,
    it is the one that the login started in."""
    named, home = str(params.get("cwd") or ""), paths.home_directory()
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
    except (OSError, HostRefusal):  # it belongs to another user, as with sudo, or it is gone
        here = "/"
    return here, ["%s, and no directory was named: the session is in %s" % (why, here)]


def _notes_of_the_bundle(notes: object, storage: str) -> list[str]:
    """Return the stub's notes with the place where the bundle is, when a better place could not be used."""
    texts = [str(each) for each in notes] if isinstance(notes, list) else []
    if storage == "memory":
        return [*texts, "the worker's program is in memory only, and is sent again with every connection"]
    return [*texts, "the worker's program is in %s" % os.path.dirname(sys.path[0])] if texts else []


def _in_memory(params: Params, session: str, deadline: float) -> socket.socket | None:
    """Return a connection to the daemon of a session that is in memory only, None when there is none. Another user's
    process at that address does not count: the session may have a directory instead."""
    address = sockets.memory_address(session)
    try:
        daemon = sockets.connect(address, deadline) if address else None
    except sockets.Stranger:
        return None
    if daemon is not None and params.get("fresh"):
        daemon.close()
        raise in_use(session)
    return daemon


def _on_usable_disk(start: _Start, session: str, state: str) -> socket.socket:
    """Return a connection to the daemon in the best directories. When one of them fills up meanwhile, try the next
    best."""
    full: dict[str, str] = {}
    while True:
        where = paths.find_paths(session, state, full)
        try:
            return _connect_or_start(start, where)
        except OSError as error:
            place = paths.directory_of_failure(where, error)
            if error.errno not in _FULL or not place or place in full or paths.state_exists(session):
                raise
            full[place] = "%s: %s" % (error.filename or place, error.strerror)


def _connect_or_start(start: _Start, where: paths.SessionPaths) -> socket.socket:
    """Return a connection to the daemon at these paths. Whoever gets the session's lock starts the daemon; the
    others connect."""
    log: dict[str, object] = {"log": where.file("daemon.log")} if where.state else {}
    signals_sent: set[int] = set()
    while True:
        lock = lock_file(where.lock) if where.lock else sockets.claim(where.socket)
        owner: dict[str, object] | None = None
        if lock is not None:
            from .daemon.start import start_daemon

            owner = start_daemon(start.params, start.bundle, where, lock, start.users_umask)
        elif start.params.get("fresh"):
            if not where.lock:
                sockets.connect(where.socket, start.deadline)  # raises Stranger when another user listens there
            raise in_use(str(start.params["session"]))
        address = where.socket if owner is None else str(owner.get("socket") or "")
        daemon = sockets.connect(address, start.deadline)
        if daemon is not None:
            return daemon
        if lock is not None and owner is None:
            raise HostRefusal("internal", "the session's daemon ended before it said hello", log)
        if owner is not None:
            wake_owner(owner, signals_sent, end=time.monotonic() > start.deadline - _END_S)
        if time.monotonic() > start.deadline:
            raise HostRefusal("internal", "the session's daemon does not answer", log)
        time.sleep(0.02)  # the owner of the lock is about to listen, or to end; after its end we get the lock
