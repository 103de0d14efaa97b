"""Log in to MCP servers with OAuth."""

from __future__ import annotations

import asyncio
import logging
import sys
import time
import webbrowser
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, NoReturn

import httpx2
from aiohttp import web
from mcp.client.auth import OAuthClientProvider, OAuthFlowError
from mcp.shared import auth as oauth
from pydantic import AnyUrl, BaseModel, ValidationError

from ccb.tunnel.errors import ConfigError, CredentialError
from ccb.tunnel.secret import Secret

from ..credentials.secret_store import NoKeyring, SecretStore
from ..terminal.console import say
from ..terminal.stdio import in_thread
from .laptop_server import ClientSide, ServerConnection, reason_of
from .mcp_config import HttpServer


async def log_in(name: str, server: HttpServer, secrets: SecretStore) -> str:
    """Log in, keep that in `secrets`, and return what to tell the person. Raise ConfigError, CredentialError."""
    await secrets.unlock(create=True)
    store = LoginStore(server, secrets)
    asked = False
    no_place: NoKeyring | None = None

    async def open_page(address: str) -> None:
        nonlocal asked, no_place
        try:
            await in_thread(secrets.described)
        except NoKeyring as error:  # before the person logs in for nothing
            no_place = error
            raise
        asked = True
        say(f"Log in at {name} in your browser. If it does not open, open this address there:")
        say(address)
        await asyncio.to_thread(webbrowser.open, address)

    async with Callback(server.oauth.callbackPort if server.oauth is not None else 0) as callback:

        async def auth(_: str, server: HttpServer) -> httpx2.Auth:
            return _Provider(server, store, callback.uri, open_page, callback.result)

        try:
            async with ServerConnection(name, server, ClientSide(sys.stderr, auth=auth)).opened():
                pass
        except Exception as error:  # noqa: BLE001 - whatever the server says, there is no login
            why = reason_of(error)
            if no_place is not None:
                do = 'Set "credentials": {"store": "file"} in the settings: a file under a passphrase keeps it then.'
                raise CredentialError(f"a login at {name} cannot be kept", evidence=no_place.what, do=do) from None
            raise CredentialError(f"the login at {name} has failed", evidence=why, do="Try again.") from None
    return f"You are logged in at {name}." if asked else f"{name} wants no login."


log = logging.getLogger(__name__)

OpenPage = Callable[[str], Awaitable[None]]
ComeBack = Callable[[], Awaitable[oauth.AuthorizationCodeResult]]

WAIT_S = 300.0  # seconds for the person to log in, in the browser
_PATH = "/callback"
_DONE = "You are logged in. Close this window and go back to the terminal."
_FAILED = "The login has failed. The terminal says more."


class _Login(BaseModel):
    """A login at one server: tokens, when they end, where they are renewed, and the registration of ccb."""

    tokens: oauth.OAuthToken | None = None
    ends_at: float | None = None
    metadata: oauth.OAuthMetadata | None = None
    client: oauth.OAuthClientInformationFull | None = None


class LoginStore:
    """The login at one server, as one secret of the store."""

    def __init__(self, server: HttpServer, secrets: SecretStore) -> None:
        self.login = _Login()
        self._server = server
        self._secrets = secrets
        self._key = f"mcp {server.url}"

    async def load(self) -> bool:
        """Read what is kept. Return whether there is a token. Raise ConfigError, CredentialError."""
        await self._secrets.unlock()
        found = await in_thread(lambda: self._secrets.get(self._key))
        if found is not None:
            with suppress(ValidationError):
                self.login = _Login.model_validate_json(found.reveal())
        return self.login.tokens is not None

    async def forget(self) -> bool:
        """Remove what is kept. Return whether there was something. Raise ConfigError, CredentialError."""
        await self._secrets.unlock()
        return await in_thread(lambda: self._secrets.delete(self._key))

    async def get_tokens(self) -> oauth.OAuthToken | None:
        return self.login.tokens

    async def set_tokens(self, tokens: oauth.OAuthToken) -> None:
        self.login.tokens = tokens
        self.login.ends_at = time.time() + tokens.expires_in if tokens.expires_in is not None else None
        kept = Secret(self.login.model_dump_json(exclude_none=True))
        await in_thread(lambda: self._secrets.put(self._key, kept))

    async def get_client_info(self) -> oauth.OAuthClientInformationFull | None:
        given = self._server.oauth
        if given is not None and given.clientId:
            return oauth.OAuthClientInformationFull(client_id=given.clientId)
        return self.login.client

    async def set_client_info(self, client_info: oauth.OAuthClientInformationFull) -> None:
        self.login.client = client_info


class _Provider(OAuthClientProvider):
    """Also remembers when a stored token ends and where to renew it, so that a new process can renew it."""

    def __init__(self, server: HttpServer, store: LoginStore, uri: str, open_page: OpenPage, back: ComeBack) -> None:
        metadata = oauth.OAuthClientMetadata(
            client_name="ccb",
            redirect_uris=[AnyUrl(uri)],
            token_endpoint_auth_method="none",  # noqa: S106
        )
        super().__init__(server.url, metadata, store, open_page, back)
        self._store = store

    async def _initialize(self) -> None:
        await super()._initialize()
        self.context.token_expiry_time = self._store.login.ends_at
        self.context.oauth_metadata = self._store.login.metadata

    async def _handle_token_response(self, response: Any) -> None:
        self._store.login.metadata = self.context.oauth_metadata
        await super()._handle_token_response(response)


async def stored_login(secrets: SecretStore, name: str, server: HttpServer) -> OAuthClientProvider | None:
    """Return the person's login at a server, None without one. It renews the token, and never opens a page."""

    async def nobody(*_: str) -> NoReturn:
        raise OAuthFlowError(f"the login has ended: ccb mcp login {name}")

    store = LoginStore(server, secrets)
    try:
        if not await store.load():
            return None
    except (ConfigError, CredentialError) as error:  # without a store there cannot be a login
        log.info("no login for the MCP server %s: %s", name, error)
        return None
    return _Provider(server, store, f"http://127.0.0.1:1{_PATH}", nobody, nobody)


class Callback:
    """Waits on the loopback interface for the browser to come back from a login. Use as a context manager."""

    def __init__(self, port: int = 0) -> None:
        self._port = port
        self._taken = False
        self._result: asyncio.Future[oauth.AuthorizationCodeResult] = asyncio.get_running_loop().create_future()
        app = web.Application()
        app.router.add_get(_PATH, self._serve)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=1)

    async def __aenter__(self) -> Callback:
        await self._runner.setup()
        try:
            await web.TCPSite(self._runner, "127.0.0.1", self._port).start()
        except OSError as error:
            await self._runner.cleanup()
            taken = f"port {self._port} of this machine is taken"
            raise CredentialError(taken, evidence=str(error.strerror), do="End what uses it, then log in.") from None
        self._port = self._runner.addresses[0][1]
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()

    @property
    def uri(self) -> str:
        return f"http://127.0.0.1:{self._port}{_PATH}"

    async def result(self) -> oauth.AuthorizationCodeResult:
        """Return what the browser brings, once. Raise OAuthFlowError if the server has refused."""
        if self._taken:
            raise OAuthFlowError("the server refuses the login that it has just given")
        self._taken = True
        try:
            async with asyncio.timeout(WAIT_S):
                return await self._result
        except TimeoutError:
            raise OAuthFlowError(f"nobody has logged in within {WAIT_S:.0f} s") from None

    async def _serve(self, request: web.Request) -> web.Response:
        query = request.query
        code, refused = query.get("code"), query.get("error_description") or query.get("error")
        if code is None and refused is None:
            raise web.HTTPNotFound
        if code is not None and not self._result.done():
            result = oauth.AuthorizationCodeResult(code=code, state=query.get("state"), iss=query.get("iss"))
            self._result.set_result(result)
        elif not self._result.done():
            self._result.set_exception(OAuthFlowError(f"the login was refused: {refused}"))
        page = f"<!doctype html><title>ccb</title><p>{_DONE if code is not None else _FAILED}</p>"
        return web.Response(text=page, content_type="text/html")
