"""The slash commands of files, and the skills that the model may load."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from functools import partial

from ccb.tunnel.wire import tool_traits

from ..permissions.paths import PathPattern, Places
from ..settings.worker_settings import USER, WorkerSettings
from ..tools.registry import ToolRegistry
from .definition import SKILL, CommandFile, places, skill_text, task_of
from .discovery import discover
from .expansion import expand, named_files
from .registry import CommandCall, Expanded, SlashCommand


class FileCommands:
    """`files` are the commands and skills that count under the settings in force. They are found once for each value of
    the settings, so a file that the session's own tools write does not count in the same session."""

    def __init__(self, session_id: str, tools: ToolRegistry) -> None:
        self.files: Sequence[CommandFile] = ()
        self.problems: list[str] = []
        self._told: set[str] = set()  # skills for certain files
        self._worked_with: set[str] = set()
        self._session_id = session_id
        self._tools = tools
        self._sources: tuple[WorkerSettings, Sequence[str], Sequence[str] | None] | None = None

    async def use(self, settings: WorkerSettings, homes: Sequence[str], only: Sequence[str] | None = None) -> bool:
        """Find the files that count under these settings, and offer the model its skills: those that `only` names.
        `homes` are the directories with files of the person. Return False if nothing has changed."""
        sources = settings, homes, only
        if self._sources is not None and settings is self._sources[0] and sources[1:] == self._sources[1:]:
            return False
        had = any(each.for_model for each in self.files)
        self._sources = sources
        problems: list[str] = []
        loop = asyncio.get_running_loop()
        self.files = await loop.run_in_executor(None, discover, settings, homes, problems.append)
        self.problems = problems
        skills = [each for each in self.files if each.for_model and (only is None or _named(each.name, only))]
        if skills:
            from .skill_tool import SkillTool

            self._tools.add([SkillTool(skills, self._session_id)])
        elif had:
            self._tools.remove([tool_traits.SKILL.name])
        return True

    @property
    def readable(self) -> list[str]:
        """The rules that let the files beside the skills of the person be read."""
        return [f"Read(/{each.directory}/**)" for each in self.files if (each.kind, each.source) == (SKILL, USER)]

    def commands(self) -> Iterator[SlashCommand]:
        """Yield the commands that a person may call."""
        for each in self.files:
            if each.for_person:
                source = f"{each.source} skill" if each.kind == SKILL else each.source
                yield SlashCommand(each.name, each.description, partial(self._run, each), each.hint, source)

    def skills(self) -> list[dict[str, str]]:
        """Return the names and descriptions of the skills."""
        return [{"name": each.name, "description": each.description} for each in self.files if each.kind == SKILL]

    def due(self, worked_with: Iterable[str], places: Places, *, again: bool) -> Iterator[str]:
        """Yield a text about each skill for certain files, when the model has worked with one of them. `again`: also
        about those that were told."""
        new = [path for path in worked_with if path not in self._worked_with]
        self._worked_with.update(new)
        for each in self.files:
            if not (each.paths and each.for_model):
                continue
            told = each.name in self._told
            if told or any(PathPattern(one).forbids(path, places) for one in each.paths for path in new):
                self._told.add(each.name)
                if again or not told:
                    yield f"Another skill, for the files that you work with: {each.name}: {each.description}"

    async def _run(self, file: CommandFile, call: CommandCall) -> Expanded:
        text, unchanged = await asyncio.get_running_loop().run_in_executor(None, file.body)
        allowed = file.allowed if unchanged else ()
        shell = partial(call.shell, allowed) if unchanged and call.shell is not None else None
        whole = skill_text(file, await expand(text, call.arguments, places(file, self._session_id), shell))
        if file.agent and call.delegate is not None:
            whole = f"/{file.name} was done by an agent of its own. Its answer:\n\n" + await call.delegate(
                allowed, task_of(file, whole)
            )
        blocks = [{"type": "text", "text": whole}, *call.attached]
        for path in named_files(whole):
            content = await call.read(path) if call.read is not None else None
            if content is not None:
                blocks.append({"type": "text", "text": f"The file {path}:\n{content}"})
        return Expanded(blocks, allowed, file.model)


def _named(skill: str, names: Sequence[str]) -> bool:
    return any(skill == name or skill.endswith(f":{name}") for name in names)
