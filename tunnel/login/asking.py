"""A command's transport whose ssh, if there is one inside, can ask the person."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Self

from ..transports.command import CommandPipe, CommandTransport, Failure
from .askpass import Askpass, private_directory
from .prompter import Prompts


class AskingTransport:
    """`CommandTransport` with an askpass program of its own; what the command says while it connects is shown."""

    def __init__(self, commands: CommandTransport, stack: AsyncExitStack) -> None:
        self._commands = commands
        self._stack = stack

    @classmethod
    async def open(
        cls,
        name: str,
        shown: str,
        argv: Callable[[str], Sequence[str]],
        failure: Failure,
        prompts: Prompts,
        env: Mapping[str, str],
        *,
        lost_status: int | None = None,
    ) -> Self:
        """Ready to start commands; nothing is started yet. For the arguments see `CommandTransport`."""
        async with AsyncExitStack() as stack:
            directory = private_directory(env)
            stack.callback(shutil.rmtree, directory, ignore_errors=True)
            askpass = await stack.enter_async_context(Askpass(directory, prompts))
            variables = {**env, **askpass.variables}
            commands = CommandTransport(
                name, shown, argv, failure, env=variables, notice=prompts.banner, lost_status=lost_status
            )
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
