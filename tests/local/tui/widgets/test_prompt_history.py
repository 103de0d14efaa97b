"""What the composer keeps: earlier prompts, drafts, and long texts that were pasted."""

from __future__ import annotations

import stat
from pathlib import Path

from tests.support.repl.pilot import Desk, desk
from textual import events

from ccb.local.config.prompt_history import MAX_PROMPTS, PromptStore


def test_prompts_and_the_draft_are_kept_for_a_place_and_nobody_else(tmp_path: Path) -> None:
    store = PromptStore(tmp_path, "web1:/srv/shop")
    assert store.load() == ([], "")
    store.add("first")
    store.add("second\nline \u2028 \ud83d")
    store.keep_draft("begun")
    assert PromptStore(tmp_path, "web1:/srv/shop").load() == (["first", "second\nline \u2028 \ud83d"], "begun")
    assert PromptStore(tmp_path, "web1:/srv/other").load() == ([], "")
    for path in (tmp_path / "prompts").iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    store.keep_draft("")
    assert store.load()[1] == ""


def test_a_long_history_is_shortened_and_a_damaged_line_is_passed_over(tmp_path: Path) -> None:
    store = PromptStore(tmp_path, "h:/")
    store.add("0")
    (path,) = (tmp_path / "prompts").iterdir()
    path.write_text('{"no": "text"}\nhalf"\n' + "".join(f'"{number}"\n' for number in range(3 * MAX_PROMPTS)))
    assert store.load()[0][-1] == f"{3 * MAX_PROMPTS - 1}" and len(store.load()[0]) == MAX_PROMPTS
    assert len(path.read_text().splitlines()) == MAX_PROMPTS


def test_a_directory_that_cannot_be_written_only_keeps_nothing(tmp_path: Path) -> None:
    (tmp_path / "prompts").write_text("a file")
    store = PromptStore(tmp_path, "h:/")
    store.add("x")
    store.keep_draft("y")
    assert store.load() == ([], "")


async def test_a_key_that_somebody_types_behind_login_is_kept_nowhere(tmp_path: Path) -> None:
    store = PromptStore(tmp_path, "devbox:/srv/shop")
    async with desk() as at:
        at.composer.remember(store, [], "")
        await at.give("/login sk-ant-api03-0123456789abcdef", sees="/login takes the name of a provider")
        await at.press("up", then=lambda: at.composer.text == "/login")
        at.composer.text = "/login sk-ant-api03-0123456789abcdef"
    assert store.load() == (["/login"], "/login")


async def test_earlier_runs_are_recalled_and_searched(tmp_path: Path) -> None:
    store = PromptStore(tmp_path, "devbox:/srv/shop")
    for each in ("fix the login form", "run the tests", "explain the login"):
        store.add(each)
    async with desk() as at:
        composer = at.composer
        composer.remember(store, *store.load())
        await at.press("up", has="explain the login")
        composer.clear()
        await at.press(*"login", "ctrl+r", sees=("fix the login form", "explain the login"), lacks="run the tests")
        await at.press("ctrl+r", "enter")
        assert composer.text == "fix the login form" and at.session.prompts == []
        await at.loses("explain the login")
        await at.press("enter", then=lambda: at.session.prompts == ["fix the login form"])
        await at.press(*"rtst", "ctrl+r", sees="run the tests")
        await at.type("zz", sees="no earlier prompt fits")
        await at.press("escape", loses="no earlier prompt fits")
        assert composer.text == "rtstzz" and at.session.interrupts == 0
    prompts, draft = store.load()
    assert prompts[-2:] == ["explain the login", "fix the login form"] and draft == "rtstzz"


async def test_a_draft_comes_back_with_the_next_run_unless_something_is_typed(tmp_path: Path) -> None:
    store = PromptStore(tmp_path, "devbox:/srv/shop")
    store.keep_draft("begun\nyesterday")
    async with desk() as at:
        at.composer.remember(store, *store.load())
        assert at.composer.text == "begun\nyesterday"
    async with desk() as at:
        await at.type("new")
        at.composer.remember(store, *store.load())
        assert at.composer.text == "new"
        await at.press("ctrl+s", has="")
        await at.type("newer")
    assert store.load()[1] == "new\nnewer", "also what was laid aside"


async def test_a_long_paste_is_shown_as_a_placeholder_and_sent_whole(at: Desk) -> None:
    long = "\n".join(f"line {number}" for number in range(40))
    composer = at.composer
    await at.type("look: ")
    for text in (long + "\n", "x" * 3000, "short"):
        composer.post_message(events.Paste(text))
        await at.pilot.pause()
    assert composer.text == "look: [Pasted text #1, 40 lines][Pasted text #2, 3,000 characters]short"
    for _ in "short":
        await at.press("backspace")
    await at.press("backspace")
    assert composer.text == "look: [Pasted text #1, 40 lines]", "a placeholder goes as a whole"
    await at.press("enter", then=lambda: at.session.prompts == [f"look: {long}"])
    await at.press("up", has=f"look: {long}")


async def test_a_line_that_begins_with_a_hash_is_a_note(at: Desk) -> None:
    at.session.control_answers["remember"] = {"path": "/srv/shop/CLAUDE.md"}
    await at.enter("# use tabs", sees="Noted in /srv/shop/CLAUDE.md: use tabs")
    assert at.session.controls == [("remember", {"note": "use tabs"})] and at.session.prompts == []
    await at.give("# Title\ntext", sees="Nothing was sent")
    assert at.composer.text == "# Title\ntext"
    await at.give(" # Title\ntext", then=lambda: at.session.prompts == ["# Title\ntext"])
