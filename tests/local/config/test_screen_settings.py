"""The settings that the first frame of the REPL needs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ccb.local.config.settings import SettingsChoice, settings_path
from ccb.local.config.settings_loading import DEFAULT_SCREEN, keep_editor_mode, load_screen_settings, load_settings
from ccb.tunnel.errors import ConfigError


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    return {"HOME": str(tmp_path / "home"), "XDG_CONFIG_HOME": str(tmp_path / "config")}


def write(environ: dict[str, str], content: Any) -> Path:
    path = settings_path(environ)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content, indent=1), encoding="utf-8")
    return path


def test_they_are_those_of_the_file_and_of_the_option_together(environ: dict[str, str]) -> None:
    write(environ, {"editorMode": "vim", "mouse": False, "keys": {"details": "Ctrl+Y", "todos": "Ctrl+O"}})
    found = load_screen_settings(environ, SettingsChoice(flag='{"mouse": true, "keys": {"todos": ["F2", "F3"]}}'))
    assert (found.mouse, found.vim) == (True, True)
    assert (found.keymap.names("details"), found.keymap.names("todos")) == ("Ctrl+Y", "F2, F3")


@pytest.mark.parametrize("content", ["{", {"keys": {"details": "q"}}, {"keys": 1, "mouse": "no", "editorMode": 7}])
def test_what_cannot_be_used_does_not_keep_the_first_frame_away(environ: dict[str, str], content: Any) -> None:
    write(environ, content)
    assert load_screen_settings(environ) == DEFAULT_SCREEN
    with pytest.raises(ConfigError):
        load_settings(environ)


def test_a_broken_key_is_named_with_its_line(environ: dict[str, str]) -> None:
    path = write(environ, {"model": "opus", "keys": {"todos": "F2", "detials": "Ctrl+Y"}})
    with pytest.raises(ConfigError) as error:
        load_settings(environ)
    assert str(error.value.what).startswith(f"{path}, line 5: keys.detials: there is no key of this name; there are")


def test_a_key_that_two_sources_give_away_is_refused_where_it_was_given_last(environ: dict[str, str]) -> None:
    write(environ, {"keys": {"details": "F2"}})
    with pytest.raises(ConfigError) as error:
        load_settings(environ, SettingsChoice(flag='{"keys": {"todos": "F2"}}'))
    assert error.value.what.startswith("--settings, line 1: keys.todos: F2 is the key of 'details', too")


def test_the_keys_of_the_input_are_kept_beside_all_other_settings(environ: dict[str, str]) -> None:
    path = write(environ, {"model": "opus", "editorMode": "vim"})
    keep_editor_mode(vim=False, environ=environ)
    assert json.loads(path.read_text(encoding="utf-8")) == {"model": "opus", "editorMode": "normal"}
    keep_editor_mode(vim=True, environ=environ)
    assert load_settings(environ).editorMode == "vim"
