"""Send the prompt or the messages on stdin to the session, and refuse questions that nobody can answer any more."""

from __future__ import annotations

from ccb.tunnel.wire.messages import ControlResponseLine, UserLine, parse_message

from ..session.remote_session import RemoteSession
from .stdin import read_messages
from .turn_results import PendingPrompts

_REFUSAL = "AbortError: Tool permission stream closed before response received"


class InputPump:
    """The input of one run. `ended` means that no more input will come."""

    def __init__(self, pending: PendingPrompts) -> None:
        self._pending = pending
        self._open_questions: set[str] = set()
        self.ended = False

    async def send_prompt(self, session: RemoteSession, prompt: str) -> None:
        """Send the only prompt of the run."""
        self._pending.sent(await session.prompt(prompt))
        self.ended = True

    async def send_messages(self, session: RemoteSession, stdin: int) -> None:
        """Send the messages from the file descriptor `stdin` until its end, then refuse the open questions."""
        async for body in read_messages(stdin):
            message = parse_message(body)
            if isinstance(message, UserLine):
                self._pending.sent(await session.send(body))
                continue
            if isinstance(message, ControlResponseLine):
                self._open_questions.discard(message.request_id)
            await session.send(body)
        self.ended = True
        for request_id in list(self._open_questions):
            await self._refuse(session, request_id)

    async def question_opened(self, session: RemoteSession, request_id: str) -> None:
        """Note a question of the worker. Its answer comes on stdin; if stdin has ended, refuse the question at once."""
        self._open_questions.add(request_id)
        if self.ended:
            await self._refuse(session, request_id)

    def question_closed(self, request_id: str) -> None:
        """Forget a question that was answered or withdrawn."""
        self._open_questions.discard(request_id)

    async def _refuse(self, session: RemoteSession, request_id: str) -> None:
        self._open_questions.discard(request_id)
        await session.refuse(request_id, _REFUSAL)
