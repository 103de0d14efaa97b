"""The encrypted file: nothing in the clear, one question a run, and damage that is noticed."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest
from keyring.backends import fail
from tests.support.person.typist import Typist

from ccb.local.config.settings import CredentialSettings, Settings
from ccb.local.credentials.encrypted_file import COST, EncryptedFile, credentials_path, fits, key_for, seal, unseal
from ccb.local.credentials.secret_store import KeyStore, open_store
from ccb.tunnel.errors import ConfigError, CredentialError
from ccb.tunnel.secret import Secret
from ccb.tunnel.transports.login_prompts import NobodyToAsk

CHEAP = 1 << 14


def file_of(tmp_path: Path, prompts: NobodyToAsk, helper: str | None = None) -> EncryptedFile:
    return EncryptedFile(tmp_path / "c" / "credentials.sealed", {}, prompts, helper=helper, cost=CHEAP)


async def made(tmp_path: Path) -> Path:
    file = file_of(tmp_path, Typist("correct horse", "correct horse"))
    await file.unlock(create=True)
    file.put("h", Secret("sk-canary"))
    return file.path


async def test_what_is_stored_is_read_by_another_run_with_the_passphrase_and_is_not_in_the_file(tmp_path: Path) -> None:
    path = await made(tmp_path)
    assert b"sk-canary" not in path.read_bytes() and stat.S_IMODE(path.stat().st_mode) == 0o600
    prompts = Typist("wrong", "correct horse")
    file = file_of(tmp_path, prompts)
    with pytest.raises(ConfigError, match="is locked"):
        file.get("h")
    await file.unlock()
    assert file.get("h") == Secret("sk-canary") and file.get("other") is None
    assert [attempt for _, attempt in prompts.asked] == [1, 2]
    assert file.delete("h") and not path.exists() and not file.delete("h")


async def test_the_passphrase_is_asked_once_for_all_sessions_of_a_run(tmp_path: Path) -> None:
    await made(tmp_path)
    prompts = Typist("correct horse")
    await file_of(tmp_path, prompts).unlock()
    another = file_of(tmp_path, prompts)
    await another.unlock()
    assert another.get("h") == Secret("sk-canary") and len(prompts.asked) == 1


async def test_a_command_may_print_the_passphrase(tmp_path: Path) -> None:
    await made(tmp_path)
    file = file_of(tmp_path, NobodyToAsk(), helper="echo 'correct horse'")
    await file.unlock()
    assert file.get("h") == Secret("sk-canary")
    with pytest.raises(ConfigError, match="the passphrase is wrong"):
        await file_of(tmp_path, NobodyToAsk(), helper="echo other").unlock()


async def test_without_the_passphrase_it_stays_locked(tmp_path: Path) -> None:
    await made(tmp_path)
    for prompts in (NobodyToAsk(), Typist("wrong", "wrong", "wrong", "correct horse")):
        with pytest.raises(CredentialError, match="stays locked"):
            await file_of(tmp_path, prompts).unlock()


@pytest.mark.parametrize(
    ("typed", "why"), [(("correct horse", "another horse"), "differ"), ((), "shorter"), (("short", "other"), "shorter")]
)
async def test_a_new_file_wants_the_same_long_passphrase_twice(
    tmp_path: Path, typed: tuple[str, ...], why: str
) -> None:
    file = file_of(tmp_path, Typist(*typed))
    with pytest.raises((CredentialError, ConfigError), match=why):
        await file.unlock(create=True)
    assert not file.exists()


async def test_a_changed_file_is_refused(tmp_path: Path) -> None:
    path = await made(tmp_path)
    good = json.loads(path.read_bytes())
    for name, value in (("data", good["data"][::-1]), ("cost", 1 << 40), ("salt", "AAAA"), ("format", "x")):
        path.write_text(json.dumps({**good, name: value}))
        with pytest.raises((ConfigError, CredentialError)):
            await file_of(tmp_path, Typist("correct horse")).unlock()
    path.write_text("not JSON")
    with pytest.raises(ConfigError, match="no file of encrypted credentials"):
        await file_of(tmp_path, Typist("correct horse")).unlock()


def test_each_file_has_its_own_salt_and_each_text_its_own_nonce() -> None:
    first, second = key_for(None, "p", CHEAP), key_for(None, "p", CHEAP)
    assert first.salt != second.salt and first.key != second.key
    sealed = seal("text", first)
    assert sealed != seal("text", first) and unseal(sealed, key_for(sealed, "p")) == "text"
    assert fits(first, sealed) and not fits(second, sealed)
    assert COST >= 1 << 17


async def test_the_file_is_used_by_choice_or_without_a_keyring(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    environ = {"HOME": str(tmp_path)}
    monkeypatch.setattr("keyring.get_keyring", fail.Keyring)
    assert isinstance(open_store(environ, Settings(), NobodyToAsk()), KeyStore), "whose error says what to do"
    credentials_path(environ).parent.mkdir(parents=True)
    credentials_path(environ).touch()
    assert isinstance(open_store(environ, Settings(), NobodyToAsk()), EncryptedFile)
    for store, kind in (("file", EncryptedFile), ("keyring", KeyStore)):
        chosen = Settings(credentials=CredentialSettings(store=store))  # type: ignore[arg-type]
        assert isinstance(open_store(environ, chosen, NobodyToAsk()), kind)
