"""The questions of the worker that are open, and whether the replay after an attach is over."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator

from ccb.tunnel.wire.messages import ControlRequestLine
from ccb.tunnel.wire.requests import TRUST_PROJECT, ProjectTrust, new_uuid

_MAX_ANSWERED = 1_000
_QUIET_S = 0.2  # without an event, after the last one that the host had when this client attached
_PATIENCE_S = 2.0  # without an event, if the end of the replay does not come


class ReplayMonitor:
    """Tells whether the events that come had happened before this client attached. The answer to a question may come
    two events later, so questions are shown only when the replay is over. Times are monotonic seconds."""

    def __init__(self) -> None:
        self._replaying = False
        self._last_at = 0.0
        self.seq = 0
        """The number of the last event that came."""

    def event_came(self, seq: int, now: float, *, replayed: bool) -> None:
        """Note an event."""
        self.seq = max(self.seq, seq)
        self._last_at, self._replaying = now, replayed

    def over(self, last_seq: int, now: float) -> bool:
        """Return whether the replay is over. `last_seq` is the newest event that the host is known to have."""
        silence = now - self._last_at
        if self._replaying and silence > (_QUIET_S if self.seq >= last_seq else _PATIENCE_S):
            self._replaying = False
        return not self._replaying


class OpenQuestions:
    """The open questions in the order in which they were asked. A question that was answered here never opens again."""

    def __init__(self) -> None:
        self._open: dict[str, ControlRequestLine] = {}
        self._seen: set[str] = set()  # ids of open questions that the person has seen
        self._answered: deque[str] = deque(maxlen=_MAX_ANSWERED)

    def __len__(self) -> int:
        return len(self._open)

    @property
    def head(self) -> ControlRequestLine | None:
        """The question to show."""
        return next(iter(self._open.values()), None)

    def show_head(self) -> ControlRequestLine | None:
        """Return the question to show. The person now knows of it and of all others."""
        self._seen.update(self._open)
        return self.head

    def __iter__(self) -> Iterator[ControlRequestLine]:
        return iter(list(self._open.values()))

    def walk(self, by: int) -> None:
        """Show the next question (`by` is 1) or the one before (-1). The last and the first are neighbours."""
        ids = list(self._open)
        ids = ids[by:] + ids[:by]
        self._open = {each: self._open[each] for each in ids}

    def opened(self, request: ControlRequestLine) -> bool:
        """The worker asks. Return False if the question is known already."""
        known = request.request_id in self._open or request.request_id in self._answered
        if not known:
            self._open[request.request_id] = request
        return not known

    def replace_all(self, requests: Iterable[ControlRequestLine]) -> bool:
        """Exactly these questions of the worker are open, and those that this laptop asks itself. Return whether one
        that the person has seen is no longer among them."""
        own = {each.request_id: each for each in self._open.values() if each.subtype == TRUST_PROJECT.name}
        wanted = own | {each.request_id: each for each in requests if each.request_id not in self._answered}
        gone = self._seen - wanted.keys()
        self._open = wanted
        self._seen &= wanted.keys()
        return bool(gone)

    def closed(self, request_id: str) -> bool:
        """A question was withdrawn or answered. Return whether the person had seen it."""
        seen = request_id in self._seen
        self._open.pop(request_id, None)
        self._seen.discard(request_id)
        return seen

    def answered(self, request_id: str) -> None:
        """The person has answered a question here."""
        self.closed(request_id)
        self._answered.append(request_id)

    def not_answered(self, request: ControlRequestLine) -> None:
        """The answer could not be sent: the question is open again, before all others."""
        if request.request_id in self._answered:
            self._answered.remove(request.request_id)
        self._open = {request.request_id: request, **self._open}

    def clear(self) -> None:
        """Nothing is asked any more: the session has ended."""
        self._open.clear()
        self._seen.clear()


def project_question(about: ProjectTrust) -> ControlRequestLine:
    """Return the question of this laptop whether the files of a project may count."""
    shown = {"directory": about.directory, "switches": list(about.switches)}
    return ControlRequestLine({}, f"trust {new_uuid()}", TRUST_PROJECT.name, {"input": shown})
