"""EnterPlanMode and ExitPlanMode: the person agrees that the model plans first, and to the plan."""

from __future__ import annotations

import logging
from typing import Any

from ccb.tunnel.wire import tool_traits

from ..contract import Tool, ToolContext, ToolDeclaration, ToolResult
from ..plan_file import MAX_CHARS

Json = dict[str, Any]

_log = logging.getLogger(__name__)

PLAN = "plan"
_ENTER = (
    "Asks the user to switch to plan mode: you look around and write a plan, and change nothing until the user has"
    " approved it.\n"
    "- Use it before work of some size whose way is not given: several reasonable designs, many files, an unclear"
    " scope. Not for a small or exactly described change, nor for research."
)
_EXIT = (
    "Shows the user your plan and asks for approval to carry it out. Only in plan mode, when the plan is complete and"
    " you have no open question (ask those with AskUserQuestion before).\n"
    "- The plan is read from the plan file; leave `plan` out then. Do not ask in any other way whether it is fine.\n"
    "- Name in `allowedPrompts` the commands that the work will surely run, such as its tests."
)


class EnterPlanMode(Tool):
    """Switches the mode of the session once the person has agreed."""

    declaration = ToolDeclaration(
        tool_traits.ENTER_PLAN_MODE,
        _ENTER,
        {"type": "object", "properties": {}},
        if_nobody_can_be_asked="Nobody can be asked in this session. Go on without plan mode.",
    )

    def validate(self, tool_input: Json, context: ToolContext) -> str | None:
        return (
            "Plan mode is on already." if context.call.modes is not None and context.call.modes.mode == PLAN else None
        )

    async def run(self, tool_input: Json, context: ToolContext) -> ToolResult:
        if context.call.modes is not None:
            context.call.modes.enter_plan()
        return ToolResult("The user agrees: plan mode is on.", structured={"message": "plan mode is on"})


class ExitPlanMode(Tool):
    """Leaves plan mode with a plan that the person has approved, and perhaps changed."""

    declaration = ToolDeclaration(
        tool_traits.EXIT_PLAN_MODE,
        _EXIT,
        {
            "type": "object",
            "properties": {
                "plan": {"type": "string", "description": "The plan in Markdown, if no file has it"},
                "allowedPrompts": {
                    "type": "array",
                    "maxItems": 5,
                    "description": "Commands that need no question after the approval",
                    "items": {
                        "type": "object",
                        "properties": {
                            "tool": {"type": "string", "enum": [tool_traits.BASH.name]},
                            "prompt": {"type": "string", "description": "One whole command line, as it will be run"},
                        },
                        "required": ["tool", "prompt"],
                    },
                },
            },
        },
        if_nobody_can_be_asked=(
            "Nobody can be asked in this session, so plan mode stays on. Give the plan as your answer."
        ),
    )

    def validate(self, tool_input: Json, context: ToolContext) -> str | None:
        if context.call.modes is not None and context.call.modes.mode != PLAN:
            return "Plan mode is not on: there is nothing to leave. Go on with the work."
        plan = self.question(tool_input, context)["plan"]
        if not plan:
            where = f" Write it to {context.plan.path} first." if context.plan.path else " Give it as `plan`."
            return f"There is no plan yet.{where}"
        wanted = [str(each["prompt"]) for each in tool_input.get("allowedPrompts") or ()]
        wide = [each for each in wanted if not _is_exact(each)]
        if wide:
            rule = "Each of `allowedPrompts` must be a whole command on one line, without a star. This is not:"
            return f"{rule} {wide[0][:200]!r}"
        return None if len(plan) <= MAX_CHARS else f"The plan is longer than {MAX_CHARS:,} characters: shorten it."

    def question(self, tool_input: Json, context: ToolContext) -> Json:
        asked = {**tool_input, "plan": str(tool_input.get("plan") or "").strip() or context.plan.read()}
        return {**asked, "planFilePath": context.plan.path} if context.plan.path else asked

    async def run(self, tool_input: Json, context: ToolContext) -> ToolResult:
        plan, path = self.question(tool_input, context)["plan"], context.plan.path
        text = "The user has approved the plan. Start with the work, and keep a todo list if it has several steps."
        if plan != context.plan.read():
            text += f"\n\nThe plan as approved:\n\n{plan}"
            self._keep(plan, context)
        if context.call.modes is not None:
            context.call.modes.leave_plan()
        kept = f"\n\nThe plan is in {path}." if path else ""
        return ToolResult(text + kept, structured={"plan": plan, "filePath": path or None, "isAgent": False})

    def _keep(self, plan: str, context: ToolContext) -> None:
        if context.plan.path:
            try:
                context.plan.write(plan)
            except OSError as error:
                _log.warning("the plan could not be written: %s", error)


def _is_exact(command: str) -> bool:
    from ...permissions.shell.suggest import exact_rule  # most sessions read no command

    return exact_rule(command) is not None
