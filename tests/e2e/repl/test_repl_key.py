"""`/login` in a session whose key the provider refuses: the session goes on with another one."""

from __future__ import annotations

import json

import pytest
from tests.support.model.fake_model import API_KEY
from tests.support.person.laptop import Here


@pytest.mark.quick_rows(1)
@pytest.mark.parametrize(
    ("words", "ready", "anew"),
    [((), "F1 or /help", "Before this: session"), (("--plain",), "Type a prompt; /help", "this session stays on")],
)
async def test_the_next_model_call_has_the_new_key_and_nothing_else_has_it(
    here: Here, words: tuple[str, ...], ready: str, anew: str
) -> None:
    here.model.add({"text": "Counted-to-three."}, {"text": "Counted-anew."})
    keyring, keeps = here.laptop.home.parent / "keyring.json", bool(words)
    backend = "tests.support.person.file_keyring.FileKeyring"
    here.laptop.env.update(PYTHON_KEYRING_BACKEND=backend, TEST_KEYRING_FILE=str(keyring), ANTHROPIC_API_KEY="sk-old")
    async with here.on_terminal(*words) as running:
        await running.shows(ready)
        await running.types("count\r", "API Error: 401 invalid x-api-key")
        await running.types("/login\r", "API key for 127.0.0.1")
        await running.until(lambda: not running.echoes)
        await running.types("sk-wrong\r", "refused the key (HTTP 401)")
        await running.until(lambda: running.text.count("API key for ") == 2 and not running.echoes)
        await running.types(f"{API_KEY}\r", "Keep it for later sessions?")
        await running.types("\r" if keeps else "no\r", "ANTHROPIC_API_KEY")
        await running.types("count again\r", "Counted-to-three.")
        await running.types("/clear\r", anew)
        await running.types("count anew\r", "Counted-anew.")
        running.type("\x04")
        assert await running.ended() == 0
    kept = json.loads(keyring.read_text()) if keyring.exists() else {}
    assert (API_KEY in str(kept)) is keeps
    assert API_KEY.encode() not in running.written and "Warning" not in running.text
    files = [each for each in here.laptop.home.rglob("*") if each.is_file()]
    assert files and not any(API_KEY.encode() in each.read_bytes() for each in files)
