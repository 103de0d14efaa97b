"""Questions that this laptop itself puts to the reader of a session: the host neither sees them nor their answers."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from ccb.tunnel.wire.dataclass import dataclass
from ccb.tunnel.wire.messages import ControlRequestLine, ControlResponseLine, PublicLine
from ccb.tunnel.wire.requests import A, Answer, P, Request, answer_in, new_uuid, public_withdrawal

from ..client import Json, Received
from ..event_feed import EventFeed

_PREFIX = "laptop-"


def is_own(request_id: str) -> bool:
    """Return whether a request that the reader has got is a question of this laptop."""
    return request_id.startswith(_PREFIX)


@dataclass(frozen=True)
class _OpenQuestion:
    body: Json
    answer: asyncio.Future[Answer]


class OwnQuestions:
    """The open questions of this laptop. The reader gets them like requests of the worker, as progress, and answers
    them in the same way. The number of open questions is that of the services that ask them, which is limited."""

    def __init__(self, feed: EventFeed) -> None:
        self._feed = feed
        self._open: dict[str, _OpenQuestion] = {}

    async def ask(self, request: Request[P, A]) -> A:
        """Return the reader's answer. If this is cancelled, the question is withdrawn."""
        request = replace(request, id=f"{_PREFIX}{new_uuid()}")
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._open[request.id] = _OpenQuestion(request.public(), answer)
        self._feed.add(Received("progress", request.public(), 0))
        try:
            return request.kind.read_answer(await answer)
        finally:
            if self._open.pop(request.id, None) is not None:
                self._feed.add(Received("progress", public_withdrawal(request.id), 0))

    def take(self, line: PublicLine) -> bool:
        """Take an answer to one of these questions. Return False for anything else."""
        if not isinstance(line, ControlResponseLine) or line.request_id not in self._open:
            return False
        asked = self._open.pop(line.request_id)
        if not asked.answer.done():
            asked.answer.set_result(answer_in(line))
        return True

    def is_open(self, line: PublicLine) -> bool:
        """Return whether a line is one of these questions."""
        return isinstance(line, ControlRequestLine) and line.request_id in self._open

    def is_forged(self, line: PublicLine) -> bool:
        """Return whether a request has an id of this laptop and is not one of its open questions."""
        return isinstance(line, ControlRequestLine) and is_own(line.request_id) and not self.is_open(line)

    @property
    def bodies(self) -> list[Json]:
        """The open questions in public form."""
        return [each.body for each in self._open.values()]
