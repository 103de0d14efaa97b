"""No credential of any store, nor any token that takes its place, is in a log, an error, a journal, the ledger or a
recorded call of a whole run."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web
from tests.support.model.fake_model import API_KEY, FakeModel
from tests.support.model.model_script import uses
from tests.support.network.http_server import serving
from tests.support.person.file_keyring import FileKeyring
from tests.support.person.laptop import Laptop, make_laptop

from ccb.local.credentials.accounts import Account, Kind, ProviderAccounts
from ccb.local.credentials.encrypted_file import EncryptedFile
from ccb.local.credentials.secret_store import KeyStore, SecretStore
from ccb.tunnel.providers.provider_kinds import KINDS
from ccb.tunnel.secret import SECRET_VARIABLES, Secret
from ccb.tunnel.transports.login_prompts import NobodyToAsk

LOOK = "env; cat /proc/$PPID/environ; ps -fp $PPID"  # other programs of the machine are not this test's business
STALE, REFRESH, NEXT = "canary-stale-token", "canary-refresh-token", "canary-next-refresh"
OTHER, PASSPHRASE = "canary-of-another-provider", "canary passphrase"
CANARIES = (API_KEY, STALE, REFRESH, NEXT, OTHER, PASSPHRASE)
ARGUMENTS = ["-p", "go", "--debug", "--record", "--allowedTools", "Bash", "--output-format", "stream-json", "--verbose"]


@asynccontextmanager
async def token_server() -> AsyncIterator[str]:
    """Gives API_KEY, as a token, for REFRESH."""

    async def handle(request: web.Request) -> web.Response:
        asked = await request.json()
        if asked["refresh_token"] != REFRESH:
            return web.json_response({"error": f"what is {asked['refresh_token']}?"}, status=400)
        return web.json_response({"access_token": API_KEY, "refresh_token": NEXT, "expires_in": 600})

    async with serving(handle) as url:
        yield url


async def kept_in(kind: str, laptop: Laptop, model: FakeModel, token_url: str) -> Path | None:
    """Let the laptop take its credential from there, and return the file that may hold it in the clear."""
    del laptop.env["ANTHROPIC_API_KEY"]
    host = model.url.removeprefix("http://")
    keyring = laptop.home.parent / "keyring.json"
    store: SecretStore = KeyStore(lambda: FileKeyring(keyring))
    laptop.env["PYTHON_KEYRING_BACKEND"] = "tests.support.person.file_keyring.FileKeyring"
    laptop.env["TEST_KEYRING_FILE"] = str(keyring)
    account, may_hold = Account("default", "api_key", Secret(API_KEY)), keyring
    if kind == "environment":
        laptop.env["ANTHROPIC_AUTH_TOKEN"] = API_KEY
        return None
    if kind == "helper":
        may_hold = laptop.home.parent / "key"
        may_hold.write_text(API_KEY)
        laptop.settings(apiKeyHelper=f"cat {may_hold}")
        return may_hold
    if kind == "login":
        oauth: Kind = "oauth"
        account = Account("default", oauth, Secret(STALE), refresh=Secret(REFRESH), token_url=token_url, client_id="me")
    if kind == "file":
        may_hold = laptop.home.parent / "passphrase"
        may_hold.write_text(PASSPHRASE)
        helper = f"cat {may_hold}"
        laptop.settings(credentials={"store": "file", "passphraseHelper": helper})
        sealed = laptop.home / ".config/ccb/credentials.sealed"
        store = EncryptedFile(sealed, laptop.env, NobodyToAsk(), helper=helper, cost=1 << 14)
        await store.unlock(create=True)
    ProviderAccounts(store, host, laptop.home / "locks").put(account)
    return may_hold


def found_in(directory: Path, but: Path | None) -> list[str]:
    files = [path for path in directory.rglob("*") if path.is_file() and path != but]
    assert any(path.name.startswith("ccb-") for path in files) and any(path.name == "journal.jsonl" for path in files)
    return [f"{secret} in {path}" for path in files for secret in CANARIES if secret.encode() in path.read_bytes()]


@pytest.mark.programs
@pytest.mark.parametrize("kind", ["login", "keyring", "environment", "helper", "file"])
@pytest.mark.quick_rows(2)
async def test_no_credential_is_in_anything_that_a_run_writes(kind: str, tmp_path: Path, fake_model: FakeModel) -> None:
    laptop = make_laptop(tmp_path, fake_model.url)
    project = laptop.home / "project"
    project.mkdir()
    fake_model.add({"status": 529, "retry_after": 0}, uses("Bash", command=LOOK), {"text": "done"})
    async with token_server() as token_url:
        may_hold = await kept_in(kind, laptop, fake_model, token_url)
        laptop.env["OPENAI_API_KEY"] = OTHER
        done = await laptop.run([str(project), *ARGUMENTS])
        failed = await laptop.run([str(project), *ARGUMENTS])  # the script of the model is at its end: 400
    assert done.code == 0 and "done" in done.stdout, "a refused token is renewed and the call goes on"
    assert failed.code != 0
    for output in (done.stdout, done.stderr, failed.stdout, failed.stderr):
        assert not [secret for secret in CANARIES if secret in output]
    assert found_in(tmp_path, may_hold) == []
    assert all(secret not in request.tool_result_text for request in fake_model.requests for secret in CANARIES)


def test_no_program_that_ccb_starts_inherits_the_key_of_a_provider() -> None:
    assert {name for kind in KINDS.values() for name in kind.key_variables} <= {*SECRET_VARIABLES}
