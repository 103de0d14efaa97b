"""Select the session that a connection is for: the one it names, the latest one of a directory, or a copy."""

from __future__ import annotations

import os

from . import session_paths
from .locks import in_use
from .refusal import HostRefusal, no_session
from .session_paths import resolve_directory

TYPE_CHECKING = False

if TYPE_CHECKING:
    from .session_registry import SessionEntry


Params = dict[str, object]


def chosen_session(params: Params) -> tuple[str, str, Params]:
    """Return the id of the session that the start parameters mean, its state directory if it was looked up (""
    otherwise), and the parameters to start it with. A copy is made here. Raise HostRefusal."""
    session = str(params.get("session") or "")
    latest, forking = bool(params.get("continue")), is_fork(params)
    if not latest:
        _check_id(session)
    if not (latest or forking):
        is_whole = len(session) == 36 and session_paths.state_exists(session)
        if params.get("create", True) or is_whole:
            return session, "", params
    if latest:
        entry, moved = _latest(params)
        params = {**params, "named": params.get("named") or moved}
    else:
        entry = _found(str(params.get("fork_of") or session), params)
    if not forking:
        return entry.session, entry.directory, {**params, "create": False}
    if not entry.directory:
        text = "the session %s is in memory only on the host and cannot be copied" % entry.session
        raise HostRefusal("no_storage", text, {})
    _check_id(session)
    _copy(entry, session, fresh=bool(params.get("fresh")))
    cwd, named = params.get("cwd") or entry.cwd, bool(params.get("named"))
    last = str(entry.summary.get("directory") or "")
    if not named and os.path.isdir(last):  # the journal of a copy begins with the first one
        cwd, named = last, True
    return session, "", {**params, "create": False, "fresh": False, "cwd": cwd, "named": named}


def is_fork(params: Params) -> bool:
    return bool(params.get("fork") or params.get("fork_of"))


def _check_id(session: str) -> None:
    if not session_paths.is_session_id(session):
        raise HostRefusal("internal", "%r is no session id" % session[:80], {})


def _latest(params: Params) -> tuple[SessionEntry, bool]:
    """Return the most recently used session of the directory, and whether it worked under another name then."""
    from . import session_registry

    path = os.path.realpath(resolve_directory(str(params.get("cwd") or "~")))
    entry = session_registry.latest_of(path)
    if entry is None:
        raise HostRefusal("no_session", "there is no session of %s to go on with" % path, {})
    return entry, not entry.works_in(path)


def _found(wanted: str, params: Params) -> SessionEntry:
    """Return the only session whose id starts with `wanted`. Raise HostRefusal when there are none or several."""
    from . import session_registry

    found = session_registry.by_prefix(wanted)
    if len(found) == 1:
        return found[0]
    if params.get("in_memory") and not found:
        import asyncio

        from ..system.process import stop_marked

        asyncio.run(stop_marked(wanted))  # a session on the disk does that when it is resumed
        text = "the session %s was in memory only on this host, and its worker has ended" % wanted[:64]
        raise HostRefusal("no_session", text, {"near": []})
    raise no_session(wanted, [each.session for each in found])


def _copy(entry: SessionEntry, session: str, *, fresh: bool) -> None:
    """Make `session` a copy of `entry`. Raise HostRefusal when the id is taken."""
    from .fork import fork, unused_copy_of

    try:
        made = not session_paths.state_exists(session) and fork(entry, session)
    except session_paths.NoPlace as error:
        raise HostRefusal("no_storage", "no directory on the host is writable", {"tried": error.notes}) from None
    if made:
        return
    # An earlier connection, now lost, may have made the copy. The copy may be the latest session of its directory now.
    source = "" if fresh else unused_copy_of(session)
    if not source or entry.session not in (source, session):
        raise in_use(session)
