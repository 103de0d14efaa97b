"""The tools that the text of a slash command uses before the model sees it, and the rules that it brings."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from ccb.tunnel.wire import tool_traits
from ccb.tunnel.wire.kinds.commands import SHELL_CALL
from ccb.tunnel.wire.requests import new_uuid

from ...commands.registry import CommandRefused
from ...permissions.engine import PermissionEngine
from ...permissions.rules.rules import parse_rules
from ...tools.contract import ToolResult
from .call import CallRefused, ParsedCall, PipelineContext
from .pipeline import BEFORE
from .running import run

Json = dict[str, Any]

_PERSON_TIMEOUT_MS = 600_000

_log = logging.getLogger(__name__)


class CommandTools:
    """Runs single calls in the name of a command. Their results go into its text, not into the conversation."""

    def __init__(self, pipeline: PipelineContext) -> None:
        self._pipeline = pipeline

    async def shell(self, allowed: Sequence[str], command: str) -> str:
        """Run a command line as Bash would. Raise CommandRefused if it may not run or fails."""
        with granted(self._pipeline.config.permissions, allowed):
            result = await self._call(tool_traits.BASH.name, {"command": command})
        if result.is_error:
            raise CommandRefused(f"`{command[:500]}`: {result.content}")
        return str(result.content)

    async def of_person(self, command: str) -> str:
        """Run a command line that the person has typed, in the directory of the agent's shell. Nobody is asked, and
        it has no cage. Return what it printed. Raise CommandRefused if Bash is denied altogether."""
        tool = self._pipeline.config.visible_tools().get(tool_traits.BASH.name)
        if tool is None:
            raise CommandRefused(f"{tool_traits.BASH.name} is denied altogether")
        given = {"command": command, "timeout": _PERSON_TIMEOUT_MS}
        outcome = await run(self._pipeline, ParsedCall(SHELL_CALL + new_uuid().replace("-", ""), tool, given))
        return str(outcome.result.content)

    async def delegate(self, allowed: Sequence[str], task: Json) -> str:
        """Return the answer of a sub-agent. Raise CommandRefused if it may not start or fails."""
        with granted(self._pipeline.config.permissions, allowed):
            result = await self._call(tool_traits.TASK.name, task)
        if result.is_error:
            raise CommandRefused(str(result.content))
        return str(result.content)

    async def read(self, path: str) -> str | None:
        """Return the content of a file as Read would. Return None for a missing file, or one that may not be read."""
        context = self._pipeline.config.context
        full = context.host.real_path(path if path.startswith("/") else f"{context.cwd}/{path}")
        state = await context.host.stat(full)
        if state is None:
            return None
        result = await self._call(tool_traits.READ.name, {"file_path": full})
        return None if result.is_error or not isinstance(result.content, str) else result.content

    async def _call(self, name: str, tool_input: Json) -> ToolResult:
        tool = self._pipeline.config.visible_tools().get(name)
        if tool is None:
            return ToolResult(f"{name} is denied altogether", is_error=True)
        call = ParsedCall(f"command_{new_uuid().replace('-', '')}", tool, tool_input)
        try:
            for step in BEFORE:
                call = await step(self._pipeline, call)
            return (await run(self._pipeline, call)).result
        except CallRefused as refused:
            return refused.outcome.result


@contextmanager
def granted(permissions: PermissionEngine, rules: Sequence[str]) -> Iterator[None]:
    """Let the rules of a command hold during its turn. A rule that cannot be read does not count."""
    known: list[str] = []
    for rule in rules:
        try:
            parse_rules([rule])
        except ValueError as error:
            _log.warning("a rule of a command is left out: %s", error)
        else:
            known.append(rule)
    if known:
        permissions.grant_for_turn(known)
    try:
        yield
    finally:
        permissions.grant_for_turn(())
