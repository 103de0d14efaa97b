"""The states of a session on this laptop: what its connection does, and whether this client drives."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from ccb.tunnel.wire.dataclass import dataclass


class LinkState(Enum):
    """What the status line shows of the connection."""

    CONNECTING = "connecting"
    CONNECTED = "connected"
    RECONNECTING = "reconnecting"  # lost; an attempt is running, or starts at `LinkChange.retry_at`
    NEEDS_PERSON = (
        "needs you"  # lost; the login has a question (password, host key), so the next attempt waits for `retry`
    )
    FENCED = "watching"  # another client drives; events still come, inputs are refused until `take_back`
    LEAVING = "leaving"  # this client has said that it leaves; only the end follows
    LOST = "lost"  # the session was given up
    CLOSED = "closed"  # the session has ended on the host, or was left


class Role(Enum):
    """Whether this client drives the session."""

    WATCHES = "watches"  # it is a viewer, or another client took over
    WANTS = "wants"  # the person asked to drive, and the host has not been asked yet
    ASKS = "asks"  # the host was asked to let this client drive; inputs already follow
    DRIVES = "drives"  # the host lets this client drive; after a lost connection it asks again


class Change(Enum):
    """What can happen to a session on this laptop."""

    ATTACH = "attach"  # an attach was sent, with the present role
    GRANTED = "granted"  # the host lets this client drive
    HOLDS = "holds"  # the host lets this client drive already, although its answer was lost
    YIELD = "yield"  # another client drives, so the next attach asks for a viewer's place
    FENCED = "fenced"  # the host says that this client does not drive
    TAKE_BACK = "take back"  # the person wants to drive
    LOST_LINK = "lost link"
    LOGIN_ASKS = "login asks"
    LEAVE = "leave"
    GIVE_UP = "give up"
    END = "end"


@dataclass(frozen=True)
class Standing:
    """The state of the connection, and the role of this client."""

    link: LinkState
    role: Role

    @property
    def driving(self) -> bool:
        """Whether inputs of this client count."""
        return self.role in (Role.ASKS, Role.DRIVES)

    @property
    def claims(self) -> bool:
        """Whether the person has asked to drive, so that this client takes the session from any other."""
        return self.role in (Role.WANTS, Role.ASKS)

    @property
    def goes_on(self) -> bool:
        """Whether a lost connection is to be restored."""
        return self.link in _LIVE


_LIVE = frozenset(LinkState) - {LinkState.LEAVING, LinkState.LOST, LinkState.CLOSED}
_LINKS: Mapping[Change, tuple[LinkState, frozenset[LinkState]]] = {
    Change.ATTACH: (LinkState.CONNECTED, frozenset({LinkState.CONNECTING})),
    Change.GRANTED: (LinkState.CONNECTED, _LIVE - {LinkState.NEEDS_PERSON}),
    Change.FENCED: (LinkState.FENCED, _LIVE - {LinkState.NEEDS_PERSON}),
    Change.LOST_LINK: (LinkState.RECONNECTING, _LIVE),
    Change.LOGIN_ASKS: (LinkState.NEEDS_PERSON, frozenset({LinkState.RECONNECTING})),
    Change.LEAVE: (LinkState.LEAVING, _LIVE),
    Change.GIVE_UP: (LinkState.LOST, _LIVE | {LinkState.LEAVING}),
    Change.END: (LinkState.CLOSED, _LIVE | {LinkState.LEAVING}),
}
"""For each change: the state of the connection that it leads to, and the states in which it is possible."""

_ROLES: Mapping[Change, Mapping[Role, Role]] = {
    Change.ATTACH: {Role.WANTS: Role.ASKS},
    Change.GRANTED: {Role.ASKS: Role.DRIVES},
    Change.HOLDS: {Role.WANTS: Role.DRIVES, Role.ASKS: Role.DRIVES},
    Change.YIELD: {Role.DRIVES: Role.WATCHES, Role.ASKS: Role.WATCHES},
    Change.FENCED: dict.fromkeys(Role, Role.WATCHES),
    Change.TAKE_BACK: {Role.WATCHES: Role.WANTS},
    Change.GIVE_UP: dict.fromkeys(Role, Role.WATCHES),
    Change.END: dict.fromkeys(Role, Role.WATCHES),
}


def target(change: Change) -> LinkState | None:
    """Return the connection state that a change leads to, or None if the change concerns only the role."""
    return _LINKS[change][0] if change in _LINKS else None


def after(standing: Standing, change: Change) -> Standing:
    """Return the standing after a change: the one transition function. A change that is impossible in the present state
    is ignored, so a session that has ended stays ended."""
    link, role = standing.link, _ROLES.get(change, {}).get(standing.role, standing.role)
    if change in _LINKS:
        to, sources = _LINKS[change]
        link = to if link in sources else link
    return Standing(link, role)
