"""Find the model credential: in the environment, from a helper command, or in the keyring, in this order.

If ANTHROPIC_API_KEY and ANTHROPIC_AUTH_TOKEN are both set, both headers are sent, as the official clients do. A
helper's output goes into both headers as well. A key in the keyring belongs to one provider host and is sent to no
other.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import time
from collections.abc import Callable, Mapping
from contextlib import suppress

from ccb.tunnel.errors import CcbError, CredentialError
from ccb.tunnel.proxy.providers.credential import Credential, CredentialSource, FixedCredential
from ccb.tunnel.secret import Secret

from ..terminal.stdio import in_thread
from .keyring_store import KeyStore, NoKeyring
from .settings import Settings

API_KEY_VARIABLE = "ANTHROPIC_API_KEY"
TOKEN_VARIABLE = "ANTHROPIC_AUTH_TOKEN"  # noqa: S105  # the name of a variable
HELPER = "apiKeyHelper"
KEYRING = "keyring"

HELPER_TIMEOUT_S = 10.0
HELPER_CACHE_S = 300.0
_MAX_SECRET = 16 * 1024
_LOGIN = "Run `ccb auth login`, or export ANTHROPIC_API_KEY."


def credential_source(environ: Mapping[str, str], settings: Settings, host: str) -> CredentialSource:
    """Return the first configured source of a credential for the provider at `host`. Nothing is run or unlocked before
    `get`.

    Raises CredentialError if a variable holds something that cannot be a credential.
    """
    from_environ = environ_credential(environ)
    if from_environ is not None:
        return FixedCredential(from_environ)
    if settings.apiKeyHelper:
        return HelperCredential(settings.apiKeyHelper, environ)
    return KeyringCredential(KeyStore(), host)


def environ_credential(environ: Mapping[str, str]) -> Credential | None:
    """Return the credential in the environment variables, or None. Raises CredentialError if a value cannot be a
    credential."""
    key, token = environ.get(API_KEY_VARIABLE, "").strip(), environ.get(TOKEN_VARIABLE, "").strip()
    if not key and not token:
        return None
    return Credential(
        API_KEY_VARIABLE if key else TOKEN_VARIABLE,
        api_key=checked(key, API_KEY_VARIABLE) if key else None,
        bearer=checked(token, TOKEN_VARIABLE) if token else None,
    )


def api_key_source(source: str) -> str:
    """Return the `apiKeySource` of system/init. The public protocol has names for two sources and calls all others
    `none`."""
    return source if source in (API_KEY_VARIABLE, HELPER) else "none"


def checked(text: str, origin: str) -> Secret:
    """Return `text` as a credential. Raises CredentialError, without showing the text, if it cannot be sent in a
    header."""
    text = text.strip()
    if not text:
        raise CredentialError(f"{origin} gave no credential: it is empty.", do=_LOGIN)
    if len(text) > _MAX_SECRET or not re.fullmatch(r"[\x21-\x7e]+", text):
        raise CredentialError(
            f"What {origin} gave cannot be a credential: "
            "it has spaces, line breaks or special characters, or is too long.",
            do=f"Check {origin}: it must be the key alone.",
        )
    return Secret(text)


class KeyringCredential:
    """The key that `ccb auth login` stored for `host`. It is read once, and again after the provider refused it."""

    def __init__(self, store: KeyStore, host: str) -> None:
        self._store = store
        self._host = host
        self._lock = asyncio.Lock()
        self._known: Credential | None = None

    async def get(self) -> Credential:
        async with self._lock:
            if self._known is None:
                self._known = await self._read()
            return self._known

    async def refused(self, credential: Credential) -> bool:
        async with self._lock:
            if self._known is not None and self._known.api_key == credential.api_key:
                self._known = None
                with suppress(CcbError):
                    self._known = await self._read()
            return self._known is not None and self._known.api_key != credential.api_key

    async def _read(self) -> Credential:
        try:
            # A thread of its own: a keyring may wait for its password for ever, and the loop waits for its own threads.
            key = await in_thread(lambda: self._store.get(self._host))
        except NoKeyring as error:
            raise CredentialError(f"No model credential for {self._host}.", evidence=error.what, do=error.do) from None
        if key is None:
            raise CredentialError(f"No model credential for {self._host}.", do=_LOGIN)
        return Credential(KEYRING, api_key=key)


class HelperCredential:
    """The output of the settings' `apiKeyHelper`, run with `sh -c`.

    It is kept for HELPER_CACHE_S seconds, and the helper runs again if the provider refused it. Concurrent calls share
    one run.
    """

    def __init__(
        self,
        command: str,
        environ: Mapping[str, str] = os.environ,
        *,
        timeout: float = HELPER_TIMEOUT_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._command = command
        self._environ = dict(environ)
        self._timeout = timeout
        self._clock = clock
        self._lock = asyncio.Lock()
        self._known: Credential | None = None
        self._until = 0.0

    async def get(self) -> Credential:
        async with self._lock:
            if self._known is None or self._clock() >= self._until:
                await self._refresh()
            assert self._known is not None
            return self._known

    async def refused(self, credential: Credential) -> bool:
        async with self._lock:
            if self._known is not None and self._known.api_key == credential.api_key:
                with suppress(CcbError):
                    await self._refresh()
            return self._known is not None and self._known.api_key != credential.api_key

    async def _refresh(self) -> None:
        self._known = None
        secret = checked(await self._run(), HELPER)
        self._known = Credential(HELPER, api_key=secret, bearer=secret)
        self._until = self._clock() + HELPER_CACHE_S

    async def _run(self) -> str:
        process = await asyncio.create_subprocess_exec(
            "/bin/sh",
            "-c",
            self._command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=self._environ,
            start_new_session=True,
        )
        assert process.stdout is not None and process.stderr is not None
        try:
            async with asyncio.timeout(self._timeout):
                out, err = await asyncio.gather(_limited(process.stdout), _limited(process.stderr))
                status = await process.wait()
        except TimeoutError:
            raise CredentialError(
                f"{HELPER} of the settings did not end within {self._timeout:g} s.",
                do="Run that command by hand to see what is wrong.",
            ) from None
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
        if status != 0:
            raise CredentialError(
                f"{HELPER} of the settings failed with exit code {status}.",
                evidence=_printable(err[-2000:]),
                do="Run that command by hand to see what is wrong.",
            )
        return out.decode("utf-8", "replace")


async def _limited(stream: asyncio.StreamReader) -> bytes:
    """Return the beginning of a stream, longer than any credential. Read and discard the rest."""
    kept = bytearray()
    while chunk := await stream.read(65536):
        kept += chunk[: 2 * _MAX_SECRET - len(kept)]
    return bytes(kept)


def _printable(raw: bytes) -> str:
    text = raw.decode("utf-8", "replace").strip()
    return "".join(c if c.isprintable() or c == "\n" else "\N{REPLACEMENT CHARACTER}" for c in text)
