"""Start the daemon of a session: fork it, greet its first client, clean up. Long imports come after hello."""

from __future__ import annotations

import errno
import gc
import importlib
import os
import signal
import socket
import sys
import time
from collections.abc import Callable

from ..session_store import session_paths, sockets
from ..session_store.locks import (
    check_owner,
    elsewhere,
    in_use,
    is_alive,
    kept_elsewhere,
    lock_journal,
    own_identity,
    reserve_owner,
    write_owner,
)
from ..session_store.node_claim import PREFIX, UNSHARED, NodeClaim, owner_of, take
from ..session_store.refusal import HostRefusal
from ..session_store.session_paths import resolve_directory
from .hello import ENDING, WORKTREES, DaemonLaunch, send_hello, send_last

Params = dict[str, object]

_FIRST_CLIENT_S = 20.0  # for the first client to read its hello; the bridge that started the worker gives up then
_LEAVE_S = 5.0  # for the end of an idle worker
_AHEAD = (
    *("typing", "inspect", "dataclasses", "logging", "subprocess", "concurrent.futures.thread", "asyncio"),
    "ccb.tunnel.wire.journal_records",
)  # what a daemon imports first, in small parts


def start_daemon(
    params: Params, bundle: str, where: session_paths.SessionPaths, lock: int, users_umask: int
) -> dict[str, object] | None:
    """Start the daemon of a session whose lock file was free; it takes over `lock`. Return None, or the owner of the
    journal when another daemon holds that. Raise HostRefusal or OSError, and leave nothing of a session that never
    began."""
    try:
        if where.state:  # an unused daemon may have just removed it
            top = session_paths.durable_directory("")[1] if where.durable else where.runtime
            session_paths.private_directory(where.state, top)
        return _start(params, bundle, where, lock, users_umask)
    except BaseException:
        remove_unused(where)
        _remove(where.lock)
        raise
    finally:
        os.close(lock)


def _start(
    params: Params, bundle: str, where: session_paths.SessionPaths, lock: int, users_umask: int
) -> dict[str, object] | None:
    session = str(params["session"]) if params.get("create", True) else os.path.basename(where.state)
    journal = where.file("journal.jsonl")
    cwd, before = _check(params, session, where, journal)
    journal_lock, held = lock_journal(journal) if journal else (-1, False)
    claim = UNSHARED
    try:
        owner = _owner_of(where.state) if held or _begun(journal) else {}
        gone = _given_up(params, owner)
        if held and elsewhere(owner) == elsewhere(owner, gone):
            check_owner(owner)
            return owner
        if where.durable:
            claim = take(where.state, owner, gone)
        if claim.renewed:
            if journal_lock >= 0:
                os.close(journal_lock)
            journal_lock, _ = lock_journal(journal)
        moved = ["the session worked in %s before, and works in %s now" % (before, cwd)] if before else []
        facts: Params = {"bundle": bundle, "session": session, "cwd": cwd, "notes": moved}
        _fork_daemon(params, facts, where, (lock, journal_lock), claim, users_umask)
    except BaseException:
        claim.release()
        remove_unused(where, claim)
        raise
    finally:
        if journal_lock >= 0:
            os.close(journal_lock)
    return None


def _fork_daemon(
    params: Params,
    facts: Params,
    where: session_paths.SessionPaths,
    locks: tuple[int, int],
    claim: NodeClaim,
    users_umask: int,
) -> None:
    """Start the daemon of a session whose `locks` and `claim` this process has. Raise HostRefusal, OSError."""
    notes = list(dict.fromkeys(_texts(params.get("notes")) + where.notes + _texts(facts["notes"])))
    tree = None
    if "worktree" in params and not _begun(where.file("journal.jsonl")):
        from ..subagents.worktrees import own_worktree

        facts["cwd"], tree = own_worktree(str(facts["cwd"]), str(params["worktree"]))
        notes.append("the session works in the git worktree %s" % facts["cwd"])
    os.chdir("/")  # else the disk of the directory could not be unmounted
    facts.update(storage=where.storage, notes=notes, node=os.uname().nodename)
    log = os.open(where.file("daemon.log") or os.devnull, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    if where.lock:
        reserve_owner(locks[0])
    with sockets.listen(where.socket, locks[0]) as listener:
        try:
            if params.get("job") or _fork():  # the end of a job ends its processes, and the other way round
                os.umask(users_umask)  # files made by tools follow the user's umask; our own files set their modes
                _run(DaemonLaunch(where, facts, params, tree, listener, locks, claim), log)
        except OSError:
            _remove(where.socket)
            raise
    os.close(log)


def _check(params: Params, session: str, where: session_paths.SessionPaths, journal: str) -> tuple[str, str]:
    """Return the session's directory and, if another, that before. Raise HostRefusal if it may not be started so."""
    exists = _begun(journal)
    if exists and params.get("fresh"):
        raise in_use(session)
    if not exists and not params.get("create", True):
        raise HostRefusal("no_session", "there is no session %s on this host" % session, {})
    if exists:
        from ..session_store.session_registry import check_not_moved

        owner = _owner_of(where.state)
        if elsewhere(owner, _given_up(params, owner)):
            raise kept_elsewhere(owner)
        check_not_moved(where.state)
    mark = where.file(session_paths.STOPPED)
    if params.get("again") and os.path.exists(mark):
        raise HostRefusal("stopped", "the session was stopped with `ccb stop`", {})
    _remove(mark)
    named = str(params.get("cwd") or "")
    if not exists:
        return resolve_directory(named or "~"), ""
    recorded = _recorded_directory(where.state, journal, named)
    directory = _wanted_directory(recorded, named, chosen=bool(params.get("named")))
    if WORKTREES in directory and not os.path.isdir(directory):
        from ..subagents.worktrees import make_again

        make_again(journal)
    try:
        directory = resolve_directory(directory)
    except HostRefusal as refusal:
        text = "%s; name the directory in which the session is to go on" % refusal.message
        raise HostRefusal(refusal.code, text, refusal.data) from None
    return directory, "" if _is_one(directory, recorded) else recorded


def _given_up(params: Params, owner: dict[str, object]) -> str:
    """Return the boot id of the node that loses the session to this start: a person says that it is gone, or the site
    has ended the earlier run of this job, perhaps with its node. "" for none."""
    return str((owner.get("boot") if params.get("job") else params.get("take_over")) or "")


def _wanted_directory(recorded: str, named: str, *, chosen: bool) -> str:
    """Return the directory, or its worktree, in which a session of `recorded` goes on: `named` only if it must."""
    top, worktrees, name = recorded.partition(WORKTREES)
    if not named or not (chosen or not os.path.isdir(recorded)):
        return recorded
    directory = resolve_directory(named)
    if worktrees and (_is_one(directory, top) or os.path.isdir(directory + worktrees + name)):
        return directory + worktrees + name
    return recorded if _is_one(directory, recorded) else directory


def _is_one(directory: str, other: str) -> bool:
    return os.path.realpath(directory) == os.path.realpath(other)


def end_where_it_was(params: Params, state: str) -> None:
    """End the worker of a session that goes on in another directory, unless it has a client or works."""
    named, owner = str(params["cwd"]), _owner_of(state)
    recorded, pid = str(owner.get("directory") or ""), owner.get("pid")
    idle = owner.get("state") == "idle" and owner.get("away") is True and not owner.get("viewers")
    if not (recorded and idle and isinstance(pid, int) and is_alive(owner)):
        return
    if _wanted_directory(recorded, named, chosen=bool(params.get("named"))) == recorded:
        return
    os.kill(pid, signal.SIGTERM)
    deadline = time.monotonic() + _LEAVE_S
    while is_alive(owner) and time.monotonic() < deadline:
        time.sleep(0.01)


def _begun(journal: str) -> bool:
    return os.path.exists(journal) and os.path.getsize(journal) > 0


def _owner_of(state: str) -> dict[str, object]:
    from ..session_store.session_registry import read_summary

    return owner_of(state, read_summary(state))


def _recorded_directory(state: str, journal: str, named: str) -> str:
    """Return the last directory of a session, `named` if nothing tells it. Raise OSError, HostRefusal."""
    owner = _owner_of(state)
    last = owner.get("directory")
    if last and isinstance(last, str):
        return last
    from ..session_store.session_registry import summary_of

    cwd = owner.get("cwd") or summary_of(journal).get("cwd") or named
    if not cwd or not isinstance(cwd, str):
        text = "the journal of the session is damaged, and nothing says any more in which directory it works"
        raise HostRefusal("not_a_directory", text, {})
    return cwd


def _fork() -> bool:
    """Fork twice, so that the daemon is no child of this process. Return True in the daemon. Raise OSError."""
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


def _run(launch: DaemonLaunch, log: int) -> None:
    status = 1
    first: socket.socket | None = None
    try:
        signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
        for number in ENDING:  # the daemon sets its own handlers once it is imported
            signal.signal(number, lambda number, _: sys.exit(128 + number))
        _detach(launch, log)
        owner = {**own_identity(), "bundle": launch.facts["bundle"]}
        if launch.where.lock:
            write_owner(launch.locks[0], owner)
        if not launch.where.state:
            launch.facts["summary"] = {**owner, "cwd": launch.facts["cwd"]}
        _survive_logout(launch)
        first = _greet_first(launch)
        if first is None:
            status = 0
            return
        _import_what_the_daemon_needs()
        from .daemon import run_daemon

        status = run_daemon(launch, first)
    except SystemExit as end:
        status = int(str(end.code))
        if first is not None and status == 128 + signal.SIGINT:
            send_last(first, {"t": "bye", "reason": "the session has ended"})
    except BaseException as error:  # noqa: BLE001 - the top of a process: log it, then clean up
        import traceback

        traceback.print_exc()
        if first is not None:
            what = "the worker failed: %s: %s" % (type(error).__name__, error)
            send_last(first, {"t": "refused", "code": "internal", "message": what, "data": {}})
    finally:
        _remove(launch.where.socket)
        launch.claim.release()
        if status == 0:
            remove_unused(launch.where, launch.claim)
        _remove(launch.where.lock)
        sys.stderr.flush()
        os._exit(status)


def import_ahead(enough: Callable[[], object]) -> None:
    """Import what every daemon needs, a part at a time, until `enough`: the laptop has said a word."""
    gc.disable()
    try:
        for name in _AHEAD:
            if enough():
                break
            _import(name)
    finally:
        gc.enable()


def _import_what_the_daemon_needs() -> None:
    """Import the modules of the daemon without the garbage collector, which would look through code that stays."""
    gc.disable()
    try:
        _import("asyncio")
        from . import daemon  # noqa: F401
    finally:
        gc.freeze()
        gc.enable()


def _import(name: str) -> None:
    """Import a module without TLS, which asyncio would load (5 ms) and the worker never speaks."""
    if "ssl" not in sys.modules:
        sys.modules["ssl"] = None  # type: ignore[assignment] # how Python is told that there is no such module
        try:
            importlib.import_module(name)
        finally:
            del sys.modules["ssl"]


def _detach(launch: DaemonLaunch, log: int) -> None:
    """Close all files inherited from the forking process. Stdin and stdout become /dev/null, stderr the log."""
    if not launch.where.lock:
        launch.listener.listen(sockets.BACKLOG)  # the kernel tells clients the process that called it last
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)
    os.dup2(log, 2)
    keep = {0, 1, 2, *launch.locks, launch.listener.fileno()}
    for name in os.listdir("/proc/self/fd") if os.path.isdir("/proc/self/fd") else map(str, range(3, 256)):
        if int(name) not in keep:
            try:
                os.close(int(name))
            except OSError:
                pass
    try:
        with open("/proc/self/comm", "w", encoding="ascii") as file:
            file.write("ccb")  # the name in ps and top
    except OSError:
        pass


def _survive_logout(launch: DaemonLaunch) -> None:
    """Leave the login's scope if logind would end it. If that fails, bind the session to its connection."""
    if not session_paths.in_login_scope():
        return
    from .logout import bound_note, kills, move_out

    if kills() and not move_out(str(launch.facts["session"])):
        note = bound_note(in_memory=not launch.where.state)
        launch.facts["notes"] = [*_texts(launch.facts["notes"]), note]
        launch.params["grace_s"] = 0.0


def _greet_first(launch: DaemonLaunch) -> socket.socket | None:
    """Send hello to the first client, and return its socket. Return None when no client comes in time."""
    launch.listener.settimeout(None if launch.params.get("job") else _FIRST_CLIENT_S)
    while True:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING)
        try:
            client, _ = launch.listener.accept()
        except OSError:
            return None
        finally:
            signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
        try:
            if not sockets.stranger(client, launch.where.socket):
                send_hello(client, launch.facts, launch.where.state)
                return client
        except OSError:
            pass
        client.close()


def _remove(path: str) -> None:
    try:
        if path and not sockets.in_memory(path):
            os.unlink(path)
    except OSError:
        pass


def remove_unused(where: session_paths.SessionPaths, claim: NodeClaim = UNSHARED) -> None:
    """Remove the files of a session that never began: one whose journal is empty. With a record beside that of `claim`,
    the session is another node's."""
    if not where.state:
        return
    try:
        if os.path.getsize(where.file("journal.jsonl")):
            return
    except OSError:
        pass
    try:
        records = [where.file(name) for name in os.listdir(where.state) if name.startswith(PREFIX)]
    except OSError:
        return
    if any(record != claim.path for record in records):
        return
    names = "journal.jsonl", "daemon.log", "epoch", "summary.json", session_paths.STOPPED
    for path in (*map(where.file, names), *records):
        _remove(path)
    try:
        os.rmdir(where.state)
    except OSError:
        pass


def _texts(value: object) -> list[str]:
    return [str(each) for each in value] if isinstance(value, list) else []
