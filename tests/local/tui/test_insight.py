"""/tools, /doctor, /config, /hosts and /bug: panels and files about laptop, host and session."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import pytest
from tests.support.repl.pilot import Desk, desk

from ccb.local.config.bug_report import write_report
from ccb.local.doctor import doctor
from ccb.local.doctor.doctor_findings import Finding, State
from ccb.local.ledger.call_ledger import CallLedger, CallPlace, ledger_path
from ccb.local.transcript.blocks import Level
from ccb.tunnel.errors import ConnectionLost
from ccb.tunnel.proxy.metering import CallReport, TokenCounts


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("XDG_STATE_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(name, str(tmp_path))
    return tmp_path


async def say(at: Desk, text: str) -> None:
    at.app.composer.text = text
    await at.pilot.press("enter")


async def test_tools_are_listed_with_what_they_change_and_where_they_run() -> None:
    async with desk() as at:
        await say(at, "/tools")
        await at.sees("Tools of the agent on devbox (before the first turn)")
        await at.type("bash")
        await at.sees("runs commands, on the host")
        await at.pilot.press("escape")
        at.session.begin()
        await at.until(lambda: at.app.view.reducer.tools == ("Bash", "Edit"))
        await say(at, "/tools")
        await at.sees("Edit", "writes files, on the host")
        assert "Grep" not in at.screen


async def test_the_doctor_s_findings_come_into_a_panel_with_what_helps(monkeypatch: pytest.MonkeyPatch) -> None:
    async def findings(_: object, __: Mapping[str, str]) -> AsyncIterator[Finding]:
        yield Finding("laptop", "ccb", State.INFO, "ccb 1")
        yield Finding("host", "python", State.WARN, "Python \x1b[31m3.9", "Install a newer one.")
        raise ConnectionLost("devbox is gone")

    monkeypatch.setattr(doctor, "attached_findings", findings)
    async with desk() as at:
        await say(at, "/doctor")
        await at.sees("This laptop", "· ccb", "! python", "→ Install a newer one.", "Nothing blocks; 1 warning.")
        assert "\x1b" not in at.screen
        await at.pilot.press("escape")
        await at.sees("The doctor did not come to an end: devbox is gone")


async def test_config_shows_values_with_their_origin(home: Path) -> None:
    settings = home / "ccb" / "settings.json"
    settings.parent.mkdir()
    settings.write_text('{"model": "opus", "permissions": {"allow": ["Bash(make *)"]}}')
    async with desk() as at:
        await say(at, "/config")
        await at.sees('"opus"', "permissions.allow", '"Bash(make *)"', "line 1", "/config edit")
        await at.pilot.press("escape")
        settings.write_text("{")
        await say(at, "/config")
        await at.sees("settings.json")
        assert "Settings of this laptop" not in at.screen


async def test_hosts_of_the_last_sessions_are_listed_and_one_gives_the_command(home: Path) -> None:
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
    async with desk() as at:
        await say(at, "/hosts")
        await at.sees("now  devbox:/srv/shop  here, connected", "1m  devbox:/srv/my app", "2h  gpu1:/srv/my app")
        assert "\x1b" not in at.screen
        await at.pilot.press("down", "down", "enter")
        await at.sees("This command opens it; it was", "'gpu")
        assert at.app.focused is at.app.composer


async def test_bug_writes_a_report_without_secrets_and_says_where(home: Path) -> None:
    async with desk() as at:
        at.session.text("the secret plan")
        await at.sees("the secret plan")
        at.app.view.reducer.notice("it failed with sk-ant-abcdefghijk123456", Level.ERROR)
        await say(at, "/bug")
        await at.sees("The report is in")
    (path,) = (home / "ccb" / "reports").iterdir()
    text = path.read_text()
    assert "ccb 0." in text and "it failed with [redacted]" in text and "connection: connected" in text
    assert "secret plan" not in text and path.stat().st_mode & 0o777 == 0o600


def test_a_report_that_cannot_be_written_is_an_error_of_the_system(home: Path) -> None:
    (home / "ccb").write_text("in the way")
    with pytest.raises(OSError):
        write_report({"XDG_STATE_HOME": str(home)}, {}, [])


async def test_a_damaged_ledger_is_said(home: Path) -> None:
    path = ledger_path(home / "ccb")
    path.parent.mkdir()
    path.write_text("no database at all, but long enough to be read as the head of one" * 40)
    async with desk() as at:
        await say(at, "/hosts")
        await at.sees("the ledger", "cannot be")
        assert "Hosts of your last sessions" not in at.screen


async def test_a_command_is_shown_above_its_answer_and_one_that_opens_a_panel_is_not() -> None:
    async with desk() as at:
        at.app.view.reducer.model = ""
        at.app.composer.text = "/status"
        await at.pilot.press("enter")
        await at.sees("❯ /status\n\n Session ", "Model       not known before the first turn, permission mode")
        at.app.composer.text = "/help"
        await at.pilot.press("enter")
        await at.until(lambda: "type to search" in at.screen)
        await at.pilot.press("escape")
        at.app.composer.text = "/nonsense"
        await at.pilot.press("enter")
        await at.sees("❯ /nonsense\n\n There is no command /nonsense.")
        assert "❯ /help" not in at.screen
