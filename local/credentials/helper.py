"""The credential that a command of the person prints."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Mapping
from contextlib import suppress

from ccb.tunnel.errors import CcbError
from ccb.tunnel.proxy.providers.credential import Credential

from .command import TIMEOUT_S, output_of
from .key_text import OAUTH_BETA, checked, is_login_token

HELPER = "apiKeyHelper"
CACHE_S = 300.0


class HelperCredential:
    """The output of the settings' `apiKeyHelper`, run with `sh -c`.

    It is kept for `keep_s` seconds, and the helper runs again if the provider refused it. Concurrent calls share one
    run.
    """

    def __init__(
        self,
        command: str,
        environ: Mapping[str, str] = os.environ,
        *,
        keep_s: float = CACHE_S,
        workspace: str = "",
        timeout: float = TIMEOUT_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._command = command
        self._environ = dict(environ)
        self._keep_s = keep_s
        self._workspace = workspace
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
            if self._known is not None and self._known.bearer == credential.bearer:
                with suppress(CcbError):
                    await self._refresh()
            return self._known is not None and self._known.bearer != credential.bearer

    async def _refresh(self) -> None:
        self._known = None
        secret = checked(await output_of(self._command, HELPER, self._environ, self._timeout), HELPER)
        if is_login_token(secret):
            self._known = Credential(HELPER, bearer=secret, workspace=self._workspace, betas=(OAUTH_BETA,))
        else:
            self._known = Credential(HELPER, api_key=secret, bearer=secret, workspace=self._workspace)
        self._until = self._clock() + self._keep_s
