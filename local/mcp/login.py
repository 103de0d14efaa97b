"""`ccb mcp login` and `logout`: the person logs in at an MCP server, in the browser of this machine."""

from __future__ import annotations

import asyncio
import sys
import webbrowser

import httpx2

from ccb.tunnel.errors import CredentialError

from ..credentials.keyring_store import NoKeyring
from ..credentials.store import SecretStore
from ..terminal.guarded_streams import say
from ..terminal.stdio import in_thread
from .config import HttpServer
from .connection import ClientSide, Refusals, connected
from .oauth import Callback, LoginStore, interactive_login
from .server import reason_of


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
            return interactive_login(server, store, callback, open_page)

        try:
            async with connected(name, server, ClientSide(sys.stderr, auth=auth), Refusals()):
                pass
        except Exception as error:  # noqa: BLE001 - whatever the server says, there is no login
            why = reason_of(error)
            if no_place is not None:
                do = 'Set "credentials": {"store": "file"} in the settings: a file under a passphrase keeps it then.'
                raise CredentialError(f"a login at {name} cannot be kept", evidence=no_place.what, do=do) from None
            raise CredentialError(f"the login at {name} has failed", evidence=why, do="Try again.") from None
    return f"You are logged in at {name}." if asked else f"{name} wants no login."


async def log_out(server: HttpServer, secrets: SecretStore) -> bool:
    """Forget the login. Return whether there was one. Raise ConfigError, CredentialError."""
    return await LoginStore(server, secrets).forget()
