"""What may follow a command, in the list above the composer."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from tests.support.repl.pilot import COLOURFUL, Desk, desk
from tests.support.repl.scripted_session import MODEL, ScriptedSession

from ccb.local.connect.session_rows import SessionRow
from ccb.local.slash_commands.session_api import LaptopSide
from ccb.local.tui.composer.completions import Candidate, choice_offers
from ccb.tunnel.errors import ConnectionLost
from ccb.tunnel.plain_text import HostText
from ccb.tunnel.wire.client_requests import LIST_RULES

ROWS = [
    SessionRow(session="5e55", cwd=HostText("/srv/shop"), state="idle", prompt=HostText("the one on the screen")),
    SessionRow(
        session="aaaa1111-2222", cwd=HostText("/srv/api"), state="ended", prompt=HostText("fix the \x1b[31mflaky test")
    ),
]
RULES = {
    "state": {
        "rules": [
            {"behavior": "deny", "source": "session", "rule": "Read(.env)"},
            {"behavior": "allow", "source": "session", "rule": "Bash(make:*)"},
        ]
    }
}


async def offers(at: Desk, typed: str, *texts: str) -> None:
    """Type a text in place of what is there, and wait for the list."""
    at.composer.text = ""
    await at.type(typed)
    await at.sees(*texts)


def test_an_argument_is_found_by_what_is_said_of_it() -> None:
    commands = [Candidate("resume", "[TEXT]", "", choices={"aaaa1111": "/srv/api  fix it", "bbbb2222": "write docs"})]
    found = choice_offers("/resume doc", commands)
    assert found is not None and [each.insert for each in found.items] == ["bbbb2222"]
    assert choice_offers("/resume aaaa1111", commands) is None


async def test_what_the_session_knows_is_offered_behind_its_commands() -> None:
    async with desk(size=(120, 30)) as at:
        init = {"type": "system", "subtype": "init", "session_id": "5e55", "cwd": "/srv/shop", "model": MODEL}
        at.session.begin()
        at.session.say({**init, "permissionMode": "default", "tools": ["Bash", "mcp__db__query"]})
        at.session.text("The total counts each item once.")
        at.session.finish()
        await at.sees("counts each item once")
        await offers(at, "/copy ", "1  The total counts each item once.")
        await offers(at, "/mcp ", "reconnect db")
        await offers(at, "/tools ", "mcp__db__query")
        await at.press(*"db", "tab", "enter", sees=("Tools of the agent on devbox: mcp__db__query", "of an MCP server"))
        await at.press("escape")
        await offers(at, "/help reco", "reconnect  connect now")


async def test_themes_of_the_person_are_offered(tmp_path: Path) -> None:
    themes = tmp_path / ".config" / "ccb" / "themes"
    themes.mkdir(parents=True)
    (themes / "dusk.json").write_text("{}", encoding="utf-8")
    async with desk(environ={**COLOURFUL, "HOME": str(tmp_path)}) as at:
        await offers(at, "/theme d", "dusk", "dark")
        await offers(at, "/model ", "opus")


async def test_the_sessions_of_the_host_are_offered_once_it_has_named_them() -> None:
    asked: list[int] = []

    async def listed() -> list[SessionRow]:
        asked.append(1)
        return ROWS

    async with desk(laptop=LaptopSide(sessions=cast(Any, SimpleNamespace(listed=listed)))) as at:
        await offers(at, "/resume fl", "aaaa1111  fix the")
        assert "the one on the screen" not in at.screen and "\x1b" not in at.screen
        assert len(asked) == 1


async def test_a_host_that_cannot_be_asked_only_means_that_nothing_is_offered() -> None:
    async def refuse() -> list[SessionRow]:
        raise ConnectionLost("there is no connection")

    async with desk(laptop=LaptopSide(sessions=cast(Any, SimpleNamespace(listed=refuse)))) as at:
        await at.type("/resume x")
        await at.pilot.pause(0.1)
        assert at.composer.text == "/resume x" and "no connection" not in at.screen


async def test_a_rule_is_offered_and_then_marked_in_the_panel() -> None:
    session = ScriptedSession()
    session.control_answers[LIST_RULES.name] = RULES
    async with desk(session, size=(120, 30)) as at:
        await offers(at, "/permissions B", "Bash(make:*)  allow")
        await at.press("tab", "enter", sees="› allow")
