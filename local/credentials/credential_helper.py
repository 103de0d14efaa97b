"""A command that prints the credential, and checks of what a credential may be."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from ccb.tunnel.errors import CcbError, ConfigError, CredentialError
from ccb.tunnel.providers.credential import Credential
from ccb.tunnel.secret import Secret

TIMEOUT_S = 10.0
MAX_SECRET = 16 * 1024
_BY_HAND = "Run that command by hand to see what is wrong."
HELPER = "apiKeyHelper"
CACHE_S = 300.0
_LOGIN = "Run `ccb auth login`, or export ANTHROPIC_API_KEY."
OAUTH_BETA = "oauth-2025-04-20"  # Anthropic's API takes the tokens of a login only with this beta
_LOGIN_TOKEN = "sk-ant-oat"  # noqa: S105  # how one begins
_WORKSPACE = re.compile(r"[A-Za-z0-9_-]{1,100}")


async def output_of(
    command: str, setting: str, environ: Mapping[str, str], timeout: float = TIMEOUT_S, *, given: bytes = b""
) -> str:
    """Return what `sh -c COMMAND` prints, which reads `given`. `setting` names the command. Raise CredentialError."""
    process = await asyncio.create_subprocess_exec(
        "/bin/sh",
        "-c",
        command,
        stdin=asyncio.subprocess.PIPE if given else asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=dict(environ),
        start_new_session=True,
    )
    assert process.stdout is not None and process.stderr is not None
    if process.stdin is not None:
        process.stdin.write(given)
        process.stdin.close()
    try:
        async with asyncio.timeout(timeout):
            out, err = await asyncio.gather(_limited(process.stdout), _limited(process.stderr))
            status = await process.wait()
    except TimeoutError:
        raise CredentialError(f"{setting} of the settings did not end within {timeout:g} s.", do=_BY_HAND) from None
    finally:
        with suppress(ProcessLookupError, PermissionError):  # of one that has ended, macOS says the latter
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
    if status != 0:
        said = err[-2000:].decode("utf-8", "replace").strip()
        shown = "".join(c if c.isprintable() or c == "\n" else "\N{REPLACEMENT CHARACTER}" for c in said)
        raise CredentialError(f"{setting} of the settings failed with exit code {status}.", evidence=shown, do=_BY_HAND)
    return out.decode("utf-8", "replace")


async def _limited(stream: asyncio.StreamReader) -> bytes:
    """Return the beginning of a stream, longer than any credential. Read and discard the rest."""
    kept = bytearray()
    while chunk := await stream.read(65536):
        kept += chunk[: 2 * MAX_SECRET - len(kept)]
    return bytes(kept)


@dataclass(eq=False, repr=False)  # the command may hold a password
class HelperCredential:
    """The output of `apiKeyHelper`, run with `sh -c`, kept for `keep_s` seconds or until it is refused."""

    command: str
    environ: Mapping[str, str]
    keep_s: float = CACHE_S
    workspace: str = ""
    timeout: float = TIMEOUT_S
    clock: Callable[[], float] = time.monotonic
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    _known: Credential | None = None
    _until: float = 0.0

    async def get(self) -> Credential:
        async with self._lock:
            if self._known is None or self.clock() >= self._until:
                await self._refresh()
            assert self._known is not None
            return self._known

    async def refused(self, credential: Credential) -> bool:
        async with self._lock:
            if self._known is not None and self._known.bearer == credential.bearer:
                with suppress(CcbError):
                    await self._refresh()
            return self._known is not None and self._known.bearer != credential.bearer

    async def _refresh(self) -> None:
        self._known = None
        secret = checked(await output_of(self.command, HELPER, self.environ, self.timeout), HELPER)
        if is_login_token(secret):
            self._known = Credential(HELPER, bearer=secret, workspace=self.workspace, betas=(OAUTH_BETA,))
        else:
            self._known = Credential(HELPER, api_key=secret, bearer=secret, workspace=self.workspace)
        self._until = self.clock() + self.keep_s


def checked(text: str, origin: str) -> Secret:
    """Return `text` as a credential. Raises CredentialError, without showing it, if it cannot be sent in a header."""
    text = text.strip()
    if not text:
        raise CredentialError(f"{origin} gave no credential: it is empty.", do=_LOGIN)
    if len(text) > MAX_SECRET or not re.fullmatch(r"[\x21-\x7e]+", text):
        raise CredentialError(
            f"What {origin} gave cannot be a credential: "
            "it has spaces, line breaks or special characters, or is too long.",
            do=f"Check {origin}: it must be the key alone.",
        )
    return Secret(text)


def is_login_token(secret: Secret | None) -> bool:
    """Return whether this is a token of `claude setup-token`: a bearer token, which wants a beta."""
    return secret is not None and secret.reveal().startswith(_LOGIN_TOKEN)


def checked_workspace(text: str, origin: str) -> str:
    if text and not _WORKSPACE.fullmatch(text):
        raise ConfigError(f"{origin} is no workspace: it must be letters, digits, '-' and '_'", do=f"Correct {origin}.")
    return text
