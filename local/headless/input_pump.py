"""The input of a headless run: how prompts and messages of the client reach the session."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

from ccb.tunnel.errors import CcbError
from ccb.tunnel.wire.control_protocol import Success, public_answer
from ccb.tunnel.wire.frames import Json
from ccb.tunnel.wire.messages import (
    ControlRequest,
    ControlResponse,
    UserMessage,
    as_dict,
    parse_message,
)
from ccb.tunnel.wire.session_options import LAPTOP_COMMANDS

from .own_answers import END
from .stderr_reports import report

if TYPE_CHECKING:
    from .event_printer import EventPrinter

Keep = Callable[[Sequence[Json]], Awaitable[None]]
"""Keeps the permission updates of an answer that are not for the session only."""
RunCommand = Callable[[str], Awaitable[str | None]]
"""Carries out the slash command of this machine that a prompt is, and returns its text; None for any other prompt."""


class InputPump:
    """Sends the input of one run to the session of `printer`. `keep` keeps what the client allows "always". A prompt
    that is a slash command of this machine gets its result here, once the prompts before it have theirs; the prompts
    behind it wait."""

    def __init__(self, printer: EventPrinter, keep: Keep, run_command: RunCommand) -> None:
        self._printer = printer
        self._keep = keep
        self._run_command = run_command
        self._held: deque[UserMessage] = deque()
        self._sending_held: asyncio.Task[None] | None = None

    async def send_prompt(self, prompt: str) -> bool:
        """Send the only prompt of the run. Return whether it went to the worker."""
        printer = self._printer
        text = await self._run_command(prompt) if _names_command(prompt) else None
        if text is None:
            printer.results.pending.sent(await printer.session.prompt(prompt))
        else:
            await printer.results.of_command(text)
        await printer.questions.input_ended()
        return text is None

    async def send_messages(self, messages: AsyncIterator[Json]) -> None:
        try:
            await self._send_messages(messages)
            if self._sending_held is not None:
                await self._sending_held
        finally:
            if self._sending_held is not None:
                self._sending_held.cancel()
                await asyncio.gather(self._sending_held, return_exceptions=True)

    async def _send_user(self, message: UserMessage) -> None:
        await self._printer.sent(await self._printer.session.send(message.body), message)

    async def _send_held(self) -> None:
        results = self._printer.results
        while self._held:
            message, text = self._held[0], None
            if _may_be_command(message):
                await results.settled()
                text = await self._run_command(message.text(""))
            if text is None:
                await self._send_user(message)
            else:
                await results.of_command(text, message.uuid)
            self._held.popleft()
        results.commands_wait = False

    async def _send_messages(self, messages: AsyncIterator[Json]) -> None:
        printer = self._printer
        async for body in messages:
            message = parse_message(body)
            if isinstance(message, UserMessage):
                if not self._held and not _may_be_command(message):
                    await self._send_user(message)
                    continue
                self._held.append(message)
                if len(self._held) == 1:
                    printer.results.commands_wait = True
                    self._sending_held = asyncio.create_task(self._send_held(), name="held prompts")
                continue
            if isinstance(message, ControlRequest):
                answer = printer.own.payload(message)
                if answer is not None:
                    await printer.output.message(public_answer(Success(message.request_id, answer)))
                    if message.subtype == END:
                        break
                    continue
            if isinstance(message, ControlResponse):
                await self._keep_updates(message.request_id, body)
                await printer.questions.closed(message.request_id)
            await printer.session.send(body)
        await printer.questions.input_ended()

    async def _keep_updates(self, request_id: str, body: Json) -> None:
        answer = as_dict(as_dict(body.get("response")).get("response"))
        updates = [each for each in (answer.get("updatedPermissions") or ()) if isinstance(each, dict)]
        if not updates or not self._printer.questions.asks_person(request_id):
            return
        try:
            await self._keep(updates)
        except CcbError as error:
            report(f"the permission updates are not kept: {error.what}")


def _may_be_command(message: UserMessage) -> bool:
    return len(message.blocks) == 1 and _names_command(str(message.blocks[0].get("text")))


def _names_command(prompt: str) -> bool:
    """Return whether a prompt begins with the name of a slash command of this machine. This loads none of them."""
    word = prompt.split(maxsplit=1)[0] if prompt.strip() else ""
    return word.startswith("/") and word[1:] in LAPTOP_COMMANDS.split()
