"""`ccb mcp`: the servers in the person's settings file."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from tests.support.run_words import run_words

ROOT = Path(__file__).parents[3]


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    path = tmp_path / ".config/ccb/settings.json"
    path.parent.mkdir(parents=True)
    path.write_text('{"model": "claude-x"}')
    path.chmod(0o600)
    return path


def test_servers_are_added_shown_without_secrets_and_removed(settings: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert run_words(["mcp", "add", "notes", "-e", "KEY=very-secret", "--", "notes", "--quick"]) == 0
    assert run_words(["mcp", "add", "web", "https://example.com/mcp", "-H", "Authorization: Bearer very-secret"]) == 0
    notes = {"command": "notes", "args": ["--quick"], "env": {"KEY": "very-secret"}}
    headers = {"Authorization": "Bearer very-secret"}
    web = {"type": "http", "url": "https://example.com/mcp", "headers": headers}
    assert json.loads(settings.read_text()) == {"model": "claude-x", "mcpServers": {"notes": notes, "web": web}}
    assert settings.stat().st_mode & 0o777 == 0o600
    assert run_words(["mcp", "list"]) == 0
    assert run_words(["mcp", "remove", "web"]) == 0
    assert run_words(["mcp", "get", "web"]) == 2
    told = capfd.readouterr()
    assert "notes: KEY=… notes --quick\nweb: https://example.com/mcp Authorization: …\n" in told.out
    assert "very-secret" not in told.out + told.err
    assert told.err == "ccb: there is no MCP server 'web'\n  -> `ccb mcp list` shows them.\n"
    assert list(json.loads(settings.read_text())["mcpServers"]) == ["notes"]


def test_a_wrong_server_is_not_written(settings: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for name in ("a b", "a__b", "a_", "_a", "a" * 65):  # else a tool could be taken for one of another server
        assert run_words(["mcp", "add", name, "--", "x"]) == 78
    for words in ("https://example.com/mcp -e KEY=x", "-e KEY -- x", "-H Key:x -- x"):
        assert run_words(["mcp", "add", "a", *words.split()]) == 2
    assert run_words(["mcp", "fly"]) == 2
    assert "letters, digits, - and single _" in capfd.readouterr().err
    assert json.loads(settings.read_text()) == {"model": "claude-x"}


def test_a_server_is_tried(settings: Path, capfd: pytest.CaptureFixture[str]) -> None:
    program = [sys.executable, "-m", "tests.support.mcp_server"]
    run_words(["mcp", "add", "notes", "-e", f"PYTHONPATH={ROOT}", "--", *program])
    assert run_words(["mcp", "test", "notes"]) == 0
    assert "notes works: notes" in (out := capfd.readouterr().out) and "add, token, leave" in out
    assert run_words(["mcp", "login", "notes"]) == 2 and "has no login" in capfd.readouterr().err
    run_words(["mcp", "add", "gone", "--", "/nonexistent/server"])
    assert run_words(["mcp", "test", "gone"]) == 1
    said = capfd.readouterr().err
    assert "ccb: the MCP server gone cannot be reached\n  [Errno 2] No such file" in said
    assert "  -> `ccb mcp get gone` shows" in said
