"""The settings file: what it may say, and what a wrong one answers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ccb.local.config.settings import Settings, load_settings, settings_path
from ccb.tunnel.errors import ConfigError


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    return {"HOME": str(tmp_path / "home"), "XDG_CONFIG_HOME": str(tmp_path / "config")}


def write(environ: dict[str, str], content: Any) -> Path:
    path = settings_path(environ)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return path


def test_without_a_file_everything_has_its_default(environ: dict[str, str]) -> None:
    assert load_settings(environ) == Settings()


def test_all_known_keys_are_read(environ: dict[str, str]) -> None:
    content = {
        "apiKeyHelper": "pass show anthropic",
        "model": "some-model",
        "permissionMode": "acceptEdits",
        "permissions": {"allow": ["Bash(git *)"], "deny": ["Read(/etc/**)"]},
        "connectTimeoutSeconds": 12,
        "graceHours": 48,
        "idleMinutes": 5,
    }
    path = write(environ, content)
    settings = load_settings(environ)
    assert settings.model_dump() == content
    assert settings.warnings(path) == []


def test_the_file_is_found_by_the_xdg_rules(tmp_path: Path) -> None:
    assert settings_path({"HOME": "/h", "XDG_CONFIG_HOME": "/c"}) == Path("/c/ccb/settings.json")
    assert settings_path({"HOME": "/h"}) == Path("/h/.config/ccb/settings.json")
    assert settings_path({"HOME": "/h", "XDG_CONFIG_HOME": "relative"}) == Path("/h/.config/ccb/settings.json")


def test_unknown_keys_have_no_effect_and_are_warned_about(environ: dict[str, str]) -> None:
    path = write(environ, {"modle": "typo", "permissions": {"alow": []}})
    settings = load_settings(environ)
    assert settings.model is None
    assert settings.warnings(path) == [
        f"{path}: unknown key 'modle' has no effect",
        f"{path}: unknown key 'permissions.alow' has no effect",
    ]


@pytest.mark.parametrize(
    ("content", "named"),
    [
        ({"model": 5}, "model"),
        ({"model": ""}, "model"),
        ({"permissionMode": "yolo"}, "permissionMode"),
        ({"permissions": {"allow": "Bash"}}, "permissions.allow"),
        ({"permissions": {"deny": [1]}}, "permissions.deny.0"),
        ({"permissions": []}, "permissions"),
        ({"connectTimeoutSeconds": 0}, "connectTimeoutSeconds"),
        ({"connectTimeoutSeconds": "30"}, "connectTimeoutSeconds"),
        ({"connectTimeoutSeconds": 1e9}, "connectTimeoutSeconds"),
        ([], "not a JSON object"),
        ("{,", "line 1, column 2"),
        ("[" * 100_000, "not JSON"),
        ('{"model": "' + "x" * 1024 * 1024 + '"}', "larger than"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_a_wrong_file_is_an_error_that_names_file_and_key(environ: dict[str, str], content: Any, named: str) -> None:
    path = write(environ, content)
    with pytest.raises(ConfigError) as caught:
        load_settings(environ)
    assert str(path) in caught.value.what and named in caught.value.what
    assert caught.value.do


@pytest.mark.parametrize(
    "content",
    [
        {"ANTHROPIC_API_KEY": "x"},
        {"apiKey": "x"},
        {"authToken": "x"},
        {"apiKeyHelper": "echo sk-ant-api03-abcdefgh"},
        {"other": {"deep": ["sk-ant-api03-abcdefgh"]}},
    ],
)
def test_a_secret_in_the_file_is_refused_and_not_repeated(environ: dict[str, str], content: Any) -> None:
    write(environ, content)
    with pytest.raises(ConfigError, match="must not hold a secret") as caught:
        load_settings(environ)
    assert "sk-ant" not in str(caught.value) and "auth login" in caught.value.do


def test_a_file_that_others_can_change_is_refused(environ: dict[str, str]) -> None:
    path = write(environ, {"apiKeyHelper": "true"})
    path.chmod(0o666)
    with pytest.raises(ConfigError, match="other users"):
        load_settings(environ)


def test_a_directory_in_its_place_is_an_error_not_a_traceback(environ: dict[str, str]) -> None:
    settings_path(environ).mkdir(parents=True)
    with pytest.raises(ConfigError, match="cannot be read"):
        load_settings(environ)
