"""What counts of the person's settings of Claude Code."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.support.run_words import run_words

from ccb.local.config.settings import Settings, SettingsChoice
from ccb.local.config.settings_loading import load_settings

CLAUDE: dict[str, Any] = {
    "$schema": "https://example.com/schema.json",
    "model": "opus",
    "permissions": {"allow": ["Bash(git *)"], "deny": ["Read(/etc/**)"], "defaultMode": "bypassPermissions"},
    "hooks": {"PreToolUse": [{"hooks": [{"type": "command", "command": "check"}]}]},
    "env": {"ANTHROPIC_AUTH_TOKEN": "secret"},
    "apiKeyHelper": "print-key",
    "statusLine": {"type": "command", "command": "line"},
    "theme": "dark",
}
STATE = {"mcpServers": {"notes": {"command": "notes", "env": {"KEY": "sk-ant-very-secret"}}}, "numStartups": 7}


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    return {"HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path / "config")}


def write(environ: dict[str, str], claude: object = CLAUDE, state: object = STATE, **own: object) -> None:
    home, config = Path(environ["HOME"]), Path(environ["XDG_CONFIG_HOME"]) / "ccb"
    for path, content in (
        (home / ".claude/settings.json", claude),
        (home / ".claude.json", state),
        (config / "settings.json", own or None),
    ):
        path.parent.mkdir(parents=True, exist_ok=True)
        if content is not None:
            path.write_text(content if isinstance(content, str) else json.dumps(content, indent=1))


def test_rules_model_and_servers_count_below_those_of_ccb_and_nothing_that_would_do_more(
    environ: dict[str, str],
) -> None:
    write(environ, model="haiku", permissions={"allow": ["Bash(ls *)"]})
    settings = load_settings(environ)
    assert settings.model == "haiku"
    assert settings.permissions.allow == ["Bash(git *)", "Bash(ls *)"]
    assert settings.permissions.deny == ["Read(/etc/**)"]
    assert (settings.permissions.defaultMode, settings.hooks, settings.env) == (None, {}, {})
    assert (settings.apiKeyHelper, settings.statusLine.command) == (None, "")
    assert settings.imported_servers == {"notes": f"{environ['HOME']}/.claude.json"}
    (said,) = settings.warnings
    assert "its hooks do not count, because ccb runs hooks on the host" in said


@pytest.mark.parametrize(
    "how, model, hooks", [("on", "opus", {}), ("hooks", "opus", CLAUDE["hooks"]), ("off", None, {})]
)
def test_a_setting_says_what_is_taken(environ: dict[str, str], how: str, model: str | None, hooks: object) -> None:
    write(environ, importClaudeSettings=how)
    settings = load_settings(environ)
    assert (settings.model, settings.hooks, bool(settings.warnings)) == (model, hooks, how == "on")
    assert load_settings(environ, SettingsChoice(user=False)) == Settings()


@pytest.mark.parametrize(
    "claude, state, said",
    [
        ("{", None, "is not JSON"),
        ({"permissions": {"deny": ["Read("]}, "language": "French"}, None, "permissions of this file does not count"),
        ({"permissions": 7, "language": "French"}, None, "permissions of this file does not count"),
        ({"model": 7, "language": "French"}, None, ""),
        ({"model": "no model at all", "language": "French"}, None, ""),
        (None, '{"mcpServers": 7}', "mcpServers of this file does not count"),
        (None, '{"mcpServers": {"a": 7}}', "mcpServers.a is no object; it does not count"),
        (None, "[]", "is not a JSON object"),
    ],
)
def test_a_mistake_there_keeps_nothing_from_starting(
    environ: dict[str, str], claude: object, state: object, said: str
) -> None:
    write(environ, claude, state)
    settings = load_settings(environ)
    assert (settings.model, settings.permissions.deny, settings.mcpServers) == (None, [], {})
    assert settings.language == ("French" if isinstance(claude, dict) else None)
    assert said in "".join(settings.warnings) and bool(said) == bool(settings.warnings)


def test_a_server_that_is_none_takes_no_other_away(environ: dict[str, str]) -> None:
    write(environ, None, {"mcpServers": {"a": 7, "notes": {"command": "notes"}}})
    settings = load_settings(environ)
    assert [*settings.mcpServers] == ["notes"] and "mcpServers.a is no object" in "".join(settings.warnings)


def test_each_value_is_shown_with_its_file_and_no_secret_of_a_server(
    environ: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    write(environ)
    home = environ["HOME"]
    assert run_words(["config", "show", "--origin"], environ) == 0
    shown = capsys.readouterr()
    assert shown.out.splitlines() == [
        f'mcpServers.notes.command = "notes"  (claude: {home}/.claude.json)',
        f'mcpServers.notes.env.KEY = "…"  (claude: {home}/.claude.json)',
        f'model = "opus"  (claude: {home}/.claude/settings.json, line 3)',
        f'permissions.allow = "Bash(git *)"  (claude: {home}/.claude/settings.json, line 6)',
        f'permissions.deny = "Read(/etc/**)"  (claude: {home}/.claude/settings.json, line 9)',
    ]
    assert "ccb takes no hooks, env, apiKeyHelper, statusLine, theme, permissions.defaultMode" in shown.err
    assert run_words(["mcp", "list"], environ) == 0
    assert capsys.readouterr().out == f"notes: KEY=… notes  ({home}/.claude.json)\n"
    assert run_words(["mcp", "remove", "notes"], environ) == 2
    assert "is an MCP server of Claude Code" in capsys.readouterr().err
    assert run_words(["mcp", "add", "web", "https://example.com/mcp"], environ) == 0
    own = json.loads((Path(environ["XDG_CONFIG_HOME"]) / "ccb/settings.json").read_text())
    assert list(own["mcpServers"]) == ["web"]
