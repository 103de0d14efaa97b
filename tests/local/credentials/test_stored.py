"""Stored accounts: which one is used, and how the token of a login is renewed, once, over several ccb."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from tests.support.network.http_server import serving
from tests.support.person.file_keyring import FileKeyring

from ccb.local.config.settings import CredentialSettings
from ccb.local.credentials.accounts import Account, Kind, ProviderAccounts
from ccb.local.credentials.credential_sources import StoredCredential
from ccb.local.credentials.secret_store import KeyStore
from ccb.tunnel.errors import ConfigError, CredentialError
from ccb.tunnel.providers.anthropic import AnthropicProvider
from ccb.tunnel.providers.http_client import ProviderClient, endpoint_at
from ccb.tunnel.providers.provider import ProviderError
from ccb.tunnel.secret import Secret


@pytest.fixture
def keyring_file(tmp_path: Path) -> Path:
    return tmp_path / "keyring.json"


@pytest.fixture
def store(keyring_file: Path) -> KeyStore:
    return KeyStore(lambda: FileKeyring(keyring_file))


@dataclass
class TokenServer:
    """A token endpoint. It takes each refresh token once, and gives token-1, token-2, …"""

    url: str = ""
    asked: list[dict[str, Any]] = field(default_factory=list)
    status: int = 200
    refresh: str = "refresh-0"

    async def handle(self, request: web.Request) -> web.Response:
        given = await request.json()
        self.asked.append(given)
        if self.status != 200:
            return web.Response(status=self.status)
        if given["refresh_token"] != self.refresh:
            return web.json_response({"error": "invalid_grant"}, status=400)
        number = len(self.asked)
        self.refresh = f"refresh-{number}"
        body = {"access_token": f"token-{number}", "refresh_token": self.refresh, "expires_in": 600}
        return web.json_response(body)


@pytest.fixture
async def server() -> AsyncIterator[TokenServer]:
    server = TokenServer()
    async with serving(server.handle) as url:
        server.url = url
        yield server


class Laptop:
    """Several ccb over one keyring."""

    def __init__(self, store: KeyStore, tmp_path: Path) -> None:
        self.accounts = ProviderAccounts(store, "h", tmp_path / "state")
        self.now = 1_000_000.0

    def ccb(self, account: str | None = None) -> StoredCredential:
        return StoredCredential(self.accounts, account, {}, lambda: self.now)

    def add(self, name: str, secret: str, kind: Kind = "api_key", **more: Any) -> None:
        self.accounts.put(Account(name, kind, Secret(secret), **more))

    def log_in(self, server: TokenServer, lasts: float = 600.0) -> None:
        login = {
            "expires": self.now + lasts,
            "refresh": Secret("refresh-0"),
            "token_url": server.url,
            "client_id": "me",
        }
        self.add("default", "token-0", "oauth", **login)


@pytest.fixture
def laptop(store: KeyStore, tmp_path: Path) -> Laptop:
    return Laptop(store, tmp_path)


async def test_an_account_belongs_to_one_host(laptop: Laptop, store: KeyStore, tmp_path: Path) -> None:
    laptop.add("default", "k")
    assert (await laptop.ccb().get()).headers() == {"x-api-key": "k"}
    other = StoredCredential(ProviderAccounts(store, "other.example", tmp_path), None, {})
    with pytest.raises(CredentialError, match=r"No model credential for other\.example") as caught:
        await other.get()
    assert "ccb auth login" in caught.value.do


async def test_a_key_that_an_earlier_version_stored_is_the_default_account(laptop: Laptop, store: KeyStore) -> None:
    store.put("h", Secret("sk-old"))
    assert (await laptop.ccb().get()).headers() == {"x-api-key": "sk-old"}
    laptop.add("work", "sk-work")
    assert list(laptop.accounts.all()) == ["default", "work"]


async def test_the_settings_choose_among_several_accounts(laptop: Laptop) -> None:
    laptop.add("work", "sk-work", workspace="wrkspc_1")
    assert (await laptop.ccb().get()).headers() == {"x-api-key": "sk-work", "anthropic-workspace-id": "wrkspc_1"}
    laptop.add("lab", "t", "bearer")
    assert (await laptop.ccb("lab").get()).headers() == {"authorization": "Bearer t"}
    for name in (None, "none"):
        with pytest.raises(CredentialError, match="there is work, lab"):
            await laptop.ccb(name).get()
    settings = CredentialSettings(account={"anthropic": "work"}, hosts={"gpu-*": {"anthropic": "lab"}})
    assert settings.account_for("anthropic", "gpu-3") == "lab"
    assert (settings.account_for("anthropic", "web"), settings.account_for("openai", "gpu-3")) == ("work", None)


async def test_a_stored_key_is_read_once_and_again_after_it_was_refused(laptop: Laptop) -> None:
    laptop.add("default", "old")
    source = laptop.ccb()
    old = await source.get()
    laptop.add("default", "new")
    assert await source.get() == old
    assert await source.refused(old)
    new = await source.get()
    assert new.headers() == {"x-api-key": "new"}
    assert not await source.refused(new)


def test_what_is_stored_can_be_removed_and_damage_is_named(laptop: Laptop, store: KeyStore) -> None:
    laptop.add("a", "k")
    laptop.add("b", "k")
    assert laptop.accounts.remove("a") and not laptop.accounts.remove("a")
    assert laptop.accounts.remove("b") and store.get("h") is None
    store.put("h", Secret('{"ccb": 1, "accounts": {"a": 1}}'))
    with pytest.raises(ConfigError, match="cannot be read"):
        laptop.accounts.all()


async def test_a_locked_keyring_is_an_error_with_what_to_do(laptop: Laptop, keyring_file: Path) -> None:
    keyring_file.write_text("locked")
    with pytest.raises(ConfigError, match="cannot be used") as caught:
        await laptop.ccb().get()
    assert "locked" in caught.value.evidence and "Unlock" in caught.value.do


async def test_without_a_keyring_the_message_says_what_else_to_do(tmp_path: Path) -> None:
    from keyring.backends import fail

    accounts = ProviderAccounts(KeyStore(fail.Keyring), "h", tmp_path)
    with pytest.raises(CredentialError, match="No model credential for h") as caught:
        await StoredCredential(accounts, None, {}).get()
    assert "no usable keyring" in caught.value.evidence
    assert "ANTHROPIC_API_KEY" in caught.value.do and "--file" in caught.value.do


async def test_a_token_is_renewed_before_it_ends_and_the_new_one_is_kept(laptop: Laptop, server: TokenServer) -> None:
    laptop.log_in(server)
    source = laptop.ccb()
    headers = (await source.get()).headers({"anthropic-beta": "a, b"})
    assert headers == {"authorization": "Bearer token-0", "anthropic-beta": "a,b,oauth-2025-04-20"}
    laptop.now += 545
    headers = (await source.get()).headers()
    assert headers["authorization"] == "Bearer token-1"
    assert server.asked == [{"grant_type": "refresh_token", "refresh_token": "refresh-0", "client_id": "me"}]
    kept = laptop.accounts.all()["default"]
    assert (kept.secret.reveal(), kept.refresh and kept.refresh.reveal()) == ("token-1", "refresh-1")
    assert kept.expires == laptop.now + 600


async def test_a_refused_token_is_renewed_once_for_many_calls_and_ccb(laptop: Laptop, server: TokenServer) -> None:
    laptop.log_in(server)
    several = [laptop.ccb() for _ in range(3)]
    tokens = [await each.get() for each in several]
    refused = [each.refused(token) for each, token in zip(several, tokens, strict=True) for _ in range(3)]
    assert await asyncio.gather(*refused) == [True] * 9
    assert len(server.asked) == 1
    assert {(await each.get()).headers()["authorization"] for each in several} == {"Bearer token-1"}


async def test_a_new_token_that_is_refused_as_well_is_not_renewed_again(laptop: Laptop, server: TokenServer) -> None:
    laptop.log_in(server)
    source = laptop.ccb()
    assert await source.refused(await source.get())
    assert not await source.refused(await source.get())
    assert len(server.asked) == 1


async def test_a_login_that_is_over_says_so_with_the_next_call(laptop: Laptop, server: TokenServer) -> None:
    laptop.log_in(server)
    server.refresh = "revoked"
    source = laptop.ccb()
    assert await source.refused(await source.get())
    with pytest.raises(CredentialError, match="The login of account default is over") as caught:
        await source.get()
    assert "ccb auth login" in caught.value.do and "refresh-0" not in str(caught.value)
    laptop.add("default", "token-new", "oauth", refresh=Secret("refresh-new"), token_url=server.url, client_id="me")
    assert (await source.get()).headers()["authorization"] == "Bearer token-new", "a new login counts at once"


async def test_while_the_endpoint_is_down_a_token_is_used_while_it_holds(laptop: Laptop, server: TokenServer) -> None:
    laptop.log_in(server)
    server.status = 503
    source = laptop.ccb()
    laptop.now += 560
    assert (await source.get()).headers()["authorization"] == "Bearer token-0"
    assert await source.refused(await source.get()), "the call is worth another try"
    laptop.now += 60
    with pytest.raises(ProviderError, match="HTTP 503"):
        await source.get()
    provider = AnthropicProvider(source, ProviderClient(endpoint_at(server.url, "X", {}), {}))
    with pytest.raises(CredentialError, match="cannot be renewed"):
        await provider.credential_name()
    server.status = 200
    server.asked.clear()
    server.refresh = "refresh-0"
    assert (await source.get()).headers()["authorization"] == "Bearer token-1"


async def test_no_account_is_shown_all_is_one_secret(laptop: Laptop, server: TokenServer, keyring_file: Path) -> None:
    laptop.log_in(server)
    assert "token-0" not in repr(laptop.accounts.all()) and "refresh-0" not in repr(laptop.accounts.all())
    assert list(json.loads(keyring_file.read_text())) == ["ccb/h"]
