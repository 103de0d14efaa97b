"""Which session a connection is for: the one it names, the latest of a path, or a copy of one.

On the way to hello, so it imports next to nothing that is not needed.
"""

from __future__ import annotations

import os

from . import identity, paths
from .directory import resolve_directory
from .refusal import Refusal, no_session


def chosen_session(params: dict[str, object]) -> tuple[str, str]:
    """The id of the wanted session, and its state directory when it was looked up ("" else)."""
    session = str(params.get("session") or "")
    if not paths.is_session_id(session) and not params.get("continue"):
        raise Refusal("internal", "%r is no session id" % session[:80], {})
    forking = bool(params.get("fork") or params.get("fork_of"))
    named = params.get("create", True) or (len(session) == 36 and paths.state_exists(session))
    if named and not forking and not params.get("continue"):
        return session, ""
    from . import registry

    if params.get("continue"):
        path = os.path.realpath(resolve_directory(str(params.get("cwd") or "~")))
        entry = registry.latest_of(path)
        if entry is None:
            raise Refusal("no_session", "there is no session of %s to go on with" % path, {})
    else:
        wanted = str(params.get("fork_of") or session)
        found = registry.by_prefix(wanted)
        if len(found) != 1:
            if params.get("in_memory") and not found:
                _end_what_is_left(wanted)
                text = "the session %s was in memory only on this host, and its worker has ended"
                raise Refusal("no_session", text % wanted[:64], {"near": []})
            raise no_session(wanted, [each.session for each in found])
        entry = found[0]
    params["create"] = False
    if forking and not entry.directory:
        text = "the session %s is in memory only on the host and cannot be copied" % entry.session
        raise Refusal("no_storage", text, {})
    if not forking:
        return entry.session, entry.directory
    if not paths.is_session_id(session):
        raise Refusal("internal", "%r is no session id" % session[:80], {})
    from .fork import fork, unused_copy_of

    try:
        made = not paths.state_exists(session) and fork(entry, session)
    except paths.NoPlace as error:
        raise Refusal("no_storage", "no directory on the host is writable", {"tried": error.notes}) from None
    if not made:
        # An earlier connection, which was lost, may have made it, and then it is the latest of its path, too.
        of = "" if params.get("fresh") else unused_copy_of(session)
        if not of or entry.session not in (of, session):
            raise in_use(session)
    params["fresh"] = False
    params["cwd"] = params.get("cwd") or entry.cwd  # for a copy that cannot say where it works
    return session, ""


def in_use(session: str) -> Refusal:
    """For who wants a new session of this id."""
    return Refusal("in_use", "Session ID %s is already in use." % session, {})


def _end_what_is_left(session: str) -> None:
    """What a killed worker has left running; that of a session on disk is ended by the next one."""
    import asyncio

    from ..system.process import stop_marked

    asyncio.run(stop_marked(session))


def check_host(state: str) -> None:
    """Refuse a session whose worker may live on another host that shares this home."""
    host = identity.elsewhere(owner_of(state))
    if host:
        raise _kept_elsewhere(host)


def check_owner(owner: dict[str, object]) -> None:
    """Refuse a session whose worker holds it in another container of this machine: there is no way to it from here."""
    host = owner.get("hostname")
    if host not in (None, os.uname().nodename) and not identity.is_alive(owner):
        raise _kept_elsewhere(str(host))


def _kept_elsewhere(host: str) -> Refusal:
    text = "the session is kept by a worker on %s, which shares this home" % host
    return Refusal("in_use", text, {"host": host, "do": "Go on with it there, or in a copy: --fork-session."})


def owner_of(state: str) -> dict[str, object]:
    from .summary import read_summary

    return read_summary(state)
