"""The questions whether a project may count: this laptop asks them, so their answers do not go to the host as such."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from ccb.tunnel.wire.requests import ProjectTrust

from ..model.forms.questions import project_question
from ..render.permission_updates import Keep
from ..widgets.cards.question_card import CardAnswer
from .approvals import Approvals


class TrustQuestions:
    """Shows each question on a card. `ring` calls the person. `command` answers `/trust` with its argument. `keep`
    keeps the rules that the person grants beyond the session."""

    def __init__(self, approvals: Approvals, ring: Callable[[], None]) -> None:
        self.command: Callable[[str], Awaitable[list[str]]] = _unknown
        self.keep: Keep | None = None
        self._approvals = approvals
        self._ring = ring
        self._open: dict[str, asyncio.Future[bool]] = {}

    async def ask(self, question: ProjectTrust) -> bool:
        """Return the person's answer. The card goes away if the question is withdrawn."""
        request = project_question(question)
        answer: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._open[request.request_id] = answer
        self._approvals.opened(request)
        self._ring()
        try:
            return await answer
        finally:
            del self._open[request.request_id]
            self._approvals.withdrawn(request.request_id)

    def take(self, answer: CardAnswer) -> bool:
        """Take an answer to one of these questions. Return False if it is about another one."""
        waiting = self._open.get(answer.request_id)
        if waiting is None:
            return False
        self._approvals.answered(answer)
        if not waiting.done():
            waiting.set_result(answer.response.get("trusted") is True)
        return True


async def _unknown(_: str) -> list[str]:
    return ["This terminal keeps nothing of projects."]
