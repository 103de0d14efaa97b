"""The states of a session's connection, and how one may follow another."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum


class LinkState(Enum):
    """What the status line shows of the connection."""

    CONNECTING = "connecting"
    CONNECTED = "connected"
    RECONNECTING = "reconnecting"  # lost; an attempt runs or comes at `LinkChange.retry_at`
    NEEDS_PERSON = "needs you"  # lost; the login asks something (password, host key), so nothing is tried until `retry`
    FENCED = "watching"  # another client drives; events still come, inputs are refused until `take_back`
    LOST = "lost"  # given up
    CLOSED = "closed"  # the session has ended on the host, or was left


_NEXT: Mapping[LinkState, frozenset[LinkState]] = {
    LinkState.CONNECTING: frozenset(LinkState) - {LinkState.CONNECTING},
    LinkState.CONNECTED: frozenset({LinkState.RECONNECTING, LinkState.FENCED, LinkState.LOST, LinkState.CLOSED}),
    LinkState.FENCED: frozenset(
        {LinkState.RECONNECTING, LinkState.CONNECTED, LinkState.FENCED, LinkState.LOST, LinkState.CLOSED}
    ),
    LinkState.RECONNECTING: frozenset(LinkState) - {LinkState.CONNECTING},
    LinkState.NEEDS_PERSON: frozenset({LinkState.RECONNECTING, LinkState.LOST, LinkState.CLOSED}),
    LinkState.LOST: frozenset(),
    LinkState.CLOSED: frozenset(),
}


def next_state(now: LinkState, wanted: LinkState) -> LinkState:
    """The one transition function: `wanted` where it may follow `now`, else `now` (what is over stays over)."""
    return wanted if wanted in _NEXT[now] else now
