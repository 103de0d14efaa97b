"""Naming files of the host behind an `@`: the list above the composer, and what becomes of the text."""

from __future__ import annotations

import asyncio

import pytest
from tests.support.repl.pilot import desk

from ccb.local.session.session_client import FoundNames, LinkState, parse_names
from ccb.local.tui.composer.completion_names import mention_at

TREE = ("README.md", "src/", "src/app.py", "src/reader.py", "my notes/", "my notes/read me.txt")


def found(*names: str, settled: bool = True, cut: bool = False) -> FoundNames:
    return FoundNames(names, more=False, settled=settled, cut=cut)


async def from_tree(query: str) -> FoundNames:
    return found(*(each for each in TREE if query.lower() in each.lower()))


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("see @src/a|", "src/a"),
        ("@|", ""),
        ("(@a|b) c", "a"),
        ('open @"my no|tes/" now', "my no"),
        ("first\n@x|", "x"),
        ("mail@home|", None),
        ("@done |", None),
        ('@"closed" |', None),
        ("|@later", None),
    ],
)
def test_where_a_name_is_typed(text: str, query: str | None) -> None:
    at = text.index("|")
    mention = mention_at(text.replace("|", ""), at)
    assert (mention.query if mention else None) == query


async def test_files_are_offered_and_taken_as_the_worker_reads_them() -> None:
    async with desk() as at:
        at.session.find_names = from_tree
        composer = at.app.composer
        await at.type("look at @")
        await at.until(lambda: "README.md" in at.screen and "my notes/read me.txt" in at.screen)
        await at.type("rea")
        await at.until(lambda: "src/app.py" not in at.screen)
        await at.pilot.press("tab")
        assert composer.text == "look at @README.md "
        await at.until(lambda: "src/reader.py" not in at.screen)
        await at.type("and @sr")
        await at.until(lambda: "src/app.py" in at.screen)
        await at.pilot.press("enter")
        assert composer.text == "look at @README.md and @src/" and at.session.prompts == []
        await at.until(lambda: "src/app.py" in at.screen)
        await at.pilot.press("down", "enter")
        assert composer.text == "look at @README.md and @src/app.py "
        await at.type("@note")
        await at.until(lambda: "my notes/" in at.screen)
        await at.pilot.press("tab")
        assert composer.text.endswith('@"my notes/"') and composer.cursor_at == len(composer.text) - 1
        await at.until(lambda: "read me.txt" in at.screen)
        await at.pilot.press("down", "tab")
        assert composer.text == 'look at @README.md and @src/app.py @"my notes/read me.txt" '
        await at.pilot.press("enter")
        await at.until(lambda: at.session.prompts == ['look at @README.md and @src/app.py @"my notes/read me.txt"'])


async def test_escape_closes_the_list_until_another_name_is_typed() -> None:
    async with desk() as at:
        at.session.find_names = from_tree
        await at.type("@rea")
        await at.until(lambda: "README.md" in at.screen)
        await at.pilot.press("escape")
        await at.until(lambda: "README.md" not in at.screen)
        await at.type("d")
        assert "README.md" not in at.screen and at.session.interrupts == 0
        await at.pilot.press("enter")
        await at.until(lambda: at.session.prompts == ["@read"])
        await at.type("@rea")
        await at.until(lambda: "README.md" in at.screen)


async def test_enter_sends_a_word_that_only_resembles_a_file() -> None:
    async with desk() as at:
        at.session.find_names = lambda query: from_tree("src/app")
        await at.type("add @sap")
        await at.until(lambda: "src/app.py" in at.screen)
        await at.pilot.press("enter")
        await at.until(lambda: at.session.prompts == ["add @sap"])


async def test_a_slow_host_and_no_host_are_said_calmly_and_what_is_known_stays() -> None:
    waiting: list[asyncio.Future[None]] = []

    async def slowly(query: str) -> FoundNames:
        if query in ("", "r"):
            return found("README.md", "src/reader.py")
        waiting.append(asyncio.get_running_loop().create_future())
        await waiting[-1]
        return found(f"answer to {query}")

    async with desk() as at:
        at.session.find_names = slowly
        await at.type("@r")
        await at.until(lambda: "src/reader.py" in at.screen)
        await at.type("d")
        await at.until(lambda: "asking devbox" in at.screen)
        assert "src/reader.py" in at.screen, "what was found before fits as well"
        await at.type("e")
        await at.until(lambda: len(waiting) == 2)
        assert waiting[0].cancelled(), "the answer to what is no longer typed is not waited for"
        waiting[1].set_result(None)
        await at.until(lambda: "answer to rde" in at.screen and "asking" not in at.screen)
        at.session.link(LinkState.RECONNECTING, "cut")
        await at.type("x")
        await at.until(lambda: "no connection to devbox" in at.screen)


async def test_a_tree_that_is_still_being_listed_is_asked_about_again() -> None:
    answers = [found("a.py", settled=False), found("a.py", "deep/a.py", cut=True)]

    async with desk() as at:

        async def growing(query: str) -> FoundNames:
            return answers[min(len(at.session.looked_up), 2) - 1]

        at.session.find_names = growing
        await at.type("@a")
        await at.until(lambda: "deep/a.py" in at.screen and "too large" in at.screen)
        await at.type(" ")
        await at.until(lambda: "deep/a.py" not in at.screen)
        assert len(at.session.looked_up) <= 3


async def test_a_worker_that_cannot_list_files_is_said() -> None:
    async with desk() as at:

        async def older(query: str) -> FoundNames | None:
            return None

        at.session.find_names = older
        await at.type("@a")
        await at.until(lambda: "of an older version" in at.screen)


def test_what_the_host_answers_is_checked() -> None:
    body = {"names": ["ok.py", 1, "a\x1b[2J", 'q"', "", "x" * 5000, "n\nl"], "settled": "?", "cut": True}
    assert parse_names(body) == FoundNames(("ok.py",), more=False, settled=True, cut=True)
    assert parse_names({"names": {}}).names == ()


async def test_arguments_of_commands_are_offered() -> None:
    async with desk() as at:
        await at.type("/effort ")
        await at.until(lambda: "xhigh" in at.screen and "medium" in at.screen)
        await at.enter("xh")
        assert at.app.composer.text == "/effort xhigh" and at.session.controls == []
        at.session.control_answers["set_effort"] = {"applied": "xhigh"}
        await at.pilot.press("enter")
        await at.until(lambda: [name for name, _ in at.session.controls] == ["set_effort"])
