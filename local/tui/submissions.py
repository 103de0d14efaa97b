"""What the person submits: prompts, notes and slash commands, one after the other."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import replace

from ..session.session_client import PromptDelivery
from ..slash_commands.command_table import find_command
from ..slash_commands.typed_line import parse_command, refusal
from ..transcript.blocks import Level
from ..transcript.transcript_reducer import TranscriptReducer
from .command_replies import CommandReplies
from .composer.completion_names import WorkerCommands
from .composer.composer import Composer
from .session_actions import SessionActions
from .widgets.transcript import Transcript

_QUEUED = PromptDelivery(waits=True)


class Submissions:
    """Sends what is submitted. What cannot be sent goes back to `composer`."""

    def __init__(
        self,
        composer: Composer,
        reducer: TranscriptReducer,
        transcript: Transcript,
        actions: SessionActions,
        replies: CommandReplies,
        worker_commands: WorkerCommands,
    ) -> None:
        self._composer = composer
        self._reducer = reducer
        self._transcript = transcript
        self._actions = actions
        self._replies = replies
        self._worker_commands = worker_commands
        self._backlog: deque[str] = deque()  # sent one after the other, before anything that is submitted later

    async def submit(self, text: str, how: PromptDelivery) -> None:
        """Send a prompt, or run a slash command. It waits behind what `submit_all` has not sent yet."""
        if self._backlog:
            self._backlog.append(text)
        elif not await self._submitted(text, how):
            self._composer.give_back(text)

    async def submit_all(self, first_prompt: str, texts: Sequence[str]) -> None:
        """Send the first prompt of the command line, and then what was typed before the session was there, in order. If
        something cannot be sent, it goes back to the composer with all that follows."""
        self._backlog.extend([first_prompt, *texts] if first_prompt else texts)
        is_prompt = bool(first_prompt)
        while self._backlog:
            text = self._backlog[0]
            if not await (self._send(text) if is_prompt else self._submitted(text)):
                self._composer.give_back("\n".join(self._backlog))
                self._backlog.clear()
                return
            self._backlog.popleft()
            is_prompt = False

    async def _submitted(self, text: str, how: PromptDelivery = _QUEUED) -> bool:
        """Handle one input. Return False if it must go back to the composer."""
        typed, why_not = parse_command(text.strip()), refusal(text)
        if why_not:
            self._reducer.notice(why_not, Level.WARNING)
            return False
        if text.startswith(("#", "!")) and self._composer.attachments.named_in(text):
            self._reducer.notice(f"Nothing was sent: what begins with {text[0]} takes no files.", Level.WARNING)
            return False
        if text.startswith("#"):
            return await self._actions.remember(text[1:].strip())
        if text.startswith("!"):
            self._transcript.anchor()
            return await self._actions.send_prompt(text.strip(), how=replace(how, command_line=True, waits=True))
        if typed is None:
            return await self._send(text.strip(), how)
        if find_command(typed.name) is None and await self._worker_commands.knows(typed.name):
            return await self._send(text.strip(), replace(how, waits=True))  # it has a turn of its own
        await self._replies.answer(typed)
        return True

    async def _send(self, text: str, how: PromptDelivery = _QUEUED) -> bool:
        self._transcript.anchor()
        attachments = self._composer.attachments
        content = attachments.blocks(text) if attachments.named_in(text) else None
        return await self._actions.send_prompt(text, content, how=how)
