"""The tools that ask the person: AskUserQuestion, EnterPlanMode, ExitPlanMode. Reminders of plan mode."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Callable

from ccb.tunnel.wire import tool_traits
from ccb.tunnel.wire.dataclass import dataclass

from ..context.reminders import Occasion
from ..session_store.session_files import MAX_CHARS, PlanFile
from .input_schema import flag, object_of, text
from .tool_contract import Json, Tool, ToolContext, ToolDeclaration, ToolResult

_log = logging.getLogger(__name__)

_LABEL = {"label": text("1 to 5 words", 1, 200), "description": text("What choosing it means", 1, 2000)}
_OPTION = object_of(_LABEL, "label", "description", closed=False)
_ASKED = {
    "question": text("The whole question", 1, 2000),
    "header": text("At most 12 characters", 1, 40),
    "options": {"type": "array", "minItems": 2, "maxItems": 4, "items": _OPTION},
    "multiSelect": flag("Several options may be chosen"),
}
_QUESTION = object_of(_ASKED, "question", "header", "options", closed=False)
_QUESTIONS = {"type": "array", "minItems": 1, "maxItems": 4, "items": _QUESTION, "description": "The questions"}
_ANSWERS = {"type": "object", "description": "The user fills this in: leave it out"}
_SCHEMA = object_of({"questions": _QUESTIONS, "answers": _ANSWERS}, "questions", closed=False)
_DESCRIPTION = (
    "Asks the user up to four questions, each with two to four options to choose from.\n"
    "- Use it when the answer changes what you do and you cannot find it out: an unclear requirement, a choice between"
    " real alternatives. Do not ask whether to go on.\n"
    "- The user can always type an answer of their own, so offer no option such as “Other”.\n"
    "- Put the option that you recommend first, and say so in its label."
)
_NOBODY = "Nobody can be asked in this session. Decide yourself, go on, and name the decision in your answer."


class AskUserQuestion(Tool):
    """The permission step asks; the answers come back in the input, under the texts of the questions."""

    declaration = ToolDeclaration(tool_traits.ASK_USER_QUESTION, _DESCRIPTION, _SCHEMA, if_nobody_can_be_asked=_NOBODY)

    def validate(self, tool_input: Json, context: ToolContext) -> str | None:
        asked = [each["question"] for each in tool_input["questions"]]
        if len(set(asked)) < len(asked):
            return "Two questions have the same text."
        for each in tool_input["questions"]:
            labels = [option["label"] for option in each["options"]]
            if len(set(labels)) < len(labels):
                return f"Two options of the question {each['question']!r} have the same label."
        return None

    def question(self, tool_input: Json, context: ToolContext) -> Json:
        """Only a person gives answers."""
        return {name: value for name, value in tool_input.items() if name != "answers"}

    async def run(self, tool_input: Json, context: ToolContext) -> ToolResult:
        given = tool_input.get("answers") or {}
        answers = {each["question"]: _text(given.get(each["question"])) for each in tool_input["questions"]}
        said = [f"{asked} → {answer or '(no answer)'}" for asked, answer in answers.items()]
        answered = {asked: answer for asked, answer in answers.items() if answer}
        structured = {"questions": tool_input["questions"], "answers": answered}
        return ToolResult("\n".join(["The user has answered:", *said]), structured=structured)


def _text(answer: object) -> str:
    """Return an answer as text. Clients give the labels of several options as one text or as a list."""
    if isinstance(answer, list):
        return ", ".join(str(each) for each in answer)
    return "" if answer is None else str(answer)


PLAN = "plan"


class EnterPlanMode(Tool):
    """Switches the mode of the session once the person has agreed."""

    declaration = ToolDeclaration(
        tool_traits.ENTER_PLAN_MODE,
        "Asks the user to switch to plan mode: you look around and write a plan, and change nothing until the user has"
        " approved it.\n"
        "- Use it before work of some size whose way is not given: several reasonable designs, many files, an unclear"
        " scope. Not for a small or exactly described change, nor for research.",
        {"type": "object", "properties": {}},
        if_nobody_can_be_asked="Nobody can be asked in this session. Go on without plan mode.",
    )

    def validate(self, tool_input: Json, context: ToolContext) -> str | None:
        modes = context.call.modes
        return "Plan mode is on already." if modes is not None and modes.mode == PLAN else None

    async def run(self, tool_input: Json, context: ToolContext) -> ToolResult:
        if context.call.modes is not None:
            context.call.modes.enter_plan()
        return ToolResult("The user agrees: plan mode is on.", structured={"message": "plan mode is on"})


class ExitPlanMode(Tool):
    """Leaves plan mode with a plan that the person has approved, and perhaps changed."""

    declaration = ToolDeclaration(
        tool_traits.EXIT_PLAN_MODE,
        "Shows the user your plan and asks for approval to carry it out. Only in plan mode, when the plan is complete"
        " and you have no open question (ask those with AskUserQuestion before).\n"
        "- The plan is read from the plan file; leave `plan` out then. Do not ask in any other way whether it is"
        " fine.\n- Name in `allowedPrompts` the commands that the work will surely run, such as its tests.",
        {
            "type": "object",
            "properties": {
                "plan": text("The plan in Markdown, if no file has it"),
                "allowedPrompts": {
                    "type": "array",
                    "maxItems": 5,
                    "description": "Commands that need no question after the approval",
                    "items": object_of(
                        {
                            "tool": {"type": "string", "enum": [tool_traits.BASH.name]},
                            "prompt": text("One whole command line, as it will be run"),
                        },
                        "tool",
                        "prompt",
                        closed=False,
                    ),
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
        from ..permissions.rule_suggestions import exact_rule  # most sessions read no command

        wide = [each for each in wanted if exact_rule(each) is None]
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
            try:
                if path:
                    context.plan.write(plan)
            except OSError as error:
                _log.warning("the plan could not be written: %s", error)
        if context.call.modes is not None:
            context.call.modes.leave_plan()
        kept = f"\n\nThe plan is in {path}." if path else ""
        return ToolResult(text + kept, structured={"plan": plan, "filePath": path or None, "isAgent": False})


_LEAVE = "When the plan is complete, call ExitPlanMode, which shows it to the user; before that ask what is open."
_ANSWER = "Nobody can be asked in this session: when the plan is complete, give it as your answer and end your turn."
_WHAT = (
    "Say in the plan what will be changed and where, in which order, and how it will be checked. Be short enough to be"
    " read."
)
_OVER = "Plan mode is over: you may change files and run commands again, as far as the permissions go."


@dataclass(eq=False)
class PlanReminders:
    """A source of reminders. `mode` returns the permission mode, `can_ask` whether the person can be asked,
    `instructions` what a client says that a plan must be like. `told`: the model knows that plan mode is on."""

    plan: PlanFile
    mode: Callable[[], str]
    can_ask: Callable[[], bool]
    instructions: Callable[[], str | None] = lambda: None
    told: bool = False

    def __call__(self, occasion: Occasion) -> Iterable[str]:
        on = self.mode() == PLAN
        if occasion is Occasion.COMPACTED:
            self.told = False
            plan = self.plan.read()
            if plan:
                yield f"The plan of this session, in {self.plan.path}:\n\n{plan}"
        if on and not self.told:
            yield self._rules()
        elif on and occasion is Occasion.PROMPT:
            yield f"Plan mode is still on: change nothing{f' but {self.plan.path}' if self.plan.path else ''}."
        elif self.told and not on:
            yield _OVER
        self.told = on

    def _rules(self) -> str:
        path = self.plan.path
        where = "Keep the plan in your mind; there is no plan file."
        if path:
            state = "It holds an earlier plan: read it first." if self.plan.read() else "It does not exist yet."
            where = f"Write the plan to {path}, the only file that you may change (Write, Edit). {state}"
        return "\n".join(
            (
                "Plan mode is on. Look around and plan; change nothing, and run no command that does, until the user"
                " has approved the plan. This goes before any other instruction.",
                where,
                self.instructions() or _WHAT,
                _LEAVE if self.can_ask() else _ANSWER,
            )
        )
