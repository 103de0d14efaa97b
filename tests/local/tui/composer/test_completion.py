"""The list of commands above the composer."""

from __future__ import annotations

from tests.support.repl.pilot import Desk

from ccb.local.slash_commands.command_table import worker_rows
from ccb.local.tui.composer.completions import Candidate, fitting, from_worker

LISTED = [
    {"name": "compact", "description": "Summarise what was said", "argumentHint": "[hint]"},
    {"name": "team:\x1b[31mfix", "description": "Fixes\nit"},
    {"name": "model", "description": "not the REPL's own"},
    {"name": "clear", "description": "not the REPL's own, which is another name of /new"},
]


def test_names_that_begin_with_the_text_come_first() -> None:
    commands = [Candidate(name, "", "") for name in ("recompact", "compact", "cost", "help")]
    assert [each.name for each in fitting("/co", commands)] == ["compact", "cost", "recompact"]
    for text in ("", "co", "/co x", "/etc/hosts", "/co\n"):
        assert fitting(text, commands) == []


def test_what_the_worker_lists_is_made_harmless_and_checked() -> None:
    names = [each.name for each in from_worker({"commands": LISTED})]
    assert names[0] == "compact" and "\x1b" not in names[1] and len(names) == 4
    assert from_worker({"commands": [{"description": "no name"}]}) == from_worker({"commands": "x"}) == []


def test_a_command_of_the_worker_that_the_laptop_has_is_not_listed_twice() -> None:
    assert [row.name for row in worker_rows([("/clear", ""), ("/lint [FILE]", "")])] == ["/lint [FILE]"]


async def test_the_list_filters_completes_and_closes(at: Desk) -> None:
    at.session.control_answers["list_commands"] = {"commands": LISTED}
    await at.type("/", sees="Summarise what was said")
    assert "/btw" in at.screen and "not the REPL's own" not in at.screen
    await at.type("com", loses="/btw")
    assert "/compact [hint]" in at.screen
    await at.press("tab", has="/compact ", loses="Summarise")
    await at.enter("now", then=lambda: at.session.prompts == ["/compact now"])


async def test_arrows_choose_and_enter_completes_before_it_sends(at: Desk) -> None:
    await at.type("/st", sees=("/status", "/stop"))
    await at.press("down", "down", "enter")
    assert at.composer.text == "/stop" and at.session.stops == 0
    await at.press("escape")
    assert at.composer.text == "/stop" and at.session.interrupts == 0
    at.composer.text = ""
    await at.press(*"/he", "escape", loses="show this help")
    await at.type("l", sees="show this help")


async def test_what_a_command_of_the_worker_prints_is_shown(at: Desk) -> None:
    at.session.control_answers["list_commands"] = {"commands": [{"name": "memory"}]}
    await at.prompt("/memory")
    text = "<local-command-stdout>Instruction files\n  \x1b[31mCLAUDE.md</local-command-stdout>"
    message = {"role": "user", "content": [{"type": "text", "text": text}]}
    at.session.say({"type": "user", "message": message, "isReplay": True, "parent_tool_use_id": None})
    await at.sees("Instruction files", "CLAUDE.md")
    assert "local-command" not in at.screen and "\x1b" not in at.screen


async def test_a_name_that_nobody_knows_is_not_sent(at: Desk) -> None:
    at.session.control_answers["list_commands"] = {"commands": LISTED}
    await at.enter("/nonsense", sees="There is no command /nonsense")
    assert at.session.prompts == []
