"""A server that wants a login: the person logs in with `ccb mcp login`, and the tokens stay in the secret store."""

from __future__ import annotations

import asyncio
import json
import socket
import sys
import urllib.parse
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest
from keyring.backends import fail
from tests.support.mcp_http import Authority, HttpMcp
from tests.support.person.typist import Typist

from ccb.local.credentials.encrypted_file import EncryptedFile
from ccb.local.credentials.secret_store import KeyStore, SecretStore
from ccb.local.mcp.laptop_server import ClientSide, LaptopServer
from ccb.local.mcp.mcp_config import HttpServer, OAuthClient
from ccb.local.mcp.mcp_login import LoginStore, log_in, stored_login
from ccb.tunnel.errors import CredentialError
from ccb.tunnel.wire.control_protocol import RequestRefused

CALL = {"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {"name": "greet", "arguments": {"name": "you"}}}


@pytest.fixture
def keyring(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    import keyring
    from tests.support.person.file_keyring import FileKeyring

    monkeypatch.setattr(keyring, "get_keyring", lambda: FileKeyring(tmp_path / "keyring"))
    return tmp_path / "keyring"


@asynccontextmanager
async def protected(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[Authority, HttpServer]]:
    """A server that wants a login, and a browser in which the person agrees to everything."""
    monkeypatch.setattr("webbrowser.open", lambda address: urllib.request.urlopen(address).read())
    authority = Authority()
    async with authority.serving(), HttpMcp().serving(wrap=authority.gate) as url:
        yield authority, HttpServer(type="http", url=url)


async def greeted(config: HttpServer, secrets: SecretStore | None = None) -> bool:
    """Whether a new session can call the server. It never opens a browser."""
    server = LaptopServer("far", config, ClientSide(sys.stderr, auth=partial(stored_login, secrets or KeyStore())))
    try:
        return bool((await server.reply(CALL))["result"]["content"][0]["text"] == "hello you")
    finally:
        await server.close()


async def test_the_login_is_kept_renewed_and_forgotten(
    keyring: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    async with protected(monkeypatch) as (authority, config):
        with pytest.raises(RequestRefused, match="wants a login: `ccb mcp login far` on the laptop"):
            await greeted(config)
        assert not authority.grants
        assert await log_in("far", config, KeyStore()) == "You are logged in at far."
        assert f"{authority.issuer}/authorize?" in capfd.readouterr().err
        ((name, kept),) = json.loads(keyring.read_text()).items()
        assert name == f"ccb/mcp {config.url}" and "token-1" in kept
        keyring.write_text(json.dumps({name: json.dumps({**json.loads(kept), "ends_at": 1.0})}))  # it has ended
        authority.tokens.clear()
        assert await greeted(config)
        assert authority.grants == ["authorization_code", "refresh_token"]
        assert await greeted(config) and len(authority.grants) == 2
        authority.tokens.clear()  # somebody has revoked it: no browser opens in a session
        with pytest.raises(RequestRefused, match="ccb mcp login far"):
            await greeted(config)
        assert [await LoginStore(config, KeyStore()).forget() for _ in range(2)] == [True, False]
        assert json.loads(keyring.read_text()) == {}


async def test_without_a_keyring_the_login_is_in_the_encrypted_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def file(*typed: str) -> EncryptedFile:
        return EncryptedFile(tmp_path / "sealed", {}, Typist(*typed), cost=1 << 14)

    async with protected(monkeypatch) as (authority, config):
        await log_in("far", config, file("correct horse", "correct horse"))
        assert b"token-1" not in (tmp_path / "sealed").read_bytes()
        assert await greeted(config, file("correct horse"))
        with pytest.raises(RequestRefused, match="wants a login"):
            await greeted(config, file())
        assert authority.grants == ["authorization_code"]
        assert await LoginStore(config, file("correct horse")).forget()


async def test_where_no_login_can_be_kept_the_person_is_told_before_the_browser_opens(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("keyring.get_keyring", fail.Keyring)
    async with protected(monkeypatch) as (authority, config):
        with pytest.raises(CredentialError, match="a login at far cannot be kept") as refused:
            await log_in("far", config, KeyStore())
        assert "no usable keyring" in refused.value.evidence and '{"store": "file"}' in refused.value.do
        assert "in your browser" not in capfd.readouterr().err and not authority.grants


async def test_a_login_that_is_refused_or_stolen_gives_nothing(keyring: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def attacked(address: str) -> None:
        back = address.split("redirect_uri=")[1].split("&")[0]
        urllib.request.urlopen(f"{urllib.parse.unquote(back)}?code=stolen&state=guessed").read()

    async with protected(monkeypatch) as (authority, config):
        monkeypatch.setattr("webbrowser.open", attacked)
        async with asyncio.timeout(60):
            with pytest.raises(CredentialError, match="has failed"):
                await log_in("far", config, KeyStore())
        assert not authority.grants and not keyring.exists()


async def test_a_login_that_nobody_finishes_ends_and_a_taken_port(
    keyring: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with protected(monkeypatch) as (_, config):
        monkeypatch.setattr("webbrowser.open", lambda _: None)
        monkeypatch.setattr("ccb.local.mcp.mcp_login.WAIT_S", 0.01)
        with pytest.raises(CredentialError) as failed:
            await log_in("far", config, KeyStore())
        assert "nobody has logged in" in failed.value.evidence
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            with pytest.raises(CredentialError, match=f"port {port} of this machine is taken"):
                await log_in("far", config.model_copy(update={"oauth": OAuthClient(callbackPort=port)}), KeyStore())


async def test_a_server_without_a_login_needs_none(keyring: Path) -> None:
    async with HttpMcp().serving() as url:
        assert await log_in("far", HttpServer(type="http", url=url), KeyStore()) == "far wants no login."
    assert not keyring.exists()
