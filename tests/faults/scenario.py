"""The piece of work every faulty session does: what the model says, and what must be on the host afterwards.

The model is a function of the history it is given, so a request that is repeated gets the same answer, and after an
answer that broke off between its tool calls it goes on with the next one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.support.model.model_script import Recorded

Json = dict[str, Any]

PROMPTS = ("first: look and count", "second: wait for me", "third: finish")
"""One turn each; the second is interrupted."""

INTERRUPT_AT = "waiting"
"""The file that says that the second turn's tool runs."""

COUNTS = ["one", "two", *(f"tick {n}" for n in range(1, 6)), "three"]
"""The lines of `count` after an undisturbed session."""

ALLOWED = ["Bash(echo one*)", "Bash(for *)", "Bash(touch *)", "Edit", "Write"]
ASKED: Json = {
    "questions": [
        {
            "question": "Which end?",
            "header": "End",
            "options": [{"label": label, "description": f"The {label} one"} for label in ("good", "bad")],
        }
    ]
}
FILES = {"a.txt": "alpha\n" * 40, "b.txt": "beta\n" * 40, "edit.txt": "old line\nkept line\n"}


def granted(tool_input: Json) -> Json:
    """The input with which the client allows a call: a question gets its answer."""
    return {**tool_input, "answers": {"Which end?": "good"}} if "questions" in tool_input else tool_input


def _bash(command: str) -> Json:
    return {"type": "tool_use", "name": "Bash", "input": {"command": command}}


def _tool(name: str, **given: str) -> Json:
    return {"type": "tool_use", "name": name, "input": given}


def _turn(number: int, home: str) -> list[Mapping[str, Any]]:
    """The answers of one turn, in order."""
    ticks = "for n in 1 2 3 4 5; do echo tick $n >> count; sleep 0.1; done; echo ticked"
    if number == 0:
        return [
            {
                "blocks": [
                    {"type": "text", "text": "I look at the files and count. " * 8},
                    _tool("Read", file_path=f"{home}/a.txt"),
                    _tool("Read", file_path=f"{home}/b.txt"),
                    _tool("Read", file_path=f"{home}/edit.txt"),
                    _bash("echo one >> count; echo counted"),
                ],
                "delay": 0.004,
            },
            {
                "blocks": [
                    _tool("Edit", file_path=f"{home}/edit.txt", old_string="old line", new_string="new line"),
                    _bash("echo two >> count; echo asked"),
                ]
            },
            {"blocks": [{"type": "text", "text": "Now the long one."}, _bash(ticks)]},
            {"text": "The first part is done, and this is a longer sentence about it. " * 6, "delay": 0.004},
        ]
    if number == 1:
        return [{"blocks": [_bash(f"touch {INTERRUPT_AT}; sleep 60; echo never >> count")]}]
    return [
        {
            "blocks": [
                {"type": "tool_use", "name": "AskUserQuestion", "input": ASKED},
                _tool("Write", file_path=f"{home}/new.txt", content="written once\n"),
                _bash("echo three >> count; echo third"),
            ]
        },
        {"text": "All of it is done.", "delay": 0.01},
    ]


def _is_among(block: Json, called: list[Json]) -> bool:
    return any((block["name"], block["input"]) == (other["name"], other["input"]) for other in called)


def model(home: str) -> Any:
    """The scripted model of a session in `home`."""

    def answer(request: Recorded) -> Mapping[str, Any] | None:
        turn = -1
        called: list[Json] = []
        for message in request.messages:
            text = str(message.get("content"))
            if message["role"] == "user":
                for number, prompt in enumerate(PROMPTS):
                    if prompt in text:
                        turn, called = number, []
            else:
                called += [block for block in message["content"] if block["type"] == "tool_use"]
        for step in _turn(turn, home) if turn >= 0 else []:
            blocks = step.get("blocks", [])
            left = [block for block in blocks if block["type"] == "tool_use" and not _is_among(block, called)]
            if left or not blocks:
                broke_off = len(left) < sum(block["type"] == "tool_use" for block in blocks)
                return {**step, "blocks": left} if broke_off else step
        return {"text": "Nothing is left to do."}

    return answer
