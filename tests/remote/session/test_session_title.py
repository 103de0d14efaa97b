"""The title that the small model gives to a session."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.remote.agent_kit import Reply, error_reply, says
from tests.remote.subagents.delegation import MAIN, Delegation, delegation

from ccb.remote.session.session_title import title_in
from ccb.tunnel.wire.frames import Json

ASKED = "<prompt>"


def scripts(answer: Reply) -> dict[str, list[Reply]]:
    """The question for a title is about a prompt of the main agent, so its key comes first."""
    return {ASKED: [answer], MAIN: [says(f"done {at}", f"m{at}") for at in range(4)]}


def titles(d: Delegation) -> list[Json]:
    return d.messages("system", "session_title_changed")


async def settled(d: Delegation) -> None:
    """Wait until what runs beside the turns is over."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    await asyncio.wait_for(asyncio.gather(*others, return_exceptions=True), 60)


async def test_the_first_real_prompt_gets_a_title_once_which_any_name_outranks(tmp_path: Path) -> None:
    async with delegation(tmp_path, scripts(says("“Fix the cart total.”\n", "t")), model="sonnet", titles=True) as d:
        await d.turn("/cost")
        assert d.model.requests[ASKED] == []
        await d.turn(MAIN + "fix the cart")
        await settled(d)
        [asked] = d.model.requests[ASKED]
        assert asked["model"] == "claude-haiku-4-5" and not asked["tools"] and "fix the cart" in str(asked["messages"])
        assert [(each["title"], each["generated"]) for each in titles(d)] == [("Fix the cart total", True)]
        assert d.session.log.summary.prompt == "Fix the cart total" and d.session.log.summary.title == ""
        used = (await d.turn(MAIN + "and now"))["modelUsage"].values()
        assert sum(each["outputTokens"] for each in used) == 3 * 20, "it counts in the sums, too"
    async with delegation(tmp_path, scripts(says("Another", "t2")), titles=True) as d:
        await d.turn(MAIN + "go on")
        await settled(d)
        assert d.session.snapshot(d.journal.seq)["title"] == "Fix the cart total" and not d.model.requests[ASKED]
        d.session.name("My cart")
        assert (d.session.log.summary.prompt, d.session.log.summary.title) == ("My cart", "My cart")


@pytest.mark.parametrize(
    ("options", "answer", "asked"),
    [
        ({}, says("A title"), 0),
        ({"titles": True, "max_budget_usd": 0.000001}, says("A title"), 0),
        ({"titles": True}, error_reply(400), 1),
        ({"titles": True}, says("I cannot know what this session is going to be about before I have seen more"), 1),
    ],
)
async def test_a_session_stays_without_a_title_and_nobody_is_told(
    tmp_path: Path, options: Json, answer: Reply, asked: int
) -> None:
    async with delegation(tmp_path, scripts(answer), **options) as d:
        before = await d.turn(MAIN + "fix it")
        await settled(d)
        assert len(d.model.requests[ASKED]) == asked
        assert titles(d) == [] and d.messages("result") == [before] and d.session.log.summary.prompt == MAIN + "fix it"


@pytest.mark.parametrize(
    ("answer", "title"),
    [("Fix it", "Fix it"), ('\n"Fix it."\nMore', "Fix it"), ("# **Fix it**", "Fix it"), ("", ""), ("x" * 61, "")],
)
def test_a_title_is_one_short_line_without_marks(answer: str, title: str) -> None:
    assert title_in(answer) == title
