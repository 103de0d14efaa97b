"""What the person submits: prompts, notes and slash commands, one after the other."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Protocol

from ccb.tunnel.errors import CcbError
from ccb.tunnel.plain_text import HostText, one_line
from ccb.tunnel.wire.client_requests import BACKGROUND_TASKS, READ_TASK, STOP_TASK
from ccb.tunnel.wire.control_protocol import P, Request, RequestFailed
from ccb.tunnel.wire.dataclass import dataclass

from ..session.session_client import Json, PromptDelivery, SessionClient
from ..transcript.blocks import Level
from ..transcript.transcript_reducer import TranscriptReducer
from .about_session import Exporting, McpServerList, SessionFacts
from .composer.completion_list import CompletionList
from .composer.completion_offers import Candidate
from .composer.composer import Composer
from .file_transfers import FileCarrying
from .model_and_mode import ModelChoosing, ThinkingSteering
from .panels.queue_panel import QueueEditing
from .session_actions import SessionActions
from .session_switching import SessionChoosing
from .slash_commands import OWN_NAMES, TypedCommand, own_candidates, parse_command, refusal
from .this_laptop import Insight, KnownArguments
from .widgets.transcript import Transcript

__all__ = ["Steering"]


@dataclass(frozen=True)
class Steering:
    """What the slash commands of one session steer."""

    tasks: TaskSteering
    mcp: McpServerList
    thinking: ThinkingSteering
    exporting: Exporting
    facts: SessionFacts
    choosing: SessionChoosing
    queue: QueueEditing
    insight: Insight
    files: FileCarrying
    models: ModelChoosing


_QUEUED = PromptDelivery(waits=True)


class Submissions:
    """Sends what is submitted, and completes what is typed. `run` runs a command of ccb, `choices` are
    arguments of commands that change. What cannot be sent goes back
    to `composer`."""

    def __init__(
        self,
        client: SessionClient,
        host: str,
        composer: Composer,
        reducer: TranscriptReducer,
        actions: SessionActions,
        arguments: KnownArguments,
    ) -> None:
        self.run: Callable[[TypedCommand], Awaitable[None]] | None = None
        self._composer = composer
        self._reducer = reducer
        self._actions = actions
        self._arguments = arguments
        self._backlog: deque[str] = deque()  # sent one after the other, before anything that is submitted later
        self.completion = CompletionList(composer, client, one_line(host), self._own_commands, arguments.ask, OWN_NAMES)
        composer.around.completes = self.completion.take_key

    async def submit(self, text: str, transcript: Transcript, how: PromptDelivery) -> None:
        """Send a prompt, or run a slash command. It waits behind what `submit_all` has not sent yet."""
        if self._backlog:
            self._backlog.append(text)
        elif not await self._submitted(text, transcript, how):
            self._composer.give_back(text)

    async def submit_all(self, first_prompt: str, texts: Sequence[str], transcript: Transcript) -> None:
        """Send the first prompt of the command line, and then what was typed before the session was there, in order. If
        something cannot be sent, it goes back to the composer with all that follows."""
        self._backlog.extend([first_prompt, *texts] if first_prompt else texts)
        is_prompt = bool(first_prompt)
        while self._backlog:
            text = self._backlog[0]
            if not await (self._send(text, transcript) if is_prompt else self._submitted(text, transcript)):
                self._composer.give_back("\n".join(self._backlog))
                self._backlog.clear()
                return
            self._backlog.popleft()
            is_prompt = False

    async def _submitted(self, text: str, transcript: Transcript, how: PromptDelivery = _QUEUED) -> bool:
        """Handle one input. Return False if it must go back to the composer."""
        command, why_not = parse_command(text.strip()), refusal(text)
        if why_not:
            self._reducer.notice(why_not, Level.WARNING)
            return False
        attachments = self._composer.attachments
        if text.startswith(("#", "!")) and attachments.named_in(text):
            self._reducer.notice(f"Nothing was sent: what begins with {text[0]} takes no files.", Level.WARNING)
            return False
        if text.startswith("#"):
            return await self._actions.remember(text[1:].strip())
        if text.startswith("!"):
            transcript.anchor()
            return await self._actions.send_prompt(text.strip(), how=replace(how, command_line=True, waits=True))
        known = self.completion.worker_commands.knows
        if command is None or self.run is None or (command.command is None and await known(command.name)):
            # A command of the worker has a turn of its own.
            return await self._send(text.strip(), transcript, how if command is None else replace(how, waits=True))
        await self.run(command)
        return True

    async def _send(self, text: str, transcript: Transcript, how: PromptDelivery = _QUEUED) -> bool:
        transcript.anchor()
        attachments = self._composer.attachments
        content = attachments.blocks(text) if attachments.named_in(text) else None
        return await self._actions.send_prompt(text, content, how=how)

    def _own_commands(self) -> list[Candidate]:
        return own_candidates(self._arguments.now())


_MAX_SHOWN = 20


class Hints(Protocol):
    """Shows a short answer to a key."""

    def __call__(self, text: str) -> None: ...


class TaskSteering:
    """Acts on the tasks of a session. Failures are shown, never raised."""

    def __init__(self, client: SessionClient, reducer: TranscriptReducer, actions: SessionActions, hint: Hints) -> None:
        self._client = client
        self._reducer = reducer
        self._actions = actions
        self._hint = hint

    async def command(self, argument: str) -> None:
        """/tasks lists them, /tasks ID shows the end of the output of one, /tasks stop ID ends it."""
        word, _, rest = argument.partition(" ")
        if not argument:
            self._reducer.notice(self._list())
        elif word == "stop" and rest.strip():
            task_id = rest.strip()
            if await self._ask(Request(STOP_TASK, task_id)) is not None:
                self._hint(f"{task_id} is being stopped")
        else:
            answer = await self._ask(Request(READ_TASK, word))
            if answer is not None:
                output = str(answer.get("output") or "").rstrip() or "(no output yet)"
                self._reducer.notice([f"{word}, {HostText(str(answer.get('status'))).cell}:", *output.split("\n")])

    async def move(self) -> None:
        """Let the commands that the agent waits for go on in the background."""
        answer = await self._ask(Request(BACKGROUND_TASKS, None))
        if answer is not None:
            moved = answer.get("moved") is True
            self._hint("moved to the background" if moved else "no command runs that could go to the background")

    def _list(self) -> list[str]:
        tasks = self._reducer.tasks.running
        if not tasks:
            return ["Nothing runs in the background."]
        now = time.monotonic()
        lines = [f"{task.id}  {now - task.since:.0f} s  {task.description}" for task in tasks[:_MAX_SHOWN]]
        if len(tasks) > _MAX_SHOWN:
            lines.append(f"and {len(tasks) - _MAX_SHOWN} more")
        return [*lines, "/tasks ID shows the output of one, /tasks stop ID ends it."]

    async def _ask(self, request: Request[P, Json]) -> Json | None:
        try:
            return await self._client.request(request)
        except (CcbError, RequestFailed) as error:
            self._actions.show_error(error)
            return None
