"""Skill: loads the text of a skill when the model needs it. Its description lists the skills by name."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any

from ccb.tunnel.wire import tool_traits

from ..tools.contract import Tool, ToolContext, ToolDeclaration, ToolResult
from .definition import CommandFile, places, skill_text, task_of
from .expansion import filled

Json = dict[str, Any]

_LISTING_CHARS = 8000
_ENTRY_CHARS = 250
_FEWEST_CHARS = 20
_MAX_CHARS = 100_000

_SCHEMA: Json = {
    "type": "object",
    "properties": {
        "skill": {"type": "string", "description": "The name of the skill, as listed"},
        "args": {"type": "string", "description": "Arguments for the skill, if it takes any"},
    },
    "required": ["skill"],
    "additionalProperties": False,
}
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
            text, unchanged = await asyncio.get_running_loop().run_in_executor(None, self._text, skill, tool_input)
        except ValueError as error:
            return ToolResult(f"The skill cannot be read: {error}", is_error=True)
        if unchanged and skill.allowed and context.call.modes is not None:
            context.call.modes.grant(skill.allowed)
        return ToolResult(text)

    def preloaded(self, names: Iterable[str]) -> str:
        """Return the texts of these skills, for an agent that knows them from the start. What there is not, or cannot
        be read, is named in the text."""
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
        """Return what the model reads of a skill, and whether its file is unchanged. The commands in it stay text, so
        that the model runs them under the usual permissions. Raise ValueError."""
        text, unchanged = skill.body()
        whole = filled(text, str(tool_input.get("args") or ""), places(skill, self._session_id))
        return skill_text(skill, whole), unchanged


def listing(skills: Sequence[CommandFile]) -> str:
    """Return one line for each skill. Descriptions share a budget; where too little is left, only names stay."""
    room = _LISTING_CHARS - sum(len(each.name) + 5 for each in skills)
    share = min(_ENTRY_CHARS, room // max(1, len(skills)))
    if share < _FEWEST_CHARS:
        return "\n".join(f"- {each.name}" for each in skills)
    return "\n".join(f"- {each.name}: {_cut(' '.join(each.description.split()), share)}" for each in skills)


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"
