"""The end of a long session stands on the screen before the worker has read its journal."""

from __future__ import annotations

from dataclasses import replace

from tests.support.repl.pilot import desk
from tests.support.repl.scripted_session import ScriptedSession, hello

from ccb.local.transcript.blocks import PromptBlock

_SAID = {"type": "user", "message": {"role": "user", "content": "what the person asked"}, "uuid": "u1"}
_TEXT = {"type": "text", "text": "The very last words."}
_MESSAGE = {"id": "m1", "role": "assistant", "model": "m", "content": [_TEXT], "usage": {}}
_ANSWER = {"type": "assistant", "message": _MESSAGE, "uuid": "a1", "parent_tool_use_id": None}
_RECORDS = [
    {"seq": 93, "kind": "input", "body": {"id": "u1", "body": _SAID}},
    {"seq": 95, "kind": "prompt", "body": {"context": [], "items": [{"input": "u1"}]}},
    {"seq": 97, "kind": "message", "body": _ANSWER},
    {"seq": "none", "kind": 3},
]


async def test_the_last_screen_comes_with_hello_and_the_events_take_its_place() -> None:
    session = ScriptedSession(greeting=replace(hello(), seq=99, last={"records": _RECORDS}))
    async with desk(session, sees=("❯ what the person asked", "The very last words.")) as at:
        await at.prompt("and now?", sees="❯ and now?")
        shown = at.view.transcript
        assert isinstance(shown.blocks[-1], PromptBlock)  # below what is shown early
        with session.replay():
            session.skip(97)
            session.prompted("what the person asked", "u0")
            session.fact("prompt", context=[], items=[{"input": "u0"}])
            session.text("The very last words.")
            session.finish()
        await at.sees("97 events are not loaded")
        texts = ("what the person asked", "The very last words.", "and now?")
        await at.until(lambda: all(at.screen.count(text) == 1 for text in texts))
        assert isinstance(shown.blocks[-1], PromptBlock)


async def test_a_session_that_ends_at_once_keeps_nothing_that_was_shown_early() -> None:
    session = ScriptedSession(greeting=replace(hello(), seq=99, last={"records": _RECORDS}))
    async with desk(session, sees="The very last words.") as at:
        await session.stop()
        await at.sees("The session has ended on the host", lacks="The very last words.")
