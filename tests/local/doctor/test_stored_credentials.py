"""What the doctor says of credentials under a passphrase, and of the way to the provider that the settings describe."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.support.model.fake_model import API_KEY, FakeModel
from tests.support.person.typist import Typist

from ccb.local.config.log import state_dir
from ccb.local.credentials.accounts import Account, ProviderAccounts
from ccb.local.credentials.encrypted_file import EncryptedFile, credentials_path
from ccb.local.doctor.doctor_findings import Finding
from ccb.local.doctor.laptop_checks import laptop_findings
from ccb.tunnel.secret import Secret

PASSPHRASE = "correct horse"


@pytest.fixture
def environ(tmp_path: Path, fake_model: FakeModel) -> dict[str, str]:
    return {"HOME": str(tmp_path), "ANTHROPIC_BASE_URL": fake_model.url}


def write_settings(environ: dict[str, str], **settings: object) -> None:
    path = credentials_path(environ).with_name("settings.json")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(settings))


async def found(environ: dict[str, str], prompts: Typist | None = None) -> dict[str, Finding]:
    return {each.name: each async for each in laptop_findings(environ, prompts)}


async def test_a_credential_is_checked_after_its_passphrase(environ: dict[str, str], fake_model: FakeModel) -> None:
    write_settings(environ, credentials={"store": "file"})
    store = EncryptedFile(credentials_path(environ), environ, Typist(PASSPHRASE, PASSPHRASE), cost=1 << 14)
    await store.unlock(create=True)
    host = fake_model.url.removeprefix("http://")
    ProviderAccounts(store, host, state_dir(environ)).put(Account("default", "api_key", Secret(API_KEY)))

    typist = Typist(PASSPHRASE)
    findings = await found(environ, typist)
    assert len(typist.asked) == 1
    assert findings["credential"].found.endswith("accepted")

    locked = (await found(environ))["credential"]
    assert locked.state.value == "info" and "stays locked" in locked.found


async def test_a_ca_of_the_settings_is_used_and_named(environ: dict[str, str], tmp_path: Path) -> None:
    write_settings(environ, network={"caFile": str(tmp_path / "missing.pem")})
    secure = {**environ, "ANTHROPIC_BASE_URL": "https://127.0.0.1:9", "ANTHROPIC_API_KEY": "k"}
    provider = (await found(secure))["provider"]
    assert provider.state.value == "block" and "missing.pem" in provider.found
