"""The set-up of the first run, on a real terminal."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from tests.support.model.fake_model import API_KEY, FakeModel
from tests.support.person.laptop import Laptop, tidy_laptop
from tests.support.person.terminal import terminal

from ccb.local.command_line.parser import parse_arguments
from ccb.local.first_run import set_up
from ccb.local.tui.rendering.themes import sample

pytestmark = pytest.mark.programs

READY = "Type a prompt; /help says more."


def _newcomer(laptop: Laptop, tmp_path: Path) -> dict[str, str]:
    env = {name: value for name, value in laptop.env.items() if name != "ANTHROPIC_API_KEY"}
    backend = "tests.support.person.file_keyring.FileKeyring"
    return {**env, "PYTHON_KEYRING_BACKEND": backend, "TEST_KEYRING_FILE": str(tmp_path / "keyring.json")}


async def test_without_credential_the_person_is_asked_once_and_it_begins(tmp_path: Path, fake_model: FakeModel) -> None:
    with tidy_laptop(tmp_path, fake_model.url) as laptop:
        env = _newcomer(laptop, tmp_path)
        argv = [sys.executable, "-m", "ccb", str(tmp_path), "--plain"]
        async with terminal(argv, env, str(laptop.home)) as first:
            await first.shows("1, 2 or Enter: ")
            first.type("yes\n")
            await first.shows("Type one of the numbers, or Enter.")
            first.type("1\n")
            await first.shows("API key for ")
            await first.until(lambda: not first.echoes)
            first.type("sk-wrong\n")
            await first.shows("1 tries again: ")
            first.type("1\n")
            await first.until(lambda: first.text.count("API key for ") == 2 and not first.echoes)
            first.type(f"{API_KEY}\n")
            await first.shows("Stored the key")
            await first.shows("1 to 5 or Enter: ")
            first.type("3\n")
            await first.shows("Press Enter to begin: ")
            first.type("\n")
            await first.shows(READY)
            first.type("\x04")
            assert await first.ended() == 0
        (stored,) = json.loads((tmp_path / "keyring.json").read_text()).values()
        assert json.loads(stored)["accounts"]["default"]["secret"] == API_KEY
        assert (
            API_KEY.encode() not in first.written and b"sk-wrong" not in first.written and b"\x1b" not in first.written
        )
        assert (laptop.home / ".local/state/ccb/theme").read_text() == "high-contrast\n"
        (tmp_path / "keyring.json").unlink()
        async with terminal(argv, env, str(laptop.home)) as second:  # without a key, and not asked any more
            assert await second.ended() == 77
            assert "1, 2 or Enter" not in second.text and "ccb auth login" in second.text


async def test_ctrl_c_skips_all_of_it_and_is_not_asked_again(tmp_path: Path, fake_model: FakeModel) -> None:
    with tidy_laptop(tmp_path, fake_model.url) as laptop:
        env = _newcomer(laptop, tmp_path)
        script = "import sys; from ccb.local import first_run as f; from ccb.local.command_line.parser import *\n"
        script += "f.set_up(parse_arguments(['ssh', 'devbox', '--plain'], remote='')); print('over')"
        async with terminal([sys.executable, "-c", script], env, str(laptop.home)) as first:
            await first.shows("1, 2 or Enter: ")
            first.type("\x03")
            assert await first.ended() == 0
            await first.shows("over")
        async with terminal([sys.executable, "-c", script], env, str(laptop.home)) as second:
            assert await second.ended() == 0
            await second.shows("over")
            assert "Enter" not in second.text


@pytest.mark.parametrize("extra", [{"CI": "true"}, {"ANTHROPIC_API_KEY": "k"}, {"ANTHROPIC_AUTH_TOKEN": "t"}, {}])
def test_nobody_is_asked_in_a_script_or_with_a_credential(
    extra: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    for stream in (sys.stdin, sys.stdout, sys.stderr) if extra else ():
        monkeypatch.setattr(stream, "isatty", lambda: True, raising=False)
    set_up(parse_arguments(["ssh", "devbox"], remote=""), {"HOME": str(tmp_path), **extra})
    assert capfd.readouterr() == ("", "")
    assert list(tmp_path.iterdir()) == []


def test_nobody_is_asked_for_a_key_of_anthropic_who_uses_another_provider(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        monkeypatch.setattr(stream, "isatty", lambda: True, raising=False)
    environ = {"HOME": str(tmp_path)}
    set_up(parse_arguments(["ssh", "devbox", "--model", "ollama/qwen3"], remote=""), environ)
    (tmp_path / ".local/state/ccb/set-up").unlink()
    (tmp_path / ".config/ccb").mkdir(parents=True)
    (tmp_path / ".config/ccb/settings.json").write_text('{"model": "fast", "modelAliases": {"fast": "openai/gpt-5"}}')
    set_up(parse_arguments(["ssh", "devbox"], remote=""), environ)
    assert capfd.readouterr() == ("", "")


def test_the_sample_of_a_theme_has_its_colours_where_the_terminal_shows_them() -> None:
    assert "\x1b[38;2;255;255;255;48;2;0;0;0m" in sample("high-contrast", {"COLORTERM": "truecolor", "TERM": "xterm"})
    assert "48;5;" in sample("light", {"TERM": "xterm-256color"})
    assert sample("light", {"TERM": "xterm"}) == sample("dark", {"NO_COLOR": "1", "TERM": "xterm-256color"}) == ""
    assert sample("ansi", {"TERM": "xterm-256color"}) == ""
