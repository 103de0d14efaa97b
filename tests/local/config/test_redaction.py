"""What a log line never holds, whoever wrote it and however it went wrong."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import BaseModel

from ccb.local.config.log import logging_to_file
from ccb.tunnel.errors import CredentialError
from ccb.tunnel.plain_text import neutralise

KEY = "key-of-a-strange-form"
LAB_KEY = "a-key-that-the-settings-name"
log = logging.getLogger("ccb.test")


class Row(BaseModel):
    count: int


@pytest.fixture
def path(tmp_path: Path) -> Iterator[Path]:
    environ = {
        "HOME": str(tmp_path),
        "XDG_STATE_HOME": str(tmp_path / "state"),
        "ANTHROPIC_API_KEY": KEY,
        "LAB_KEY": LAB_KEY,
        "DB_PASSWORD": 'has"quotes\\and',
        "https_proxy": "http://bob:pa/ss%20w:rd@proxy:3128",
    }
    with logging_to_file(debug=True, environ=environ) as file:
        yield file


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        (f"using {KEY} now", KEY),
        (f"using {LAB_KEY} now", LAB_KEY),
        (r'{"command": "login has\"quotes\\and"}', "quotes"),
        ("it is sk-ant-REDACTED", "sk-ant"),
        ("Authorization: Bearer abcdefghij", "abcdefghij"),
        ('{"nonce":"Zx8_abcdefghijkl"}', "Zx8_abc"),
        ("x-api-key: 0123456789", "0123456789"),
        ("through http://bob:hunter22@proxy:3128", "hunter22"),
        ("through https://a-token-alone@proxy:3128", "a-token-alone"),
        ("through http://bob:p@ss@w0rd@proxy:3128", "w0rd"),
        ("the proxy did not like pa/ss w:rd of mine", "pa/ss w:rd"),
        ("password=correcthorse", "correcthorse"),
    ],
)
def test_what_looks_like_a_secret_is_struck_out(path: Path, text: str, secret: str) -> None:
    log.warning("said: %s", text)
    written = path.read_text(encoding="utf-8")
    assert "said: " in written and "[redacted]" in written
    assert secret not in written


def test_plain_words_stay(path: Path) -> None:
    log.warning("no password was given; 3 tokens; the nonce is new; host devbox port 22")
    assert "no password was given; 3 tokens; the nonce is new; host devbox port 22" in path.read_text(encoding="utf-8")


def test_an_error_of_a_library_loses_what_it_quotes(path: Path) -> None:
    try:
        Row.model_validate({"count": "PROMPT-TEXT"})
    except ValueError as error:
        log.exception("reading failed")
        log.warning("reading failed: %s", error)
    written = path.read_text(encoding="utf-8")
    assert "PROMPT-TEXT" not in written
    assert "ValidationError" in written and "test_redaction.py:" in written


def test_what_led_to_an_error_is_named_without_its_text(path: Path) -> None:
    try:
        try:
            raise ValueError("FILE-CONTENT")
        except ValueError as error:
            raise CredentialError("the helper failed", evidence="HELPER-SAID-THIS", do="Run it.") from error
    except CredentialError as error:
        log.info("ended", exc_info=error)
    written = path.read_text(encoding="utf-8")
    assert "CredentialError: the helper failed (its evidence is not logged)" in written and "ValueError" in written
    assert "HELPER-SAID-THIS" not in written and "FILE-CONTENT" not in written


async def test_a_lost_exception_of_a_task_is_named_without_its_objects(path: Path) -> None:
    async def fails() -> None:
        raise ValueError("TOOL-OUTPUT")

    task = asyncio.create_task(fails())
    await asyncio.wait([task])
    asyncio.get_running_loop().call_exception_handler(
        {"message": "Task exception was never retrieved", "exception": task.exception(), "future": task}
    )
    written = path.read_text(encoding="utf-8")
    assert "Task exception was never retrieved" in written and "ValueError" in written
    assert "TOOL-OUTPUT" not in written


def test_a_library_cannot_fill_the_log_with_one_line(path: Path) -> None:
    logging.getLogger("asyncssh").info("  Command: %s", "x" * 10_000)
    assert len(path.read_text(encoding="utf-8")) < 400


def test_what_stands_behind_the_program_of_a_command_is_not_logged(tmp_path: Path) -> None:
    command = "sshpass -p hunter22 ssh \x1b[31mhost"
    quoted = "ssh -o 'X=hunter44  y' -v"
    environ = {"HOME": str(tmp_path)}
    with logging_to_file(
        debug=True, environ=environ, commands=[command, "docker", "SetEnv A=hunter33", quoted]
    ) as path:
        log.warning("no connection to %s; docker; SetEnv A=hunter33 refused", command)
        log.warning("no connection to %s", neutralise(command))
        log.warning("no connection to %s", "ssh -o X=hunter44  y -v alice@host")
    written = path.read_text(encoding="utf-8")
    assert "hunter" not in written
    assert "no connection to sshpass [redacted]; docker; SetEnv [redacted] refused" in written
