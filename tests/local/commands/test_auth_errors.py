"""What `ccb auth` refuses, and in which words."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.support.person.file_keyring import FileKeyring
from tests.support.run_words import run_words

from ccb.local.command_line.exit_codes import ExitCode

LOGIN = json.dumps({"access_token": "a", "refresh_token": "r", "client_id": "c"})


@pytest.fixture
def auth(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setattr("keyring.get_keyring", lambda: FileKeyring(tmp_path / "keyring.json"))

    def run(*args: str, stdin: str = "") -> int:
        monkeypatch.setattr("sys.stdin", io.StringIO(stdin))
        return run_words(["auth", *args])

    return run


@pytest.mark.parametrize(
    ("args", "stdin", "says"),
    [
        (["login", "--oauth-stdin"], "not JSON", "The input is not a login"),
        (["login", "--oauth-stdin"], '{"access_token": "a"}', "The input is not a login"),
        (["login", "--oauth-stdin"], '{"claudeAiOauth": {"accessToken": "a"}}', "The input is not a login"),
        (["login", "openai", "--oauth-stdin"], LOGIN, "only Anthropic's logins can be renewed"),
        (["login", "opnai", "--api-key-stdin"], "k", "Did you mean openai"),
        (["login", "--account", "a b", "--api-key-stdin"], "k", "cannot be the name of an account"),
        (["login", "--workspace", "a b", "--api-key-stdin"], "k", "--workspace is no workspace"),
        (["login", "bedrock", "--api-key-stdin"], "k", "cloud's own tools"),
        (["login", "azure", "--api-key-stdin"], "k", "has no base URL"),
    ],
)
def test_what_cannot_be_stored_is_refused_before_anybody_is_asked(
    auth: Callable[..., int], capsys: pytest.CaptureFixture[str], args: list[str], stdin: str, says: str
) -> None:
    assert auth(*args, stdin=stdin) in (ExitCode.USAGE, ExitCode.CONFIG)
    assert says in capsys.readouterr().err
