"""The panels and pages in which the screen shows the replies of slash commands, and what only the screen can do."""

from __future__ import annotations

import json
import os
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.support.repl.pilot import COLOURFUL, Desk, desk
from tests.support.repl.scripted_session import ScriptedSession

from ccb.local.config.settings_loading import ScreenSettings, load_screen_settings, load_settings
from ccb.local.doctor import doctor
from ccb.local.doctor.doctor_findings import Finding, FindingState
from ccb.local.ledger.call_ledger import CallLedger, CallPlace, ledger_path
from ccb.local.slash_commands.session_api import LaptopSide
from ccb.local.terminal.shell_relay import ShellLeft
from ccb.local.tui import status_command
from ccb.tunnel.errors import ConnectionLost
from ccb.tunnel.proxy.metering import CallReport, TokenCounts
from ccb.tunnel.wire.control_protocol import A, P, Request, Success
from ccb.tunnel.wire.frames import Json

RULES: Json = {
    "state": {
        "rules": [
            {"behavior": "allow", "source": "session", "rule": "Bash(make *)", "editability": "session"},
            {"behavior": "deny", "source": "userSettings", "rule": "Read(\x1b[31m.env)"},
            {"behavior": "allow", "source": "localSettings", "rule": "Edit"},
            {"behavior": "allow", "source": "localSettings", "rule": "Bash(reads:services)"},
        ]
    }
}
POINTS: Json = {"points": [{"id": "u2"}, {"id": "u1"}], "files_kept": True}
PREVIEW: Json = {
    "files": [
        {"path": "/srv/shop/cart.py", "insertions": 1, "deletions": 3, "does": "change"},
        {"path": "/srv/shop/new.py", "deletions": 9, "does": "remove"},
        {"path": "/srv/shop/old.py", "insertions": 4, "does": "create", "changedElsewhere": True},
    ]
}
HUNKS: list[Json] = [
    {"oldStart": 1, "oldLines": 1, "newStart": 1, "newLines": 1, "lines": ["-total = 0", "+total = sum(\x1b[31mx)"]}
]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("XDG_STATE_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(name, str(tmp_path))
    return tmp_path


async def test_a_command_is_shown_above_its_answer_and_one_that_opens_a_panel_is_not(at: Desk) -> None:
    at.view.reducer.facts.model = ""
    await at.give("/status")
    await at.sees("❯ /status\n\n Session ", "Model       not known before the first turn, effort high, permission")
    await at.give("/help", sees="type to search")
    await at.press("escape")
    at.session.control_answers["side_question"] = {"response": "Because."}
    await at.give("/btw why?", sees=("Beside the work: why? ─", "Because."), lacks="type to search")
    await at.press("escape")
    await at.give("/nonsense", sees="❯ /nonsense\n\n There is no command /nonsense.", lacks="❯ /help")


async def test_the_doctor_s_findings_come_into_a_panel_with_what_helps(
    at: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def findings(_: object, __: Mapping[str, str]) -> AsyncIterator[Finding]:
        yield Finding("laptop", "ccb", FindingState.INFO, "ccb 1")
        yield Finding("host", "python", FindingState.WARN, "Python \x1b[31m3.9", "Install a newer one.")
        raise ConnectionLost("devbox is gone")

    monkeypatch.setattr(doctor, "attached_findings", findings)
    await at.give("/doctor")
    await at.sees("This laptop", "· ccb", "! python", "→ Install a newer one.", "Nothing blocks; 1 warning.")
    assert "\x1b" not in at.screen
    await at.press("escape", sees="The doctor did not come to an end: devbox is gone")


async def test_hosts_of_the_last_sessions_are_listed_and_one_gives_the_command(at: Desk, home: Path) -> None:
    with CallLedger(ledger_path(home / "ccb")) as ledger:
        for host, ago in (("devbox", 60), ("gpu\x1b[31m1", 7200)):
            place = CallPlace("s", host, "/srv/my app")
            ledger.add(
                place,
                CallReport(
                    "c",
                    "/v1/messages",
                    "m",
                    TokenCounts(1, 0, 0, 1),
                    cost_usd=0.0,
                    began=time.time() - ago,
                    first_byte_s=0.1,
                    duration_s=1.0,
                    status=200,
                    complete=True,
                    request_bytes=9,
                    digest="",
                    priced=True,
                ),
            )
    await at.give("/hosts")
    await at.sees("now  devbox:/srv/shop  here, connected", "1m  devbox:/srv/my app", "2h  gpu1:/srv/my app")
    assert "\x1b" not in at.screen
    await at.press("down", "down", "enter", sees=("This command opens it; it was", "'gpu"))
    assert at.app.focused is at.composer


async def test_a_damaged_ledger_is_said(at: Desk, home: Path) -> None:
    path = ledger_path(home / "ccb")
    path.parent.mkdir()
    path.write_text("no database at all, but long enough to be read as the head of one" * 40)
    await at.give("/hosts", sees=("the ledger", "cannot be"), lacks="Hosts of your last sessions")


async def test_a_rule_is_added_for_the_session_or_always_and_its_own_are_removed() -> None:
    kept: list[Any] = []

    async def keep(updates: Sequence[Any]) -> None:
        kept.extend(updates)

    async with desk(laptop=LaptopSide(cast(Any, SimpleNamespace(keep=keep, ask=None, tell=None)))) as at:
        at.session.control_answers["list_permission_rules"] = RULES
        await at.give("/permissions", sees=("a adds a rule", "always here · reading with docker, kubectl, systemctl"))
        await at.press("a")
        await at.enter("Bash(npm", sees="A rule is Tool or Tool(pattern)")
        await at.type(" test *)", sees="allow in this session: Bash(npm test *)▏")
        await at.press("enter", sees="Added: allow Bash(npm test *)")
        rule = {"toolName": "Bash", "ruleContent": "npm test *"}
        update = {"type": "addRules", "rules": [rule], "behavior": "allow", "destination": "session"}
        assert ("change_permission_rules", {"updates": [update]}) in at.session.controls and not kept
        await at.press("a", "up")
        await at.type("Edti", sees="deny always here: Edti▏")
        await at.press("enter", then=lambda: kept)
        await at.sees("Added: deny Edti, but there is no tool 'Edti'; did you mean Edit?")
        assert kept[0]["destination"] == "localSettings" and kept[0]["behavior"] == "deny"
        await at.press("pageup", "d", sees="This rule is not yours to remove here")
        await at.press("down", "d", sees="Remove “allow Bash(make *)”, this session?")
        at.session.refuse_controls = "the agent said no"
        await at.press("y", sees="the agent said no")
        assert at.session.controls[-1][1]["updates"][0]["type"] == "removeRules"


class ChangedFiles(ScriptedSession):
    """A session whose files have changed; it tells the lines of one."""

    async def request(self, request: Request[P, A]) -> A:
        path = request.kind.write(request.payload).get("path")
        if request.kind.name == "rewind_files" and path:
            files = [{"path": path, "does": "change", **({"patch": HUNKS} if "cart" in path else {})}]
            return request.kind.read_answer(Success(request.id, {"files": files}))
        return await super().request(request)


async def test_diff_shows_the_lines_of_what_the_agent_has_changed_since_the_first_prompt() -> None:
    async with desk(ChangedFiles()) as at:
        at.session.control_answers.update(rewind_points=POINTS, rewind_files=PREVIEW)
        await at.give("/diff", sees="3 files +12 -5, changed in this session on devbox:/srv/shop")
        await at.sees(
            "› ▾ ~ /srv/shop/cart.py  +3 -1", "1 - total = 0", "1 + total = sum(⟨ESC⟩[31m", "▾ + /srv/shop/new.py"
        )
        await at.sees("▾ - /srv/shop/old.py  +0 -4  changed by something else since", "of an older version")
        assert "\x1b" not in at.screen
        await at.press("enter", sees="› ▸ ~ /srv/shop/cart.py", loses="total = 0")
        await at.enter("/TOTAL = SUM", sees=("1 of 1 for “total = sum”", "total = sum("))
        await at.press("escape", "down", sees="› ▾ + /srv/shop/new.py")
        await at.press("escape", sees="Ask for a change")
        assert at.session.controls[-1] == ("rewind_files", {"user_message_id": "u1", "dry_run": True, "path": ""})


async def test_copy_takes_the_nth_answer_from_the_end(at: Desk) -> None:
    copied: list[str] = []

    async def copy(text: str) -> str:
        copied.append(text)
        return "copied to the tmux buffer"

    at.app.copied = copy  # type: ignore[method-assign]
    for number, text in enumerate(("one", "two", "three")):
        at.session.text(text, message_id=f"m{number}")
    await at.sees("three")
    await at.give("/copy", sees="The last answer was copied to the tmux buffer.")
    await at.give("/copy 3", sees="Answer 3 from the end was copied to the tmux buffer.")
    assert copied == ["three", "one"]
    for wrong in ("4", "0", "x"):
        await at.give(f"/copy {wrong}")
    await at.until(lambda: at.screen.count("/copy takes a number from 1, the last answer, to 3.") == 3)
    assert len(copied) == 2


async def test_the_progress_of_a_call_stays_in_its_row_between_signs_of_life() -> None:
    async with desk(size=(110, 30), turn="go") as at:
        call = at.session.call("mcp__far__work", what="all")
        at.session.run(call, "1/4 first", name="mcp__far__work")
        await at.sees("1/4 first")
        at.session.progress(
            {
                "type": "tool_progress",
                "tool_use_id": call,
                "tool_name": "x",
                "elapsed_time_seconds": 30,
                "heartbeat": True,
            }
        )
        await at.sees("1/4 first")
        await at.says("meanwhile", sees=("meanwhile", "1/4 first"))


async def test_the_status_line_shows_the_first_line_of_a_command_of_the_person(home: Path) -> None:
    environ = {**COLOURFUL, "XDG_CONFIG_HOME": str(home), "ANTHROPIC_API_KEY": "sk-secret"}
    command = 'read -r facts; case "$facts" in *\'_mode": "plan"\'*) echo "\033[31mplanning $ANTHROPIC_API_KEY|";; '
    command += "*) echo 'usual line|'; echo second;; esac"
    (home / "ccb").mkdir()
    (home / "ccb/settings.json").write_text(json.dumps({"statusLine": {"type": "command", "command": command}}))
    screen = load_screen_settings(environ)
    async with desk(size=(130, 30), environ=environ, screen=screen) as at:
        await at.until(lambda: "usual line|" in at.status)
        assert "second" not in at.status
        at.view.reducer.facts.mode = "plan"
        await at.until(lambda: "planning |" in at.status)
        await at.give("/statusline exit 3", sees="The status line shows the first line of: exit 3")
        await at.until(lambda: "statusLine of the settings failed with exit code 3" in at.status)
        assert load_screen_settings(environ).status_line == "exit 3"
        await at.give("/statusline off", sees="The status line shows no command of yours.")
        await at.until(lambda: "exit code" not in at.status)
        assert load_screen_settings(environ).status_line == "" and load_settings(environ).statusLine.command == ""


async def test_a_command_of_the_status_line_that_does_not_end_is_ended(home: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(status_command, "_TIMEOUT_S", 0.2)
    screen = ScreenSettings(status_line=f"echo $$ >{home}/pid; exec sleep 600")
    async with desk(size=(130, 30), screen=screen) as at:
        await at.until(lambda: "statusLine of the settings did not end" in at.status)
        with pytest.raises(ProcessLookupError):
            os.kill(int((home / "pid").read_text()), 0)


async def test_a_command_of_the_status_line_that_cannot_start_does_not_end_ccb() -> None:
    async with desk(size=(130, 30), screen=ScreenSettings(status_line="date\0")) as at:
        await at.until(lambda: "statusLine of the settings cannot run: embedded null byte" in at.status)


class Shells:
    """Shells of a host that end at once."""

    def __init__(self) -> None:
        self.opened: list[tuple[int, str]] = []
        self.left = ShellLeft(3)

    async def show(self, number: int, command: str) -> ShellLeft:
        self.opened.append((number, command))
        return self.left

    def last_command(self) -> str:
        return "$ make\n```\n\x1b[31mred" if self.opened else ""


@pytest.mark.parametrize(
    "line, opened",
    [
        ("/shell", (0, "")),
        ("/shell 2", (2, "")),
        ("! vim x", (0, "vim x")),
        ("!less f", (0, "less f")),
        ("! A=1 sudo /usr/bin/top", (0, "A=1 sudo /usr/bin/top")),
        ("!! make menuconfig", (0, "make menuconfig")),
        ("! make", None),
        ("! grep vim x", None),
        ("! lesson", None),
    ],
)
async def test_what_needs_a_terminal_gets_this_one_and_the_agent_hears_nothing_of_it(
    monkeypatch: pytest.MonkeyPatch, line: str, opened: tuple[int, str] | None
) -> None:
    shells = Shells()
    async with desk(laptop=LaptopSide(shells=cast(Any, shells))) as at:
        monkeypatch.setattr(at.app, "suspend", nullcontext)
        await at.give(line)
        await at.until(lambda: shells.opened or at.session.prompts)
        assert (shells.opened, bool(at.session.prompts)) == ([opened] if opened else [], opened is None)
        if opened is not None and opened[1]:
            await at.sees("ended with code 3; the agent does not see it")


async def test_the_last_command_in_a_shell_is_quoted_in_the_input_where_it_can_be_changed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shells = Shells()
    async with desk(laptop=LaptopSide(shells=cast(Any, shells))) as at:
        monkeypatch.setattr(at.app, "suspend", nullcontext)
        await at.give("/shell send", sees="No shell has shown anything here")
        await at.give("/shell list", sees="/shell takes the number of a shell, or send")
        shells.left = ShellLeft(error="8 shells are open")
        await at.give("/shell", sees="The shell: 8 shells are open.")
        shells.left = ShellLeft()
        await at.give("/shell", sees="/shell returns to it")
        await at.give("/shell send", then=lambda: "From my shell" in at.composer.text)
        assert at.composer.text == "From my shell on the host:\n````\n$ make\n```\nred\n````\n"
        assert not at.session.prompts
