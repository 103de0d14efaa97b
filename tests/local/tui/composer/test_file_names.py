"""Naming files of the host behind an `@`: the list above the composer, and what becomes of the text."""

from __future__ import annotations

import asyncio

import pytest
from tests.support.repl.pilot import Desk

from ccb.local.session.session_client import FoundNames, LinkState, parse_names
from ccb.local.tui.composer.completions import mention_at

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


async def test_files_are_offered_and_taken_as_the_worker_reads_them(at: Desk) -> None:
    at.session.find_names = from_tree
    composer = at.composer
    await at.type("look at @", sees=("README.md", "my notes/read me.txt"))
    await at.type("rea", loses="src/app.py")
    await at.press("tab", has="look at @README.md ", loses="src/reader.py")
    await at.type("and @sr", sees="src/app.py")
    await at.press("enter")
    assert composer.text == "look at @README.md and @src/" and at.session.prompts == []
    await at.sees("src/app.py")
    await at.press("down", "enter")
    assert composer.text == "look at @README.md and @src/app.py "
    await at.type("@note", sees="my notes/")
    await at.press("tab")
    assert composer.text.endswith('@"my notes/"') and composer.cursor_at == len(composer.text) - 1
    await at.sees("read me.txt")
    await at.press("down", "tab")
    assert composer.text == 'look at @README.md and @src/app.py @"my notes/read me.txt" '
    await at.press("enter")
    await at.until(lambda: at.session.prompts == ['look at @README.md and @src/app.py @"my notes/read me.txt"'])


async def test_escape_closes_the_list_until_another_name_is_typed(at: Desk) -> None:
    at.session.find_names = from_tree
    await at.type("@rea", sees="README.md")
    await at.press("escape", loses="README.md")
    await at.type("d")
    assert "README.md" not in at.screen and at.session.interrupts == 0
    await at.press("enter", then=lambda: at.session.prompts == ["@read"])
    await at.type("@rea", sees="README.md")


async def test_enter_sends_a_word_that_only_resembles_a_file(at: Desk) -> None:
    at.session.find_names = lambda query: from_tree("src/app")
    await at.type("add @sap", sees="src/app.py")
    await at.press("enter", then=lambda: at.session.prompts == ["add @sap"])


async def test_a_slow_host_and_no_host_are_said_calmly_and_what_is_known_stays(at: Desk) -> None:
    waiting: list[asyncio.Future[None]] = []

    async def slowly(query: str) -> FoundNames:
        if query in ("", "r"):
            return found("README.md", "src/reader.py")
        waiting.append(asyncio.get_running_loop().create_future())
        await waiting[-1]
        return found(f"answer to {query}")

    at.session.find_names = slowly
    await at.type("@r", sees="src/reader.py")
    await at.type("d", sees="asking devbox")
    assert "src/reader.py" in at.screen, "what was found before fits as well"
    await at.type("e", then=lambda: len(waiting) == 2)
    assert waiting[0].cancelled(), "the answer to what is no longer typed is not waited for"
    waiting[1].set_result(None)
    await at.until(lambda: "answer to rde" in at.screen and "asking" not in at.screen)
    at.session.link(LinkState.RECONNECTING, "cut")
    await at.type("x", sees="no connection to devbox")


async def test_a_tree_that_is_still_being_listed_is_asked_about_again(at: Desk) -> None:
    answers = [found("a.py", settled=False), found("a.py", "deep/a.py", cut=True)]

    async def growing(query: str) -> FoundNames:
        return answers[min(len(at.session.looked_up), 2) - 1]

    at.session.find_names = growing
    await at.type("@a", sees=("deep/a.py", "too large"))
    await at.type(" ", loses="deep/a.py")
    assert len(at.session.looked_up) <= 3


async def test_a_worker_that_cannot_list_files_is_said(at: Desk) -> None:

    async def older(query: str) -> FoundNames | None:
        return None

    at.session.find_names = older
    await at.type("@a", sees="of an older version")


def test_what_the_host_answers_is_checked() -> None:
    body = {"names": ["ok.py", 1, "a\x1b[2J", 'q"', "", "x" * 5000, "n\nl"], "settled": "?", "cut": True}
    assert parse_names(body) == FoundNames(("ok.py",), more=False, settled=True, cut=True)
    assert parse_names({"names": {}}).names == ()


async def test_arguments_of_commands_are_offered(at: Desk) -> None:
    await at.type("/effort ", sees=("xhigh", "medium"))
    await at.enter("xh")
    assert at.composer.text == "/effort xhigh" and at.session.controls == []
    at.session.control_answers["set_effort"] = {"applied": "xhigh"}
    await at.press("enter", then=lambda: [name for name, _ in at.session.controls] == ["set_effort"])
