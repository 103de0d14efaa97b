"""What the doctor says of keys in files, with keys that ssh-keygen made; of keyrings and of clocks."""

from __future__ import annotations

import asyncio
import os
import pwd
import threading
from collections.abc import Iterator
from pathlib import Path

import keyring
import pytest
from tests.support.hosts.sshd import make_key
from tests.support.model.fake_model import FakeModel
from tests.support.person.file_keyring import FileKeyring

from ccb.local.doctor import laptop_checks as doctor_laptop
from ccb.local.doctor.doctor_findings import skew_text
from ccb.local.doctor.ssh_checks import default_keys, keys_finding


def test_keys_are_told_apart_without_being_unlocked(tmp_path: Path) -> None:
    plain, locked = make_key(tmp_path / "plain"), make_key(tmp_path / "locked", passphrase="secret words")
    old = make_key(tmp_path / "old", "rsa")
    found = keys_finding("laptop", [plain, locked, plain.with_suffix(".pub"), plain])
    assert found.state.value == "ok"
    assert found.found.splitlines() == [
        f"{plain}: without passphrase",
        f"{locked}: with passphrase",
        f"{plain}.pub: public key only: the agent must hold the private key",
    ]
    old.write_text("-----BEGIN OPENSSH PRIVATE KEY-----\nabc\n-----END OPENSSH PRIVATE KEY-----\n", encoding="ascii")
    assert keys_finding("laptop", [old]).found.endswith(": not a private key")


def test_a_key_that_others_can_read_or_that_is_not_there_is_a_warning(tmp_path: Path) -> None:
    key = make_key(tmp_path / "key")
    key.chmod(0o644)
    found = keys_finding("laptop", [key, tmp_path / "missing"])
    assert found.state.value == "warn" and found.fix
    assert f"chmod 600 {key}" in found.found and f"{tmp_path}/missing: No such file" in found.found


def test_no_key_is_no_trouble_and_ssh_looks_in_the_home_of_the_account(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    ssh = Path(pwd.getpwuid(os.getuid()).pw_dir) / ".ssh"
    assert {path.parent for path in default_keys()} == {ssh}
    for usual in (tmp_path / ".ssh", ssh):
        found = keys_finding("laptop", [usual / "id_none", usual / "id_nowhere"])
        assert (found.state.value, found.fix) == ("info", "")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.04, "as it says, within 0.1 s"),
        (-1.26, "1.3 seconds behind it"),
        (90.0, "90.0 seconds ahead of it"),
        (7300.0, "2 hours ahead of it"),
        (-315360000.0, "3650 days behind it"),
    ],
)
def test_a_clock_that_is_off_is_told_in_units_of_people(seconds: float, text: str) -> None:
    assert skew_text(seconds, 0.1, "it") == text


class Waiting(FileKeyring):
    """Asks somebody for its password who is not there."""

    def __init__(self, path: Path | None = None) -> None:
        super().__init__(path)
        self.answered = threading.Event()

    def get_password(self, service: str, username: str) -> str | None:
        self.answered.wait()
        return None


@pytest.fixture
def waiting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Waiting]:
    monkeypatch.setenv("TEST_KEYRING_FILE", str(tmp_path / "keys"))  # keyring looks at every backend there is
    before, mine = keyring.get_keyring(), Waiting(tmp_path / "keys")
    keyring.set_keyring(mine)
    try:
        yield mine
    finally:
        mine.answered.set()
        keyring.set_keyring(before)


async def test_a_keyring_that_waits_for_its_password_does_not_hold_the_doctor_up(
    waiting: Waiting, fake_model: FakeModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor_laptop, "_CREDENTIAL_S", 0.2)
    environ = {"HOME": str(tmp_path), "ANTHROPIC_BASE_URL": fake_model.url}
    async with asyncio.timeout(110):
        found = {each.name: each async for each in doctor_laptop.laptop_findings(environ)}
    assert found["keyring"].state.value == "ok"
    assert found["credential"].state.value == "block" and "did not answer" in found["credential"].found
    assert not waiting.answered.is_set()
