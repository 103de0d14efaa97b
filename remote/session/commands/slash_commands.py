"""The slash commands of a session: those of files, once their settings are known, and /hooks."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from ccb.tunnel.wire import SessionOptions

from ...agent.agent import Agent
from ...commands.registry import CommandCall, CommandRegistry, Printed, SlashCommand
from ...context.reminders import Occasion
from ...hooks.runner import HookRunner
from ...hooks.table import EVENTS
from ...permissions.paths import Places
from ...settings.worker_settings import WorkerSettings

if TYPE_CHECKING:
    from ...commands.file_commands import FileCommands

Json = dict[str, Any]

_MAX_CHARS = 300  # of one command in the list of hooks
_FOLDERS = (".claude/commands", ".claude/skills")


class SessionCommands:
    """What a session with few files has not loaded, costs nothing."""

    def __init__(self, agent: Agent, session_id: str, home: str) -> None:
        self._agent = agent
        self._session_id = session_id
        self._home = home
        self._files: FileCommands | None = None
        registry = agent.commands or CommandRegistry()
        registry.register(
            SlashCommand("hooks", "Show the hooks, and where they are configured", self._hooks, local=True)
        )
        registry.provide(self._from_files)
        announced = agent.config.disclosure.announced
        announced.add("commands", lambda: [each.public() for each in registry.commands])
        announced.add("skills", self._skills)
        announced.add("plugins", self._plugins)

    async def use(self, settings: WorkerSettings, options: SessionOptions) -> list[str]:
        """Find the files that count under these settings and options. Return what is wrong with files, once."""
        context, own_files = self._agent.config.context, options.own_files
        own = [os.path.join(os.path.dirname(context.spill.directory), own_files)] if own_files else []
        homes = [*own, self._home]
        roots = (*homes, *settings.trusted_directories)
        folders = (os.path.join(root, name) for root in roots for name in _FOLDERS)
        if self._files is None and not settings.plugins and not any(map(os.path.isdir, folders)):
            return []
        if self._files is None:
            from ...commands.file_commands import FileCommands

            self._files = FileCommands(self._session_id, self._agent.config.tools)
            self._agent.reminders.follow(self._due)
        if not await self._files.use(settings, homes, options.skills):
            return []
        self._agent.config.permissions.lend(self._files.readable)
        if self._agent.commands is not None:
            self._agent.commands.refresh()
        return self._files.problems

    def _due(self, occasion: Occasion) -> Iterable[str]:
        """Return what the model is told of skills for the files that it works with."""
        context = self._agent.config.context
        if self._files is None or not any(each.paths for each in self._files.files):
            return ()
        places = Places.of(context.cwd, context.cages.home)
        return self._files.due(context.files.paths, places, again=occasion is Occasion.COMPACTED)

    def _from_files(self) -> Iterator[SlashCommand]:
        return self._files.commands() if self._files is not None else iter(())

    def _skills(self) -> list[Json]:
        return [*self._files.skills()] if self._files is not None else []

    def _plugins(self) -> list[Json]:
        plugins = self._agent.config.settings.plugins
        return [{"name": each.name, "path": each.path, "source": f"{each.name}@inline"} for each in plugins]

    async def _hooks(self, _: CommandCall) -> Printed:
        return Printed(_listing(self._agent.hooks))


def _listing(runner: HookRunner | None) -> str:
    """Return the hooks by event, each with where it comes from, and what is wrong with others."""
    lines: list[str] = []
    hooks = runner.hooks if runner is not None else ()
    for event in EVENTS:
        of_event = [hook for hook in hooks if hook.event == event]
        if of_event:
            lines.append(event)
        for hook in of_event:
            does = " ".join(hook.does.split())
            matcher = f"{hook.matcher}: " if hook.matcher else ""
            where = hook.source + (f", {hook.path}" if hook.path else "")
            more = [f"if {hook.condition}" if hook.condition else "", "async" * hook.beside, "once" * hook.once]
            facts = "; ".join(filter(None, [where, *more, f"at most {hook.timeout_s:g} s"]))
            lines.append(f"  {matcher}{does[:_MAX_CHARS]}  ({facts})")
    if not lines:
        lines.append('No hooks run on this host. They are configured under "hooks" in the settings.')
    problems = runner.problems if runner is not None else []
    return "\n".join([*lines, *(["", "Not used:"] if problems else []), *(f"  {each}" for each in problems)])
