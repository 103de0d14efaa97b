"""Text that wants to drive the terminal reaches it harmless, wherever it is shown."""

from __future__ import annotations

import re

import pytest
from tests.support.repl.hostile_places import ASKED, TOLD, Place, lost
from tests.support.repl.pilot import Desk, desk
from tests.support.repl.recording import record, written_by
from tests.support.repl.scripted_session import ScriptedSession, hello

EVIL = (
    "\x1b]52;c;ZXZpbA==\x07\x1b[2J\x9b2J\x9d52;c;eA==\x9c\x08\x7f\u202e\u2066\x00\r[red]\x1b]8;;http://evil/\x1b\\END"
)
_FORBIDDEN = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def what_the_terminal_gets(at: Desk) -> str:
    """The text of everything on the screen. A link in its styles leads where the text says."""
    strips = at.app.screen._compositor.render_strips()
    links = [(segment, segment.style.link) for strip in strips for segment in strip if segment.style]
    assert not [link for segment, link in links if link and segment.text not in link]
    assert not [segment for strip in strips for segment in strip if segment.control]
    return "\n".join("".join(segment.text for segment in strip) for strip in strips)


def harmless(at: Desk) -> None:
    assert _FORBIDDEN.findall(what_the_terminal_gets(at)) == []


async def test_hostile_text_that_the_remote_tells_is_harmless() -> None:
    async with desk(ScriptedSession(greeting=hello(notes=[EVIL])), size=(160, 50)) as at:
        await at.prompt("go")
        await at.press("ctrl+o")
        for number, place in enumerate(TOLD):
            place(at.session, f"{EVIL}{number}")
            await at.sees(f"END{number}")
            harmless(at)


@pytest.mark.parametrize("place", (*ASKED, lost), ids=lambda place: place.__name__)
@pytest.mark.quick_rows(3)
async def test_hostile_text_with_a_question_is_harmless(place: Place) -> None:
    async with desk(ScriptedSession(greeting=hello(notes=[EVIL])), size=(160, 50)) as at:
        await at.prompt("go")
        await at.press("ctrl+o")
        before = at.screen.count("END")
        place(at.session, EVIL)
        await at.until(lambda: at.screen.count("END") > before)
        harmless(at)


async def test_an_answer_that_is_copied_is_what_was_shown(at: Desk) -> None:
    await at.turn()
    at.session.text(EVIL)
    at.session.finish()
    await at.until(lambda: not at.view.reducer.running)
    await at.enter("/copy", then=lambda: at.app.clipboard)
    assert _FORBIDDEN.findall(at.app.clipboard) == []


BIG, HUGE = 10**400, int("9" * 4_300)
"""More than a float holds, and more digits than Python prints of a larger sum."""

_USAGE = {"input_tokens": HUGE, "cache_read_input_tokens": HUGE, "output_tokens": BIG}
_TOOL = {"role": "assistant", "id": "m"}
NUMBERS: list[dict[str, object]] = [
    {"type": "result", "subtype": "success", "is_error": False, "total_cost_usd": 1e308, "usage": _USAGE},
    {
        "type": "result", "subtype": "success", "is_error": False, "total_cost_usd": BIG,
        "modelUsage": {"m": {"inputTokens": HUGE, "cacheReadInputTokens": HUGE, "outputTokens": BIG}},
    },
    {"type": "assistant", "message": {**_TOOL, "content": [{"type": "text", "text": "t"}], "usage": _USAGE}},
    {"type": "tool_progress", "tool_use_id": "t", "tool_name": "Bash", "elapsed_time_seconds": 1e308, "output": "x"},
    {"type": "system", "subtype": "api_retry", "attempt": HUGE, "max_retries": 1, "retry_delay_ms": 1e308},
    {"type": "system", "subtype": "model_silent", "silent_ms": 1e308, "retry_in_ms": 1e308},
]  # fmt: skip


async def test_numbers_without_end_do_not_end_the_repl() -> None:
    async with desk(ScriptedSession(), size=(160, 50)) as at:
        for body in NUMBERS:
            at.session.say(body)
        at.session.skip(3, result={"total_cost_usd": BIG, "modelUsage": {"m": {"inputTokens": HUGE}}})
        await at.says("END", sees="END")


LINKS = (
    "[a long way](https://a.example/{}) [https://a.example](https://b.example) <https://c.example> "
    "[x](javascript:alert) [y](ssh://d.example) ![https://e.example](https://f.example)"
).format("z" * 150)


async def test_only_an_address_that_is_shown_is_a_link_of_the_terminal() -> None:
    async with desk(size=(100, 30), before=record, turn="go") as at:
        await at.says(LINKS, sees=("(https://a.example/zz", "https://c.example", "https://e.example"))
        found = re.findall(r"\x1b\]8;id=[0-9-]+;([^\x1b]+)\x1b\\\x1b\[[0-9;]*m([^\x1b]*)", written_by(at.app))
        shown: dict[str, str] = {}
        for target, text in dict.fromkeys(found):
            shown[target] = shown.get(target, "") + text
        far = f"https://a.example/{'z' * 150}"
        assert shown == {each: each for each in (far, "https://b.example", "https://c.example")}
