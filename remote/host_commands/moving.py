"""`ccb export`, `import` and `move`: one step of a move on this host. The laptop carries the archive."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
from collections.abc import Iterator

from ccb.tunnel.wire.frames import Json
from ccb.tunnel.wire.session_archive import TREE, BadArchive

from ..session_store import session_moves as moves
from ..session_store import session_registry as registry
from ..session_store.refusal import HostRefusal, unusable
from ..session_store.session_paths import NoPlace, find_paths, is_session_id, resolve_directory
from ..session_store.session_registry import SessionEntry
from . import carried_tree, stopping
from .reports import Reports

_AGAIN, _HERE = "Move it again.", "Name the directory when you resume it: a session need not move for that."
_FIRST = "Finish that first: give the same `ccb move` again."
_ARCHIVE = "session.tar"


def run_step(params: Json, reports: Reports) -> None:
    """Carry out the step that `params` names. Raise HostRefusal."""
    step = _STEPS.get(str(params.get("step")))
    if step is None:
        raise HostRefusal("internal", "%r is no step of a move" % str(params.get("step"))[:80], {})
    try:
        reports.report("done", step(params, reports))
    except BadArchive as error:
        raise HostRefusal("bad_archive", "this cannot be taken as a session: %s" % error, {}) from None
    except NoPlace as error:
        raise HostRefusal("no_storage", "no directory on the host is writable", {"tried": error.notes}) from None
    except OSError as error:
        raise unusable("the session cannot move", error) from error


def _look(params: Json, _: Reports) -> Json:
    """Report which session is meant, and where it has moved to. Refuse one that cannot leave now."""
    entry = _named(params)
    to, wanted = entry.moved_to, str(params.get("to") or "")
    if to and to != wanted:
        registry.check_not_moved(entry.directory)
    if not to:
        _check_idle(entry, leaves=bool(wanted))
    return {"session": entry.session, "moved": bool(to)}


def _named(params: Json) -> SessionEntry:
    (entry,) = stopping.chosen(params)
    if not entry.directory:
        raise HostRefusal("in_use", "this session is in memory only, and cannot leave", {"do": "Stop it."})
    return entry


def _check_idle(entry: SessionEntry, *, leaves: bool) -> None:
    if entry.alive and entry.summary.get("state") != "idle":
        text = "a turn of the session is running, or waits for an answer"
        raise HostRefusal("in_use", text, {"do": "Wait until it is over, or interrupt it."})
    driver = str(entry.summary.get("driver") or "") if entry.alive and entry.summary.get("away") is not True else ""
    if leaves and driver:
        raise HostRefusal("in_use", "%s drives this session now" % driver[:200], {"do": "Leave it there first."})


def _export(params: Json, reports: Reports) -> Json:
    """Write the archive of a session, and report where it is. For a move (`to`), the worker of the session ends."""
    entry = _named(params)
    registry.check_not_moved(entry.directory)
    _check_idle(entry, leaves=bool(params.get("to")))
    if params.get("to"):
        stopping.stop_all([entry], reports)
    place = os.path.join(entry.directory, moves.LEAVING)
    shutil.rmtree(place, ignore_errors=True)
    os.mkdir(place, 0o700)
    tree = carried_tree.make_bundle(entry.cwd, place) if params.get("files") else ""
    path = os.path.join(place, _ARCHIVE)
    return {"path": path, "journal": moves.pack(entry, path, tree)}


def _sent(params: Json, _: Reports) -> Json:
    shutil.rmtree(os.path.join(_named(params).directory, moves.LEAVING), ignore_errors=True)
    return {}


def _leave(params: Json, _: Reports) -> Json:
    """Give the session up, if it is still the one that was exported."""
    entry, to = _named(params), str(params.get("to"))
    if entry.moved_to == to:  # the laptop has not heard of it
        return {}
    registry.check_not_moved(entry.directory)
    with stopping.locks_of(entry.session, entry.directory, owns=True) as free:
        if not free:
            raise HostRefusal("in_use", "somebody goes on with the session", {"do": _AGAIN})
        if moves.journal_size(entry) != params.get("journal"):
            raise HostRefusal("in_use", "the session went on while it was moved", {"do": _AGAIN})
        moves.leave(entry, to)
    return {}


def _expect(params: Json, _: Reports) -> Json:
    """Prepare for a session that is to work in `directory`, and report where its archive is wanted. With `again`, the
    source still owns the session, so what an earlier attempt has brought here is thrown away."""
    session = str(params.get("session"))
    directory = resolve_directory(str(params.get("directory") or ""))
    if not is_session_id(session):
        raise HostRefusal("internal", "%r is no session id" % session[:80], {})
    there = dict(registry.directories()).get(session, "")
    if there and _is_here(there):
        raise HostRefusal("in_use", "the session %s is on this host already" % session, {"do": _HERE})
    if there and moves.is_complete(there) and not params.get("again"):
        raise HostRefusal("in_use", "a move of this session to this host is not over", {"do": _FIRST})
    if params.get("files"):
        carried_tree.check_target(directory)
    where = find_paths(session, there)
    if not where.state:
        raise NoPlace(where.notes)
    place = os.path.join(where.state, moves.ARRIVING)
    with _alone(where.state):
        moves.discard(where.state)
        os.mkdir(place, 0o700)
    return {"path": os.path.join(place, _ARCHIVE), "directory": os.path.realpath(directory)}


def _receive(params: Json, _: Reports) -> Json:
    """Unpack the archive that has arrived, and check it. The session is not here yet."""
    session, directory = str(params.get("session")), resolve_directory(str(params.get("directory") or ""))
    state = _state_of(session)
    with _alone(state):
        path = os.path.join(state, moves.ARRIVING, _ARCHIVE)
        if not moves.is_complete(state):
            has_tree = moves.unpack(path, state, session, os.path.realpath(directory))
            os.unlink(path)
            if has_tree and params.get("files"):
                os.umask(int(params.get("umask", 0o077)))  # the files are the user's; ours set their modes
                carried_tree.take_bundle(directory, os.path.join(state, moves.ARRIVING, TREE))
            moves.complete(state)
    return {}


def _settle(params: Json, _: Reports) -> Json:
    """Make the session that has arrived one of this host."""
    session = str(params.get("session"))
    state = _state_of(session)
    if moves.is_complete(state):
        with _alone(state), stopping.locks_of(session, state, owns=True) as free:
            if not free:
                raise HostRefusal("in_use", "a process on the host has the session open", {"do": _AGAIN})
            moves.settle(state)
    elif not _is_here(state):
        raise _not_arrived(session)
    else:
        moves.discard(state)
    return {}


def _state_of(session: str) -> str:
    found = dict(registry.directories()).get(session)
    if found is None:
        raise _not_arrived(session)
    return found


@contextlib.contextmanager
def _alone(state: str) -> Iterator[None]:
    """Keep the steps of two moves apart: one that nobody hears any more goes on to its end."""
    fd = os.open(state, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError:
        raise HostRefusal("in_use", "another move of this session is under way", {"do": _AGAIN}) from None
    finally:
        os.close(fd)


def _is_here(state: str) -> bool:
    return os.path.exists(os.path.join(state, "journal.jsonl")) and not registry.moved_to(state)


def _not_arrived(session: str) -> HostRefusal:
    return HostRefusal("no_session", "the session %s has not arrived on this host" % session[:64], {"near": []})


_STEPS = {
    "look": _look,
    "export": _export,
    "sent": _sent,
    "leave": _leave,
    "expect": _expect,
    "receive": _receive,
    "settle": _settle,
}
