"""What the person submits: prompts, notes and slash commands, one after the other."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

from ccb.tunnel.plain_text import one_line

from ....session.client import SendAs, SessionClient
from ...completion.candidates import Candidate
from ...completion.completion_list import CompletionList
from ...model.blocks import Level
from ...model.transcript_reducer import TranscriptReducer
from ...widgets.composer import Composer
from ...widgets.transcript import Transcript
from ..commands import OWN_NAMES, TypedCommand, own_candidates, parse_command, refusal
from ..session_actions import SessionActions
from .arguments import KnownArguments

_QUEUED = SendAs(waits=True)


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

    async def submit(self, text: str, transcript: Transcript, how: SendAs) -> None:
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

    async def _submitted(self, text: str, transcript: Transcript, how: SendAs = _QUEUED) -> bool:
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

    async def _send(self, text: str, transcript: Transcript, how: SendAs = _QUEUED) -> bool:
        transcript.anchor()
        attachments = self._composer.attachments
        content = attachments.blocks(text) if attachments.named_in(text) else None
        return await self._actions.send_prompt(text, content, how=how)

    def _own_commands(self) -> list[Candidate]:
        return own_candidates(self._arguments.now())
