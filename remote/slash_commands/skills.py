"""The commands and skills of files in a session, and the tool Skill."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from functools import partial

from ccb.tunnel.wire import tool_traits
from ccb.tunnel.wire.frames import Json

from ..permissions.paths import PathPattern, PathScope
from ..settings.worker_settings import USER, WorkerSettings
from ..system.deadline import in_thread
from ..tools.input_schema import object_of, text
from ..tools.tool_contract import Tool, ToolContext, ToolDeclaration, ToolResult
from ..tools.toolset import Toolset
from .command_files import SKILL, CommandFile, discover, expand, filled, named_files, places, skill_text, task_of
from .command_registry import CommandCall, Expanded, SlashCommand


class FileCommands:
    """The commands and skills under the settings in force, found once for them: a session cannot add its own."""

    def __init__(self, session_id: str, tools: Toolset) -> None:
        self.files: Sequence[CommandFile] = ()
        self._told: set[str] = set()  # skills for certain files
        self._worked_with: set[str] = set()
        self._session_id = session_id
        self._tools = tools
        self._sources: tuple[WorkerSettings, Sequence[str], Sequence[str] | None] | None = None
        self._searching = asyncio.Lock()  # a reload must not answer before the search that a turn has begun

    async def use(self, settings: WorkerSettings, homes: Sequence[str], only: Sequence[str] | None) -> list[str] | None:
        """Find what counts, and offer the model the skills that `only` names. Return what is wrong with files, None if
        nothing has changed."""
        sources = settings, homes, only
        problems: list[str] = []
        async with self._searching:
            if self._sources is not None and settings is self._sources[0] and sources[1:] == self._sources[1:]:
                return None
            self.files = await in_thread(discover, settings, homes, problems.append)
            self._sources = sources
        skills = [
            each
            for each in self.files
            if each.for_model
            and (only is None or any(each.name == name or each.name.endswith(f":{name}") for name in only))
        ]
        if skills:
            self._tools.add([SkillTool(skills, self._session_id)])
        else:
            self._tools.remove([tool_traits.SKILL.name])
        return problems

    @property
    def readable(self) -> list[str]:
        """The rules that let the files beside the skills of the person be read."""
        return [f"Read(/{each.directory}/**)" for each in self.files if (each.kind, each.source) == (SKILL, USER)]

    def commands(self) -> Iterator[SlashCommand]:
        for each in self.files:
            if each.for_person:
                source = f"{each.source} skill" if each.kind == SKILL else each.source
                yield SlashCommand(each.name, each.description, partial(self._run, each), each.hint, source)

    def skills(self) -> list[dict[str, str]]:
        return [{"name": each.name, "description": each.description} for each in self.files if each.kind == SKILL]

    def due(self, worked_with: Iterable[str], places: PathScope, *, again: bool) -> Iterator[str]:
        """Yield texts on skills for files that the model has worked with; `again`: also on those that were told."""
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
        text, unchanged = await in_thread(file.body)
        allowed = file.allowed if unchanged else ()
        shell = partial(call.shell, allowed) if unchanged and call.shell is not None else None
        whole = skill_text(file, await expand(text, call.arguments, places(file, self._session_id), shell))
        if file.agent and call.delegate is not None:
            answer = await call.delegate(allowed, task_of(file, whole))
            whole = f"/{file.name} was done by an agent of its own. Its answer:\n\n{answer}"
        blocks = [{"type": "text", "text": whole}, *call.attached]
        for path in named_files(whole):
            content = await call.read(path) if call.read is not None else None
            if content is not None:
                blocks.append({"type": "text", "text": f"The file {path}:\n{content}"})
        return Expanded(blocks, allowed, file.model)


_LISTING_CHARS = 8000
_ENTRY_CHARS = 250
_FEWEST_CHARS = 20
_MAX_CHARS = 100_000

_SCHEMA = object_of(
    {"skill": text("The name of the skill, as listed"), "args": text("Arguments for the skill, if it takes any")},
    "skill",
)
_DESCRIPTION = (
    "Loads a skill: instructions for a kind of work, with files beside them. When a skill in the list fits what the "
    "user asks for, load it before you do anything else, then follow it. Load only skills from the list, and none that "
    "is loaded already.\n\nSkills:\n"
)


class SkillTool(Tool):
    """The tool for these skills."""

    def __init__(self, skills: Sequence[CommandFile], session_id: str) -> None:
        self._skills = {each.name: each for each in skills}
        self._session_id = session_id
        described = _DESCRIPTION + listing([each for each in self._skills.values() if not each.paths])
        self.declaration = ToolDeclaration(tool_traits.SKILL, described, _SCHEMA, max_output_chars=_MAX_CHARS)

    def is_read_only(self, tool_input: Json) -> bool:
        return True

    def validate(self, tool_input: Json, context: ToolContext) -> str | None:
        if tool_input["skill"].lstrip("/") not in self._skills:
            return f"There is no skill {tool_input['skill'][:100]!r}."
        return None

    def stands_for(self, tool_input: Json) -> tuple[str, Json] | None:
        """Return the call that starts the agent of a skill which has one of its own."""
        skill = self._skills.get(str(tool_input.get("skill")).lstrip("/"))
        if skill is None or not skill.agent:
            return None
        try:
            return tool_traits.TASK.name, task_of(skill, self._text(skill, tool_input)[0])
        except ValueError:
            return None

    async def run(self, tool_input: Json, context: ToolContext) -> ToolResult:
        skill = self._skills[tool_input["skill"].lstrip("/")]
        try:
            text, unchanged = await in_thread(self._text, skill, tool_input)
        except ValueError as error:
            return ToolResult(f"The skill cannot be read: {error}", is_error=True)
        if unchanged and skill.allowed and context.call.modes is not None:
            context.call.modes.grant(skill.allowed)
        return ToolResult(text)

    def preloaded(self, names: Iterable[str]) -> str:
        """Return the texts of these skills. What there is not, or cannot be read, is named in the text."""
        texts = []
        for name in names:
            skill = self._skills.get(name)
            try:
                text = f"There is no skill {name!r}." if skill is None else self._text(skill, {})[0]
            except ValueError as error:
                text = f"The skill {name!r} cannot be read: {error}"
            texts.append(text[:_MAX_CHARS])
        return "\n\n".join(texts)

    def _text(self, skill: CommandFile, tool_input: Json) -> tuple[str, bool]:
        """Return what the model reads of a skill, commands as text, and if the file is unchanged. Raise ValueError."""
        text, unchanged = skill.body()
        whole = filled(text, str(tool_input.get("args") or ""), places(skill, self._session_id))
        return skill_text(skill, whole), unchanged


def listing(skills: Sequence[CommandFile]) -> str:
    """Return one line for each skill. Descriptions share a budget; where too little is left, only names stay."""
    room = _LISTING_CHARS - sum(len(each.name) + 5 for each in skills)
    share = min(_ENTRY_CHARS, room // max(1, len(skills)))
    if share < _FEWEST_CHARS:
        return "\n".join(f"- {each.name}" for each in skills)
    described = [(each.name, " ".join(each.description.split())) for each in skills]
    return "\n".join(f"- {name}: {said if len(said) <= share else said[: share - 1] + '…'}" for name, said in described)
