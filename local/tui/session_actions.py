"""The actions of the person on the session: send a prompt, answer, interrupt, change the mode or the model, stop."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import field
from typing import TYPE_CHECKING
from uuid import uuid4

from ccb.tunnel.errors import CcbError, UsageError
from ccb.tunnel.plain_text import HostText
from ccb.tunnel.wire.client_requests import (
    BACKGROUND_TASKS,
    REMEMBER,
    REWIND_CONVERSATION,
    SHELL_COMMAND,
    ConversationRewind,
)
from ccb.tunnel.wire.control_protocol import A, P, Request, RequestFailed
from ccb.tunnel.wire.dataclass import dataclass
from ccb.tunnel.wire.frames import Json

from ..session.session_client import AS_PROMPT, LinkState, PromptDelivery, SessionClient
from ..slash_commands.agent_commands import can_change_sandbox, change_mode
from ..transcript.blocks import Level, PromptFacts, pictures_of
from ..transcript.prompt_tracker import WaitingPrompt
from ..transcript.session_facts import CAGED, mode_in_force
from ..transcript.transcript_reducer import TranscriptReducer
from .approvals import Approvals
from .cards.question_card import CardAnswer
from .presenters import HINT_S, StatusPresenter
from .rendering.permission_updates import kept_note, kept_updates
from .rendering.tool_output import FIX
from .repl_shell import LeaveState
from .widgets.connection_banner import ConnectionView

if TYPE_CHECKING:
    from ..connect.project_trust import ProjectDesk


_UNTIL_IDLE_S = (0.0, 0.1, 0.3)  # pauses in which a worker comes to rest after the result of a turn
_CYCLE = ("default", "acceptEdits", "plan", CAGED)


@dataclass(eq=False)
class SessionActions:
    """Acts on the session. Failures are shown, never raised."""

    client: SessionClient
    reducer: TranscriptReducer
    connection: ConnectionView
    approvals: Approvals
    status: StatusPresenter
    leaving: LeaveState
    _interrupting: bool = False
    _no_cage: bool = False  # the host cannot make the cage of a mode
    _modes_asked: list[str] = field(default_factory=list)  # the host has not confirmed them yet

    @property
    def can_interrupt(self) -> bool:
        return self.reducer.running and not self._interrupting

    def show_error(self, error: CcbError | RequestFailed) -> None:
        """Show an error in the transcript: what happened, the evidence, the one thing to do."""
        do = f"{FIX}{error.do}" if isinstance(error, CcbError) and error.do else ""
        parts = (error.what, error.evidence, do) if isinstance(error, CcbError) else (f"{HostText(str(error))}",)
        self.reducer.notice([line for part in parts for line in part.splitlines()], Level.ERROR)

    def waits_for_connection(self) -> None:
        """Say that what the person does now reaches the host later."""
        self.status.hint("sent when the connection is there again")

    def hint(self, text: str, seconds: float = HINT_S) -> None:
        self.status.hint(text, seconds)

    async def send_prompt(
        self, text: str, content: list[Json] | None = None, *, how: PromptDelivery = AS_PROMPT
    ) -> bool:
        """Send a prompt, as `content` if files go along. Return False if it must go back to the composer."""
        if how.command_line and SHELL_COMMAND not in self.client.hello.capabilities:
            self.status.hint("the worker of this session is too old to run a command: /stop, then start again")
            return False
        uuid = str(uuid4())
        files = len(content) - 1 if content else 0
        pictures = pictures_of(content or ())
        facts = PromptFacts(files, pictures, command_line=how.command_line, before=how.before, steers=not how.waits)
        self.reducer.prompt_sent(text, uuid, connected=self.connection.state is LinkState.CONNECTED, facts=facts)
        try:
            await self.client.prompt(content or text, uuid=uuid, how=how)
        except UsageError as error:
            self.reducer.prompt_refused(uuid)
            self.status.hint(f"not sent: {error.what}")
            return False
        except CcbError as error:
            if error is not self.leaving.error:  # the prompt is already on the screen
                self.show_error(error)
            self.reducer.prompt_failed(uuid)
        return True

    async def answer(self, answer: CardAnswer) -> None:
        """Answer a question, and those that its rule covers as well. What cannot be sent is asked again."""
        for each in [answer, *self.approvals.answered_with(answer)]:
            question = self.approvals.questions.answered(each.request_id)
            sent = await self._attempt(self.client.answer(each.request_id, each.response))
            if not sent and question is not None:
                self.approvals.questions.not_answered(question)

    async def keep(self, answer: CardAnswer, projects: ProjectDesk | None) -> None:
        updates = kept_updates(answer.response)
        if not updates or projects is None:
            return
        try:
            await projects.keep(updates)
        except CcbError as error:
            self.show_error(error)
            return
        self.reducer.notice(kept_note(updates), Level.DIM)

    def if_driving(self, act: Callable[[], object]) -> None:
        """Do something that only the client does that drives the session. Else say why not."""
        if self.connection.watching:
            self.status.hint(self.connection.only_watches_hint())
        else:
            act()

    async def interrupt(self) -> None:
        if self.connection.watching:
            self.status.hint(self.connection.only_watches_hint())
        elif self.can_interrupt:
            self._interrupting = True
            self.status.interrupting(True)
            taken = await self._attempt(self.client.interrupt())
            self._interrupting = False
            self.status.interrupting(taken)  # until the turn has ended

    async def take_back(self, prompt: WaitingPrompt) -> bool:
        """Let the conversation forget a prompt that the agent has not answered. Return False if it has to stay."""
        rewind = Request(REWIND_CONVERSATION, ConversationRewind(prompt.id))
        for pause_s in _UNTIL_IDLE_S:
            await asyncio.sleep(pause_s)
            if self.reducer.prompts.unanswered is not prompt or self.connection.watching:
                return False  # the person has sent another one, or does not drive any more
            with suppress(CcbError, RequestFailed):
                await self.client.request(rewind)
                break
        return True

    async def next_mode(self) -> None:
        """Change to the mode after the one that the person chose last, also while the host has not confirmed that."""
        current = mode_in_force(self.reducer.facts.mode, self.reducer.facts.sandbox)
        chosen = self._modes_asked[-1] if self._modes_asked else current
        cycle = _CYCLE if can_change_sandbox(self.client) and not self._no_cage else _CYCLE[:-1]
        mode = cycle[(cycle.index(chosen) + 1 if chosen in cycle else 0) % len(cycle)]
        self._modes_asked.append(mode)
        try:
            await self._attempt(self._change_mode(mode))
        finally:
            self._modes_asked.remove(mode)

    async def _change_mode(self, mode: str) -> None:
        try:
            await change_mode(self.client, self.reducer, mode)
        except RequestFailed as error:
            if mode != CAGED:
                raise
            self._no_cage = True  # from now on the key leaves this mode out
            await change_mode(self.client, self.reducer, "default")
            self.hint(f"no cage: {HostText(str(error)).cell}")

    async def move_to_background(self) -> None:
        """Let the commands that the agent waits for go on in the background."""
        answer = await self.ask(Request(BACKGROUND_TASKS, None))
        if answer is not None:
            moved = answer.get("moved") is True
            self.hint("moved to the background" if moved else "no command runs that could go to the background")

    async def remember(self, note: str) -> bool:
        """Add a note to the instruction file on the host, and say where. Return False if it was not written."""
        answer = await self.ask(Request(REMEMBER, note))
        if answer is not None:
            self.reducer.notice(f"Noted in {HostText(str(answer.get('path'))).path}: {note}", Level.DIM)
        return answer is not None

    async def stop(self, host: str) -> None:
        if self.connection.state in (LinkState.LOST, LinkState.CLOSED):
            self.status.hint("there is no session to stop")
            return
        if self.connection.watching:
            self.status.hint(self.connection.only_watches_hint())
            return
        self.leaving.stops = True
        when = "" if self.connection.up else " when the connection is there again"
        self.reducer.notice(f"Stopping the session on {host}{when} …", Level.WARNING)
        await self._attempt(self.client.stop())

    async def ask(self, request: Request[P, A]) -> A | None:
        """Send a request. If it fails, show the error and return None."""
        try:
            return await self.client.request(request)
        except (CcbError, RequestFailed) as error:
            self.show_error(error)
            return None

    async def _attempt(self, action: Awaitable[object]) -> bool:
        """Await an action of the client. If it fails, show the error and return False."""
        if not self.connection.up:
            self.waits_for_connection()
        try:
            await action
        except UsageError as error:
            self.status.hint(error.what)
            return False
        except (CcbError, RequestFailed) as error:
            self.show_error(error)
            return False
        return True
