"""AskUserQuestion: the model lets the person choose."""

from __future__ import annotations

from ccb.tunnel.wire import tool_traits

from .input_schema import flag, object_of, text
from .tool_contract import Json, Tool, ToolContext, ToolDeclaration, ToolResult

_OPTION = object_of(
    {"label": text("1 to 5 words", 1, 200), "description": text("What choosing it means", 1, 2000)},
    "label",
    "description",
    closed=False,
)
_QUESTION = object_of(
    {
        "question": text("The whole question", 1, 2000),
        "header": text("At most 12 characters", 1, 40),
        "options": {"type": "array", "minItems": 2, "maxItems": 4, "items": _OPTION},
        "multiSelect": flag("Several options may be chosen"),
    },
    "question",
    "header",
    "options",
    closed=False,
)
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
