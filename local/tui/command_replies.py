"""What the slash commands answer."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Protocol

from ccb.tunnel.plain_text import one_line

from ..session.client import LinkState, SessionClient
from .commands import Typed
from .model.blocks import Level
from .model.transcript_reducer import Story
from .theme.themes import THEMES
from .widgets.info import ReplInfo
from .widgets.status import tokens


class Screen(Protocol):
    """What the commands do to the REPL."""

    story: Story
    theme: str

    @property
    def link(self) -> tuple[LinkState, str]: ...

    async def attempt(self, doing: Awaitable[object]) -> bool: ...

    async def set_mode(self, mode: str) -> None: ...

    def copy_to_clipboard(self, text: str) -> None: ...

    def action_help(self) -> None: ...

    def action_leave_now(self) -> None: ...

    async def stop_session(self) -> None: ...


_JOURNAL = {
    "volatile": "journal in a directory that may not outlive a restart of the host",
    "memory": "journal in memory only",
}


class Replies:
    """Answers commands of one session."""

    def __init__(self, screen: Screen, client: SessionClient, info: ReplInfo, where: str) -> None:
        self._screen = screen
        self._client = client
        self._info = info
        self._where = where

    async def answer(self, typed: Typed) -> None:
        """Do what was typed, and say what came of it."""
        screen, argument = self._screen, typed.argument
        match typed.name if typed.command is not None else "":
            case "help":
                screen.action_help()
            case "quit":
                screen.action_leave_now()
            case "stop":
                await screen.stop_session()
            case "model":
                await self._model(argument)
            case "mode" if argument:
                await screen.set_mode(argument)
            case "mode":
                self._say(f"Permission mode: {one_line(screen.story.mode)}")
            case "theme":
                self._theme(argument)
            case "copy":
                self._copy()
            case "cost":
                self._say(self._cost())
            case "status":
                self._say(self._status())
            case _:
                self._say(f"There is no command /{one_line(typed.name)}. /help lists them.", Level.WARNING)

    def _say(self, text: str, level: Level = Level.INFO) -> None:
        self._screen.story.notice(text, level)

    async def _model(self, name: str) -> None:
        story = self._screen.story
        if not name:
            self._say(f"Model: {one_line(story.model) or 'not known before the first turn'}")
        elif await self._screen.attempt(self._client.control("set_model", model=name)):
            story.model = name
            self._say(f"Model: {one_line(name)}, from the next model call on")

    def _theme(self, name: str) -> None:
        if name in THEMES:
            self._screen.theme = THEMES[name]
        else:
            self._say(f"Theme: {self._screen.theme.removeprefix('ccb-')}. /theme dark, /theme light")

    def _copy(self) -> None:
        answer = self._screen.story.last_answer
        if answer:
            self._screen.copy_to_clipboard(answer)
        self._say("Copied the last answer." if answer else "There is no answer yet.")

    def _cost(self) -> str:
        totals = self._screen.story.totals
        return f"{tokens(totals.input_tokens)} tokens in, {tokens(totals.output_tokens)} out, ${totals.cost_usd:.4f}"

    def _status(self) -> str:
        hello, (state, reason) = self._client.hello, self._screen.link
        story = self._screen.story
        journal = _JOURNAL.get(hello.storage, "journal on disk")
        return "\n".join(
            (
                f"Session     {one_line(hello.session)}",
                f"Host        {self._where}",
                f"Worker      pid {hello.pid}, Python {one_line(hello.python)} on {one_line(hello.platform)}",
                f"Connection  {state.value}{': ' + one_line(reason) if reason else ''}; {journal}",
                f"Model       {one_line(story.model) or '?'}, permission mode {one_line(story.mode)}",
                f"Used        {self._cost()}",
            )
        )
