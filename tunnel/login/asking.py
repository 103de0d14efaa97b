"""A command transport whose command may be or contain an ssh: its questions reach the person through askpass."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from contextlib import AsyncExitStack
from typing import Self

from ..transports.command import CommandPipe, CommandTransport, PipeCommand
from .askpass import Askpass, private_directory
from .prompter import Prompts


class AskingTransport:
    """A `CommandTransport` with an askpass program. What the command says while it connects is shown to the person."""

    def __init__(self, commands: CommandTransport, stack: AsyncExitStack) -> None:
        self._commands = commands
        self._stack = stack

    @classmethod
    async def open(cls, command: PipeCommand, prompts: Prompts, env: Mapping[str, str]) -> Self:
        """Return a transport that is ready to start `command`; nothing is started yet. Raise ConfigError."""
        async with AsyncExitStack() as stack:
            directory = private_directory(env)
            stack.callback(shutil.rmtree, directory, ignore_errors=True)
            askpass = await stack.enter_async_context(Askpass(directory, prompts))
            variables = {**env, **askpass.variables}
            commands = CommandTransport(command, env=variables, notice=prompts.banner)
            return cls(commands, stack.pop_all())

    @property
    def name(self) -> str:
        return self._commands.name

    async def execute(self, command: str) -> CommandPipe:
        return await self._commands.execute(command)

    @property
    def alive(self) -> bool:
        return self._commands.alive

    @property
    def warm(self) -> bool:
        return False

    def abort(self) -> None:
        self._commands.abort()

    async def close(self) -> None:
        await self._commands.close()
        await self._stack.aclose()
