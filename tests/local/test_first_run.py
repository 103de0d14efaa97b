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


async def test_the_person_is_asked_once_and_the_session_asks_for_the_key(tmp_path: Path, fake_model: FakeModel) -> None:
    with tidy_laptop(tmp_path, fake_model.url) as laptop:
        env = _newcomer(laptop, tmp_path)
        argv = [sys.executable, "-m", "ccb", str(tmp_path), "--plain"]
        async with terminal(argv, env, str(laptop.home)) as first:
            await first.types("yes\n", "Type one of the numbers, or Enter.")
            await first.types("3\n", "Press Enter to begin: ")
            await first.types("\n", "No model credential for 127.0.0.1")
            await first.until(lambda: "API key for " in first.text and not first.echoes)
            first.type("sk-wrong\n")
            await first.until(lambda: first.text.count("API key for ") == 2 and not first.echoes)
            assert "refused the key (HTTP 401)" in first.text
            await first.types(f"{API_KEY}\n", "Keep it for later sessions?")
            await first.types("\n", READY)
            assert "Stored the key for " in first.text
            assert await first.ended_by("\x04") == 0
        (stored,) = json.loads((tmp_path / "keyring.json").read_text()).values()
        assert json.loads(stored)["accounts"]["default"]["secret"] == API_KEY
        assert not any(each in first.written for each in (API_KEY.encode(), b"sk-wrong", b"\x1b"))
        assert (laptop.home / ".local/state/ccb/theme").read_text() == "high-contrast\n"
        async with terminal(argv, env, str(laptop.home)) as second:
            await second.shows(READY)
            assert "Enter" not in second.text and await second.ended_by("\x04") == 0
        (tmp_path / "keyring.json").unlink()
        async with terminal(argv, env, str(laptop.home)) as third:
            await third.shows("API key for ")
            assert await third.ended_by("\n") == 77
            assert "1 to 5 or Enter" not in third.text and "ccb auth login" in third.text


async def test_closing_it_asks_again_and_a_new_passphrase_is_not_asked_for_twice(
    tmp_path: Path, fake_model: FakeModel
) -> None:
    with tidy_laptop(tmp_path, fake_model.url) as laptop:
        env = {**_newcomer(laptop, tmp_path), "PYTHON_KEYRING_BACKEND": "keyring.backends.fail.Keyring"}
        argv = [sys.executable, "-m", "ccb", str(tmp_path), "--plain"]
        for key in ("\x03", "\x04"):
            async with terminal(argv, env, str(laptop.home)) as closed:
                await closed.shows("1 to 5 or Enter: ")
                assert await closed.ended_by(key) == 130
        async with terminal(argv, env, str(laptop.home)) as first:
            await first.types("\n", "Press Enter to begin: ")
            await first.types("\n", "API key for ")
            await first.until(lambda: not first.echoes)
            await first.types(f"{API_KEY}\n", "Keep it for later sessions?")
            for count, typed in enumerate(("yes", "open sesame", "open sesame")):
                await first.until(lambda count=count: first.text.count("Passphrase") == count)  # type: ignore[misc]
                first.type(f"{typed}\n")
            await first.shows(READY)
            assert first.text.count("Passphrase") == 2
            assert await first.ended_by("\x04") == 0
        async with terminal(argv, env, str(laptop.home)) as second:
            await second.types("", "Passphrase")
            await second.until(lambda: not second.echoes)
            await second.types("open sesame\n", READY)
            assert await second.ended_by("\x04") == 0


@pytest.mark.parametrize("extra", [{"CI": "true"}, {"ANTHROPIC_API_KEY": "k"}, {"ANTHROPIC_AUTH_TOKEN": "t"}, {}])
def test_nobody_is_asked_in_a_script_or_with_a_credential(
    extra: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    for stream in (sys.stdin, sys.stdout, sys.stderr) if extra else ():
        monkeypatch.setattr(stream, "isatty", lambda: True, raising=False)
    set_up(parse_arguments(["ssh", "devbox"], remote=""), {"HOME": str(tmp_path), **extra})
    assert capfd.readouterr() == ("", "")
    assert list(tmp_path.iterdir()) == []


def test_the_sample_of_a_theme_has_its_colours_where_the_terminal_shows_them() -> None:
    assert "\x1b[38;2;255;255;255;48;2;0;0;0m" in sample("high-contrast", {"COLORTERM": "truecolor", "TERM": "xterm"})
    assert "48;5;" in sample("light", {"TERM": "xterm-256color"})
    assert sample("light", {"TERM": "xterm"}) == sample("dark", {"NO_COLOR": "1", "TERM": "xterm-256color"}) == ""
    assert sample("ansi", {"TERM": "xterm-256color"}) == ""
