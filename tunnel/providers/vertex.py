"""Google Vertex AI: requests with an access token of google-auth, answers as Anthropic streams them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from ..errors import ConfigError, CredentialError
from .cloud_provider import CloudCall, require_extra
from .request_content import Untranslatable

if TYPE_CHECKING:
    from google.auth.credentials import Credentials


Json = dict[str, Any]

API_VERSION = "vertex-2023-10-16"
_SCOPE = "https://www.googleapis.com/auth/cloud-platform"
_LOG_IN = "Run `gcloud auth application-default login`, or set GOOGLE_APPLICATION_CREDENTIALS."
_SAFE = "-._~!$&'()*+,;=:@"  # what may stand in a segment of a path


def vertex_base(region: str) -> str:
    """Return the base URL of a region; `global`, `us` and `eu` are regions, too."""
    if region == "global":
        return "https://aiplatform.googleapis.com/v1"
    if region in ("us", "eu"):
        return f"https://aiplatform.{region}.rep.googleapis.com/v1"
    return f"https://{region}-aiplatform.googleapis.com/v1"


class Vertex:
    """See `Cloud`. `project` is "" for the one of the credentials."""

    counts = True

    def __init__(self, region: str, project: str) -> None:
        require_extra("google.auth", "vertex")
        self._region = region
        self._project = project
        self._credentials: Credentials | None = None
        self._loading = asyncio.Lock()

    def call(self, asked: Json, model: str, betas: str) -> CloudCall:
        if not model:
            raise Untranslatable("model: Field required")
        body = {name: value for name, value in asked.items() if name != "model"}
        body.setdefault("anthropic_version", API_VERSION)
        if betas:
            body.setdefault("anthropic_beta", betas.split(","))
        streams = asked.get("stream") is True
        segment = f"{quote(model, safe=_SAFE).replace(';', '%3B')}:{'streamRawPredict' if streams else 'rawPredict'}"
        return CloudCall(f"{self._models()}/{segment}", body, streams)

    def count_call(self, asked: Json, model: str) -> CloudCall:
        body = {**asked, "model": model, "anthropic_version": API_VERSION}
        return CloudCall(f"{self._models()}/count-tokens:rawPredict", body, False)

    def _models(self) -> str:
        if not self._project:
            raise Untranslatable("the project of Vertex is not known")
        place = f"/projects/{quote(self._project, safe=_SAFE)}/locations/{quote(self._region, safe=_SAFE)}"
        return f"{place}/publishers/anthropic/models"

    async def signed(self, url: str, headers: Mapping[str, str], body: bytes, method: str = "POST") -> dict[str, str]:
        """See Cloud. A list of models belongs to no project, so it names the one that asks."""
        async with self._loading:
            token = await asyncio.to_thread(self._token)
        asks = {"x-goog-user-project": self._project} if method == "GET" and self._project else {}
        return {**headers, **asks, "authorization": f"Bearer {token}"}

    async def credential_name(self) -> str:
        """See Cloud. The project comes with the credentials, so they are looked up now."""
        async with self._loading:
            await asyncio.to_thread(self._opened)
        if not self._project:
            raise ConfigError(
                "the project of Vertex is not known",
                do="Set ANTHROPIC_VERTEX_PROJECT_ID, or providers.vertex.project in settings.json.",
            )
        return "Google credentials"

    def _opened(self) -> Credentials:
        import google.auth
        from google.auth.exceptions import GoogleAuthError

        if self._credentials is None:
            try:
                self._credentials, project = google.auth.default(scopes=[_SCOPE])
            except GoogleAuthError as error:
                raise CredentialError("There are no Google credentials.", evidence=str(error), do=_LOG_IN) from None
            self._project = self._project or str(project or "")
        return self._credentials

    def _token(self) -> str:
        from google.auth.exceptions import GoogleAuthError
        from google.auth.transport.requests import Request

        credentials = self._opened()
        try:
            if not credentials.valid:
                credentials.refresh(Request())
        except GoogleAuthError as error:
            raise CredentialError("The Google credentials cannot be used.", evidence=str(error), do=_LOG_IN) from None
        return str(credentials.token)

    async def events(self, chunks: AsyncIterator[bytes]) -> AsyncGenerator[bytes]:
        async for chunk in chunks:
            yield chunk
