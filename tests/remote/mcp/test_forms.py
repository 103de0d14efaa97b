"""Forms of MCP servers on the host: hooks may answer them, or change the answer of the person."""

from __future__ import annotations

from typing import Any, cast

import pytest

from ccb.remote.hooks.hook_outcome import HookOutcome, read_answer
from ccb.remote.mcp.mcp_client import ServerForms

Json = dict[str, Any]

FORM: Json = {"message": "Which colour?", "requestedSchema": {"type": "object"}}
RED: Json = {"action": "accept", "content": {"colour": "red"}}


class World:
    """A person who answers red, and hooks that answer what they are told to."""

    def __init__(self, hooks: Json, *, somebody: bool = True) -> None:
        self.hooks = hooks
        self.somebody = somebody
        self.asked: list[Any] = []
        self.seen: list[tuple[str, Json, str]] = []

    def can_ask(self, _: object) -> bool:
        return self.somebody

    async def request(self, request: Any) -> Json:
        self.asked.append(request.payload)
        return RED

    async def run(self, event: str, payload: Json, match: str) -> HookOutcome:
        self.seen.append((event, payload, match))
        own = {"hookEventName": event, **self.hooks.get(event, {})}
        return read_answer(event, {"hookSpecificOutput": own} if len(own) > 1 else {})

    async def answer(self) -> Json:
        return await ServerForms(cast(Any, self), cast(Any, self)).answer("paint", FORM)


async def test_without_a_word_of_hooks_the_person_answers_and_hooks_see_both() -> None:
    world = World({})
    assert await world.answer() == RED
    asked, answered = world.seen
    assert asked[0::2] == ("Elicitation", "paint") and asked[1]["message"] == "Which colour?"
    assert answered[0::2] == ("ElicitationResult", "paint") and answered[1]["content"] == {"colour": "red"}
    nobody = World({}, somebody=False)
    assert await nobody.answer() == {"action": "decline"} and not nobody.asked


@pytest.mark.parametrize(
    ("hooks", "answer", "asks"),
    [
        ({"Elicitation": {"action": "accept", "content": {"colour": "blue"}}}, {"colour": "blue"}, 0),
        ({"Elicitation": {"action": "decline"}}, None, 0),
        ({"ElicitationResult": {"action": "accept", "content": {"colour": "green"}}}, {"colour": "green"}, 1),
        ({"ElicitationResult": {"action": "cancel"}}, None, 1),
    ],
)
async def test_a_hook_answers_a_form_or_changes_its_answer(hooks: Json, answer: Json | None, asks: int) -> None:
    world = World(hooks)
    action = next(iter(hooks.values()))["action"]
    given = {} if answer is None else {"content": answer}
    assert await world.answer() == {"action": action, **given} and len(world.asked) == asks
