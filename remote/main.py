"""Where the stub hands over: find or start the session's daemon, then be its bridge.

Everything up to the daemon's hello runs on a bare interpreter, so this module imports only what that takes.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import signal
import socket
import sys
import time

from .daemon import bridge
from .daemon.hello import send_hello
from .sessions import identity, paths, sockets
from .sessions.directory import resolve_directory
from .sessions.refusal import Refusal, unusable
from .sessions.selection import check_host, check_owner, chosen_session, in_use, owner_of

_ANSWER_DEADLINE_S = 20.0
_FIRST_CLIENT_S = 60.0
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EFBIG)
_FORBIDDEN = (errno.EACCES, errno.EPERM)
_LOCK_BYTES = 512


def start(params: dict[str, object], bundle: str, storage: str) -> int:
    """Serve one connection on fd 0 and 1; the exit code of the channel.

    `params`: `session` (UUID; of a session that exists also the start of one), `cwd` (absolute, `~…`, relative to home, or ""
    for home), `create`, and optionally `fresh` (refuse a session that exists), `grace_s`, `idle_s`, `notes` (of the stub).
    `again`: a client that was there before comes back by itself, which starts no session that was stopped.
    `continue` takes the session of `cwd` that was used last. `fork_of` (an id), or `fork` with `continue`, makes
    `session` a copy of that one; without `fresh` it may have been made. `in_memory`: the session was when it was last seen. With
    `command` there is no session: see `host_commands`. `storage` is `disk` or `memory`: where the bundle is.
    """
    users_umask = os.umask(0o077)
    if "command" in params:
        from .host_commands.commands import run_command

        return run_command(params, bundle)
    try:
        try:
            daemon = _find_or_start(params, bundle, storage, users_umask)
        except OSError as error:
            said = "%s: %s" % (error.filename, error.strerror) if error.filename else str(error)
            if error.filename and error.errno in _FORBIDDEN:
                raise unusable("the session cannot be started on the host", error) from error
            full = error.errno in _FULL
            code = "no_processes" if error.errno == errno.EAGAIN else "internal"
            raise Refusal(
                "no_storage" if full else code,
                "the session cannot be started on the host: %s" % said,
                {"tried": [said]} if full else {},
            ) from error
    except Refusal as refusal:
        frame = {"t": "refused", "code": refusal.code, "message": refusal.message, "data": refusal.data}
        os.write(1, json.dumps(frame).encode() + b"\n")
        return 1
    bridge.run(0, 1, daemon)
    return 0


def _find_or_start(params: dict[str, object], bundle: str, storage: str, users_umask: int) -> socket.socket:
    """A connection to the session's daemon, which is started when none is alive."""
    deadline = time.monotonic() + _ANSWER_DEADLINE_S
    directory, elsewhere = _without_home(params)
    params = {**params, "cwd": directory}
    forking = bool(params.get("fork") or params.get("fork_of"))
    if forking:  # a copy is on the disk: what lives in memory under its id is another session
        _in_memory({"fresh": True}, str(params.get("session") or ""), deadline)
    by_id = not (params.get("continue") or forking)
    named = str(params.get("session") or "") if by_id else ""
    daemon = _in_memory(params, named, deadline) if named else None
    if daemon is not None:
        return daemon
    session, state = chosen_session(params)
    try:
        daemon = _in_memory(params, session, deadline) if session != named else None
        if daemon is not None:
            return daemon
        notes = _notes_of_the_bundle(_texts(params.get("notes")), storage)
        params = {**params, "notes": [*notes, *elsewhere]}
        full: dict[str, str] = {}
        while True:
            where = paths.find_places(session, state, full)
            try:
                return _serve(params, bundle, where, users_umask, deadline)
            except OSError as error:  # it has filled up meanwhile
                place = paths.place_of(where, error)
                if error.errno not in _FULL or not place or place in full or paths.state_exists(session):
                    raise
                full[place] = "%s: %s" % (error.filename or place, error.strerror)
    except paths.NoPlace as error:
        raise Refusal("no_storage", "no directory on the host is writable", {"tried": error.notes}) from None
    except sockets.Stranger as stranger:
        text = "%s listens where the session %s would" % (stranger, session)
        raise Refusal("in_use", text, {}) from None


def _without_home(params: dict[str, object]) -> tuple[str, list[str]]:
    """The directory that is meant, and a note when it is the one in which the login put us: none was named, and home is none."""
    named, home = str(params.get("cwd") or ""), paths.home_directory()
    if named or not (params.get("create", True) or params.get("continue")):
        return named, []
    try:
        if home:
            resolve_directory(home)
            return "", []
        why = "there is no home directory"
    except Refusal as refusal:
        why = refusal.message
    try:
        here = resolve_directory(os.getcwd())
    except (OSError, Refusal):  # of somebody else, as with sudo, or gone
        here = "/"
    return here, ["%s, and no directory was named: the session is in %s" % (why, here)]


def _notes_of_the_bundle(notes: list[str], storage: str) -> list[str]:
    """With the place it is in, when a better one could not be used."""
    if storage == "memory":
        return [*notes, "the worker's program is in memory only, and is sent again with every connection"]
    return [*notes, "the worker's program is in %s" % os.path.dirname(sys.path[0])] if notes else notes


def _in_memory(params: dict[str, object], session: str, deadline: float) -> socket.socket | None:
    """A connection to the daemon of a session that is in no directory, if it is alive. A stranger there is in nobody's way who
    has a directory."""
    address = sockets.memory_address(session)
    try:
        daemon = sockets.connect(address, deadline) if address else None
    except sockets.Stranger:
        return None
    if daemon is not None and params.get("fresh"):
        daemon.close()
        raise in_use(session)
    return daemon


def _serve(
    params: dict[str, object], bundle: str, where: paths.SessionPaths, users_umask: int, deadline: float
) -> socket.socket:
    """The same, at these places."""
    log: dict[str, object] = {"log": where.file("daemon.log")} if where.state else {}
    asked: set[int] = set()
    while True:
        lock = _lock(where.lock) if where.lock else sockets.claim(where.socket)
        owner: dict[str, object] | None = None
        if lock is not None:
            try:
                paths.make_again(where)
                owner = _start(params, bundle, where, lock, users_umask)
            except BaseException:
                _remove_unused(where)
                _remove(where.lock)
                raise
            finally:
                os.close(lock)
        elif params.get("fresh"):
            if not where.lock:
                sockets.connect(where.socket, deadline)  # unless it is a stranger's
            raise in_use(str(params["session"]))
        address = where.socket if owner is None else str(owner.get("socket") or "")
        daemon = sockets.connect(address, deadline)
        if daemon is not None:
            return daemon
        if lock is not None and owner is None:
            raise Refusal("internal", "the session's daemon ended before it said hello", log)
        if owner is not None:
            _call(owner, asked, last=time.monotonic() > deadline - _ANSWER_DEADLINE_S * 0.6)
        if time.monotonic() > deadline:
            raise Refusal("internal", "the session's daemon does not answer", log)
        time.sleep(0.02)  # the holder of the lock is about to listen, or about to be gone; then it is our turn


def _start(
    params: dict[str, object], bundle: str, where: paths.SessionPaths, lock: int, users_umask: int
) -> dict[str, object] | None:
    """Start the daemon of a session that has none, if these parameters allow it; it takes over `lock`. The owner of the journal
    when there is one after all: a daemon whose lock was lost, or that was started with another runtime directory."""
    session = str(params["session"]) if params.get("create", True) else os.path.basename(where.state)
    journal = where.file("journal.jsonl")
    exists = os.path.exists(journal) and os.path.getsize(journal) > 0
    if exists and params.get("fresh"):
        raise in_use(session)
    if not exists and not params.get("create", True):
        raise Refusal("no_session", "there is no session %s on this host" % session, {})
    if exists:
        check_host(where.state)
    mark = where.file(paths.STOPPED)
    if params.get("again") and mark and os.path.exists(mark):
        raise Refusal("stopped", "the session was stopped with `ccb stop`", {})
    _remove(mark)  # somebody wants it again
    named = str(params.get("cwd") or "")
    cwd = resolve_directory(_directory_of(where.state, journal, named) if exists else named or "~")
    barrier, held = _own(journal) if journal else (-1, False)
    try:
        if held:
            owner = owner_of(where.state)
            check_owner(owner)
            return owner
        facts: dict[str, object] = {
            "bundle": bundle,
            "session": session,
            "cwd": cwd,
            "storage": where.storage,
            "notes": list(dict.fromkeys(_texts(params.get("notes")) + where.notes)),
        }
        log = os.open(where.file("daemon.log") or os.devnull, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        if where.lock:
            os.write(lock, b" " * _LOCK_BYTES)  # room for what the daemon says there
        with sockets.listen(where.socket, lock) as listener:
            try:
                if _fork():
                    os.umask(users_umask)  # what tools make belongs to the user; our own files name their modes
                    _daemon(listener, lock, barrier, log, where, facts, params)
            except OSError:
                _remove(where.socket)
                raise
        os.close(log)
    finally:
        if barrier >= 0:
            os.close(barrier)
    return None


def _own(journal: str) -> tuple[int, bool]:
    """Lock the journal itself: cleaners of /tmp may take the lock file from under a living daemon. The open file (-1: this
    file system has no locks), and whether somebody else holds it."""
    fd = os.open(journal, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
            return fd, True
        os.close(fd)
        return -1, False
    return fd, False


def _call(owner: dict[str, object], asked: set[int], *, last: bool) -> None:
    """Tell a daemon that holds the journal and cannot be reached to listen again (a logout may take the runtime directory from
    under it); one that does not is ended in the `last` part of the time. `asked` are the signals sent so far."""
    number = signal.SIGTERM if last else signal.SIGHUP
    pid = owner.get("pid")
    if number not in asked and isinstance(pid, int) and identity.is_alive(owner):
        asked.add(number)
        try:
            os.kill(pid, number)
        except OSError:
            pass


def _directory_of(state: str, journal: str, named: str) -> str:
    """Where the session has always worked, as its first record says; when that is damaged its summary, then any other record, and
    at last the directory that is `named`. A session moves to another directory only for who says so. Raises OSError, Refusal."""
    try:
        with open(journal, "rb") as file:
            cwd = json.loads(file.readline())["body"]["cwd"]
            if cwd and isinstance(cwd, str):
                return cwd
    except (ValueError, KeyError, TypeError, RecursionError):
        pass
    cwd = owner_of(state).get("cwd")
    if not cwd:
        from .sessions.registry import derived

        cwd = derived(journal).get("cwd") or named
    if not cwd or not isinstance(cwd, str):
        text = "the journal of the session is damaged, and nothing says any more in which directory it works"
        raise Refusal("not_a_directory", text, {})
    return cwd


def _lock(path: str) -> int | None:
    """The session's lock, held by this open file; None when a live daemon holds it."""
    while True:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(fd)
            if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
                return None
            raise
        try:
            if os.fstat(fd).st_ino == os.stat(path).st_ino:
                return fd
        except FileNotFoundError:
            pass
        os.close(fd)  # a daemon that was ending removed the file between open and lock


def _fork() -> bool:
    """Fork twice, so that the daemon is nobody's child; True in the daemon. The middle process is reaped here.

    Raises OSError when the host gives no more processes.
    """
    pid = os.fork()
    if pid:
        _, status = os.waitpid(pid, 0)
        if status:
            raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        return False
    try:
        os.setsid()
        if os.fork():
            os._exit(0)
    except OSError:
        os._exit(1)
    return True


def _daemon(
    listener: socket.socket,
    lock: int,
    barrier: int,
    log: int,
    where: paths.SessionPaths,
    facts: dict[str, object],
    params: dict[str, object],
) -> None:
    """The life of the daemon process. Never returns."""
    status = 1
    first: socket.socket | None = None
    try:
        if not where.lock:
            sockets.listen_as_this_process(listener)
        null = os.open(os.devnull, os.O_RDWR)
        os.dup2(null, 0)
        os.dup2(null, 1)
        os.dup2(log, 2)
        keep = {0, 1, 2, lock, barrier, listener.fileno()}
        for name in os.listdir("/proc/self/fd") if os.path.isdir("/proc/self/fd") else map(str, range(3, 256)):
            if int(name) not in keep:
                try:
                    os.close(int(name))
                except OSError:
                    pass
        _name_process()
        owner = {**identity.own_identity(), "bundle": facts["bundle"]}
        if where.lock:
            os.pwrite(lock, json.dumps(owner).encode().ljust(_LOCK_BYTES), 0)
        if not where.state:
            facts["summary"] = {**owner, "cwd": facts["cwd"]}
        for number in (signal.SIGTERM, signal.SIGINT):  # until the daemon has its own: the imports take their time
            signal.signal(number, _leave)
        grace_s = _seconds(params.get("grace_s"))
        if paths.in_login_scope():
            from .daemon.logout import bound_note, kills, move_out

            if kills() and not move_out(str(facts["session"])):
                facts["notes"] = [*_texts(facts["notes"]), bound_note(in_memory=not where.state)]
                grace_s = 0.0
        first = _greet_first(listener, facts, where)
        if first is None:
            status = 0
            return
        from .daemon.daemon import run_daemon

        status = run_daemon(listener, first, lock, where, facts, grace_s, _seconds(params.get("idle_s")))
    except SystemExit as end:
        status = int(str(end.code))
        if first is not None and status == 128 + signal.SIGINT:
            _say(first, {"t": "bye", "reason": "the session has ended"})
    except BaseException as error:  # noqa: BLE001 - the top of a process: into its log, then its files go
        import traceback

        traceback.print_exc()
        if first is not None:
            what = "the worker failed: %s: %s" % (type(error).__name__, error)
            _say(first, {"t": "refused", "code": "internal", "message": what, "data": {}})
    finally:
        _remove(where.socket)
        if status == 0:
            _remove_unused(where)
        _remove(where.lock)
        sys.stderr.flush()
        os._exit(status)


def _texts(value: object) -> list[str]:
    return [str(each) for each in value] if isinstance(value, list) else []


def _seconds(value: object) -> float | None:
    return float(value) if isinstance(value, (int, float)) else None


def _greet_first(listener: socket.socket, facts: dict[str, object], where: paths.SessionPaths) -> socket.socket | None:
    """The first client that takes its hello; None when nobody does."""
    listener.settimeout(_FIRST_CLIENT_S)
    while True:
        try:
            client, _ = listener.accept()
        except OSError:
            return None
        try:
            if not sockets.stranger(client, where.socket):
                send_hello(client, facts, where.state)
                return client
        except OSError:
            pass
        client.close()


def _leave(number: int, frame: object) -> None:
    sys.exit(128 + number)


def _say(client: socket.socket, frame: dict[str, object]) -> None:
    """The last word to the first client of a daemon that could not start."""
    try:
        client.setblocking(True)
        client.settimeout(1)
        client.sendall(json.dumps(frame).encode() + b"\n")
    except OSError:
        pass


def _name_process() -> None:
    """Show as `ccb` in ps and top, where the system lets a process say so."""
    try:
        with open("/proc/self/comm", "w", encoding="ascii") as file:
            file.write("ccb")
    except OSError:
        pass


def _remove(path: str) -> None:
    try:
        if path and not sockets.in_memory(path):
            os.unlink(path)
    except OSError:
        pass


def _remove_unused(where: paths.SessionPaths) -> None:
    """A session that was never begun has an empty journal and leaves nothing."""
    if not where.state:
        return
    try:
        if os.path.getsize(where.file("journal.jsonl")):
            return
    except OSError:
        pass
    for name in ("journal.jsonl", "daemon.log", "epoch", "summary.json", paths.STOPPED):
        _remove(where.file(name))
    try:
        os.rmdir(where.state)
    except OSError:
        pass
