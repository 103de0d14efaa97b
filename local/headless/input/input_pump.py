"""Send the prompt or the messages on stdin to the session, and refuse questions that nobody can answer any more."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

from ccb.tunnel.errors import CcbError
from ccb.tunnel.wire.messages import ControlRequestLine, ControlResponseLine, UserLine, as_dict, parse_message
from ccb.tunnel.wire.requests import Success, public_answer

from ..output import HeadlessOutput
from ..stderr_reports import report
from ..turn_reports import TurnReports
from ..turn_results import PendingPrompts
from .own_answers import END, OwnAnswers

if TYPE_CHECKING:
    from ...session.client import Json
    from ...session.remote_session import RemoteSession
    from ..mirror import TranscriptMirror

_REFUSAL = "AbortError: Tool permission stream closed before response received"


class InputPump:
    """The input of one run. `ended` means that no more input will come. `own` answers what this machine answers itself,
    on `output`; `mirror` copies the transcript there. `keep` keeps the permission updates of an answer that are not for
    the session only. `identified` is told the ids of prompts that the client itself has chosen."""

    def __init__(
        self,
        pending: PendingPrompts,
        reports: TurnReports,
        output: HeadlessOutput,
        mirror: TranscriptMirror | None = None,
    ) -> None:
        self.own = OwnAnswers()
        self.mirror = mirror
        self.keep: Callable[[Sequence[Json]], Awaitable[None]] | None = None
        self.identified: Callable[[str], None] = lambda _: None
        self._output = output
        self._pending = pending
        self._reports = reports
        self._open_questions: dict[str, bool] = {}  # by request id: whether the person is asked
        self.ended = False

    async def send_prompt(self, session: RemoteSession, prompt: str) -> None:
        """Send the only prompt of the run."""
        self._pending.sent(await session.prompt(prompt))
        self.ended = True

    async def send_messages(self, session: RemoteSession, messages: AsyncIterator[Json]) -> None:
        """Send the messages of the client until their end, then refuse the open questions."""
        async for body in messages:
            message = parse_message(body)
            if isinstance(message, UserLine):
                input_id = await session.send(body)
                self._pending.sent(input_id)
                if self.mirror is not None:
                    self.mirror.sent(input_id, body)
                await self._reports.queued(input_id, message.uuid)
                if message.uuid:
                    self.identified(input_id)
                continue
            if isinstance(message, ControlRequestLine):
                answer = self.own.payload(message)
                if answer is not None:
                    await self._output.message(public_answer(Success(message.request_id, answer)))
                    if message.subtype == END:
                        break
                    continue
            if isinstance(message, ControlResponseLine):
                await self._keep(message.request_id, body)
                await self.question_closed(message.request_id)
            await session.send(body)
        self.ended = True
        for request_id in list(self._open_questions):
            await self._refuse(session, request_id)

    async def taken(self, input_ids: Sequence[str]) -> None:
        """The running turn has taken these inputs."""
        self._pending.taken(input_ids)
        await self._reports.taken(input_ids)
        if self.mirror is not None:
            for input_id in input_ids:
                await self.mirror.taken(input_id)

    async def question_opened(self, session: RemoteSession, request_id: str, *, to_person: bool) -> None:
        """Note a question of the worker. Its answer comes on stdin; if stdin has ended, refuse the question at once."""
        self._open_questions[request_id] = to_person
        if self.ended:
            await self._refuse(session, request_id)
        elif to_person:
            await self._reports.waits(waits=True)

    async def question_closed(self, request_id: str) -> None:
        """Forget a question that was answered or withdrawn."""
        if self._open_questions.pop(request_id, False) and not any(self._open_questions.values()):
            await self._reports.waits(waits=False)

    async def _keep(self, request_id: str, body: Json) -> None:
        """Keep what the client of an SDK allows "always", if the question was for the person."""
        answer = as_dict(as_dict(body.get("response")).get("response"))
        updates = [each for each in (answer.get("updatedPermissions") or ()) if isinstance(each, dict)]
        if self.keep is None or not updates or not self._open_questions.get(request_id):
            return
        try:
            await self.keep(updates)
        except CcbError as error:
            report(f"the permission updates are not kept: {error.what}")

    async def _refuse(self, session: RemoteSession, request_id: str) -> None:
        await self.question_closed(request_id)
        await session.refuse(request_id, _REFUSAL)
