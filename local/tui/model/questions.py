"""The questions of the worker that are open, and whether they may be shown yet."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from ...session.messages import ControlRequest

_KNOWN = 1_000
_SETTLED_S = 0.2  # of silence after the last event that the host had when this client came
_PATIENCE_S = 2.0  # of silence when the end of the replay does not come


class Replay:
    """Whether what comes now had happened before this client attached. A question of a replay may be answered two events
    later, so it is shown only when the replay is over."""

    def __init__(self) -> None:
        self._on = False
        self._last = 0.0
        self.seq = 0
        """The last event that came."""

    def heard(self, seq: int, now: float, *, replayed: bool) -> None:
        """An event came."""
        self.seq = max(self.seq, seq)
        self._last, self._on = now, replayed

    def over(self, ends: int, now: float) -> bool:
        """Whether it is; `ends` is the newest event that the host is known to have."""
        silent = now - self._last
        if self._on and silent > (_SETTLED_S if self.seq >= ends else _PATIENCE_S):
            self._on = False
        return not self._on


class Questions:
    """In the order in which they were asked. Those that were answered here are never open again."""

    def __init__(self) -> None:
        self._open: dict[str, ControlRequest] = {}
        self._seen: set[str] = set()  # of the open ones: the person has seen them
        self._answered: deque[str] = deque(maxlen=_KNOWN)

    def __len__(self) -> int:
        return len(self._open)

    @property
    def head(self) -> ControlRequest | None:
        """The question to show."""
        return next(iter(self._open.values()), None)

    def first(self) -> ControlRequest | None:
        """The question to show; it and all others count as seen from now on."""
        self._seen.update(self._open)
        return self.head

    def asked(self, request: ControlRequest) -> bool:
        """The worker asks; False when it is known already."""
        known = request.request_id in self._open or request.request_id in self._answered
        if not known:
            self._open[request.request_id] = request
        return not known

    def only(self, requests: Iterable[ControlRequest]) -> bool:
        """These are all that are open; whether one that the person has seen no longer is."""
        wanted = {each.request_id: each for each in requests if each.request_id not in self._answered}
        gone = self._seen - wanted.keys()
        self._open = wanted
        self._seen &= wanted.keys()
        return bool(gone)

    def withdrawn(self, request_id: str) -> bool:
        """It is no longer open; whether the person had seen it."""
        seen = request_id in self._seen
        self._open.pop(request_id, None)
        self._seen.discard(request_id)
        return seen

    def answered(self, request_id: str) -> None:
        """The person has answered it here."""
        self.withdrawn(request_id)
        self._answered.append(request_id)

    def not_answered(self, request: ControlRequest) -> None:
        """The answer could not be given: it is the first open question again."""
        if request.request_id in self._answered:
            self._answered.remove(request.request_id)
        self._open = {request.request_id: request, **self._open}

    def clear(self) -> None:
        self._open.clear()
        self._seen.clear()
