"""Claude models in the envelope of a cloud: Amazon Bedrock and Google Vertex AI.

botocore and google-auth sign, and are loaded with the first call. The clients of the `anthropic` SDK say what a request
is: the tests compare. Loading those takes 2 s and 55 MB."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Protocol
from urllib.parse import quote

from ..errors import ConfigError, CredentialError
from ..secret import Secret
from .anthropic_events import event
from .api_errors import read_error
from .http_client import Provider, ProviderClient
from .json_fields import Json, dump
from .provider import ProviderError, ProviderRequest, ProviderResponse, WholeBody
from .request_content import Untranslatable, estimated_count
from .thinking import without_ours
from .translating_provider import COUNT_PATH, error_answer, json_answer

if TYPE_CHECKING:
    from botocore.credentials import Credentials as AwsCredentials
    from google.auth.credentials import Credentials as GoogleCredentials


Envelope = tuple[str, Json]  # of a request in a cloud: a path that is appended to the base URL, and the body


class Cloud(Protocol):
    """One cloud, at one place and with one identity."""

    async def call(self, asked: Json, model: str, betas: str) -> Envelope:
        """Return a call of `model`, without its provider. `betas` is the header of that name. Raise Untranslatable, and
        what `credential_name` raises."""

    async def count_call(self, asked: Json, model: str) -> Envelope | None:
        """Return a request for the number of tokens, None for a cloud that does not count them. See `call`."""

    async def signed(self, url: str, headers: Mapping[str, str], body: bytes, method: str = "POST") -> dict[str, str]:
        """Return all headers of a request, with those that authenticate it. Raise CredentialError."""

    def events(self, chunks: AsyncIterator[bytes]) -> AsyncGenerator[bytes]:
        """Yield the events of a stream as the Messages API has them. Raise ProviderError if it breaks off."""

    async def credential_name(self) -> str:
        """Return the public name of where the credential comes from. Raise CredentialError, ConfigError."""


def require_extra(module: str, extra: str) -> None:
    """Raise ConfigError if a module is missing. `extra` is the provider, and the extra of ccb that has the module."""
    try:
        missing = find_spec(module) is None
    except ModuleNotFoundError:  # of the package around it
        missing = True
    if missing:
        raise ConfigError(
            f"the provider {extra} needs {module}, which is not installed",
            do=f"Install ccb with it: `pip install 'ccb[{extra}]'`.",
        )


_STREAM = ("content-type", "text/event-stream; charset=utf-8")


class CloudProvider(Provider):
    """See `Provider`. The worker asks for its models as `given_name/model`."""

    def __init__(self, cloud: Cloud, client: ProviderClient, given_name: str) -> None:
        super().__init__(None, client, given_name)
        self._cloud = cloud

    async def credential_name(self) -> str:
        return await self._cloud.credential_name()

    @asynccontextmanager
    async def exchange(self, request: ProviderRequest) -> AsyncIterator[ProviderResponse]:
        asked = await self._asked(request)
        if isinstance(asked, ProviderResponse):
            yield asked
            return
        sent, streams = asked
        async with self.client.request(sent) as got:
            if got.status != 200:
                body = await got.start()
                own = body.lstrip().startswith(b'{"type":"error"')  # of the model's API, inside the cloud's
                error = read_error(got.status, got.headers, body, self.given_name)
                yield ProviderResponse(got.status, got.headers, WholeBody(body)) if own else error_answer(error)
            elif not streams:
                yield got
            else:
                stream = self._cloud.events(got.chunks)
                async with aclosing(stream):
                    kept = [(name, value) for name, value in got.headers if name.lower() != "content-type"]
                    yield ProviderResponse(200, [*kept, _STREAM], stream)

    async def _asked(self, request: ProviderRequest) -> tuple[ProviderRequest, bool] | ProviderResponse:
        """Return what the cloud is sent and whether it streams the answer, or the answer to a question that it is not
        asked. Nothing of the request is held beside it. Raise Untranslatable."""
        asked, model = await self._read(request)
        asked = without_ours(asked)
        if request.path.partition("?")[0] == COUNT_PATH:
            found, streams = await self._cloud.count_call(asked, model), False
        else:
            found = await self._cloud.call(asked, model, request.headers.get("anthropic-beta", ""))
            streams = asked.get("stream") is True
        if found is None:
            return json_answer(estimated_count(asked))
        path, body = found
        data = dump(body).encode("utf-8", "replace")
        plain = {"content-type": "application/json", "accept": "application/json", "accept-encoding": "identity"}
        url = str(self.client.endpoint.url(path))
        headers = {**await self._cloud.signed(url, plain, data), "user-agent": "ccb"}
        return ProviderRequest("POST", path, headers, WholeBody(data)), streams


def _body(asked: Json, model: str, version: str, betas: str, without: tuple[str, ...]) -> Json:
    if model.partition(";")[0] in ("", ".", ".."):
        raise Untranslatable("model: Field required")
    body = {name: value for name, value in asked.items() if name not in without}
    body.setdefault("anthropic_version", version)
    if betas:
        body.setdefault("anthropic_beta", betas.split(","))
    return body


BEDROCK_VERSION = "bedrock-2023-05-31"
BEARER_VARIABLE = "AWS_BEARER_TOKEN_BEDROCK"

_AWS_LOGIN = "Run `aws sso login` or `aws configure`, set AWS_PROFILE, or export AWS_BEARER_TOKEN_BEDROCK."
_ERRORS = {
    "throttlingException": "rate_limit_error",
    "validationException": "invalid_request_error",
    "serviceUnavailableException": "overloaded_error",
    "modelTimeoutException": "timeout_error",
    "accessDeniedException": "permission_error",
}


class Bedrock:
    """See `Cloud`. `bearer` is an API key of Bedrock; without one, botocore finds the credentials as the AWS tools do:
    variables, profile, SSO, the role of the machine."""

    def __init__(self, region: str, profile: str = "", bearer: Secret | None = None) -> None:
        require_extra("botocore", "bedrock")
        self._region = region
        self._profile = profile
        self._bearer = bearer
        self._found: AwsCredentials | None = None

    async def call(self, asked: Json, model: str, betas: str) -> Envelope:
        body = _body(asked, model, BEDROCK_VERSION, betas, ("model", "stream"))
        how = "invoke-with-response-stream" if asked.get("stream") is True else "invoke"
        return f"/model/{quote(model, safe=':;')}/{how}", body

    async def count_call(self, asked: Json, model: str) -> None:
        return None

    async def signed(self, url: str, headers: Mapping[str, str], body: bytes, method: str = "POST") -> dict[str, str]:
        if self._bearer is not None:
            return {**headers, "authorization": f"Bearer {self._bearer.reveal()}"}
        return await asyncio.to_thread(self._sign, url, dict(headers), body, method)

    def _sign(self, url: str, headers: dict[str, str], body: bytes, method: str) -> dict[str, str]:
        from botocore.auth import SigV4Auth
        from botocore.awsrequest import AWSRequest
        from botocore.exceptions import BotoCoreError

        identity = self._identity()
        request = AWSRequest(method=method, url=url, headers=headers, data=body)
        try:
            SigV4Auth(identity, "bedrock", self._region).add_auth(request)  # it refreshes what has expired
        except BotoCoreError as error:
            raise _unusable(error) from None
        return {str(name).lower(): str(value) for name, value in request.headers.items()}

    def _identity(self) -> AwsCredentials:
        from botocore.exceptions import BotoCoreError
        from botocore.session import Session

        if self._found is None:
            try:
                self._found = Session(profile=self._profile or None).get_credentials()
            except BotoCoreError as error:
                raise _unusable(error) from None
        if self._found is None:
            raise CredentialError("There are no AWS credentials.", do=_AWS_LOGIN)
        return self._found

    async def credential_name(self) -> str:
        if self._bearer is not None:
            return BEARER_VARIABLE
        if self._found is None:
            await asyncio.to_thread(self._identity)
        return "AWS credentials"

    async def events(self, chunks: AsyncIterator[bytes]) -> AsyncGenerator[bytes]:
        from botocore.eventstream import EventStreamBuffer, ParserError

        frames, over = EventStreamBuffer(), False
        async for chunk in chunks:
            frames.add_data(chunk)
            made = b""
            try:
                for frame in frames:
                    told = _event(frame.headers, frame.payload)
                    over = over or told.startswith((b"event: message_stop", b"event: error"))
                    made += told
            except (ParserError, ValueError, RecursionError, KeyError, TypeError) as error:
                raise ProviderError(f"its event stream is not understood ({type(error).__name__})") from None
            if made:
                yield made
        if not over:
            raise ProviderError("the stream of Bedrock broke off")


def _unusable(error: Exception) -> CredentialError:
    return CredentialError("The AWS credentials cannot be used.", evidence=str(error), do=_AWS_LOGIN)


def _event(headers: Mapping[str, object], payload: bytes) -> bytes:
    """Return what one frame says to the worker. Raise ValueError, KeyError, TypeError for another frame."""
    data = json.loads(payload) if payload else {}
    if not isinstance(data, dict):
        raise ValueError("a frame holds an object")
    if headers.get(":message-type") != "event":
        code = str(headers.get(":exception-type") or headers.get(":error-code") or "")
        message = str(headers.get(":error-message") or data.get("message") or code)
        told = {"error": {"type": _ERRORS.get(code[:1].lower() + code[1:], "api_error"), "message": message[:1_000]}}
        return event("error", told).encode("utf-8", "replace")
    if headers.get(":event-type") != "chunk":
        return b""
    text = base64.b64decode(data["bytes"], validate=True)
    kind = json.loads(text)["type"]
    return b"event: %s\ndata: %s\n\n" % (str(kind).encode(), text) if str(kind).isidentifier() else b""


VERTEX_VERSION = "vertex-2023-10-16"
_SCOPE = "https://www.googleapis.com/auth/cloud-platform"
_GCLOUD = "Run `gcloud auth application-default login`, or set GOOGLE_APPLICATION_CREDENTIALS."
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

    def __init__(self, region: str, project: str) -> None:
        require_extra("google.auth", "vertex")
        self._region = region
        self._project = project
        self._credentials: GoogleCredentials | None = None
        self._loading = asyncio.Lock()

    async def call(self, asked: Json, model: str, betas: str) -> Envelope:
        body = _body(asked, model, VERTEX_VERSION, betas, ("model",))
        how = "streamRawPredict" if asked.get("stream") is True else "rawPredict"
        return f"{await self._models()}/{quote(model, safe=_SAFE).replace(';', '%3B')}:{how}", body

    async def count_call(self, asked: Json, model: str) -> Envelope:
        body = {**asked, "model": model, "anthropic_version": VERTEX_VERSION}
        return f"{await self._models()}/count-tokens:rawPredict", body

    async def _models(self) -> str:
        await self.credential_name()  # the project may come with it
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

    def _opened(self) -> GoogleCredentials:
        import google.auth
        from google.auth.exceptions import GoogleAuthError

        if self._credentials is None:
            try:
                self._credentials, project = google.auth.default(scopes=[_SCOPE])
            except GoogleAuthError as error:
                raise CredentialError("There are no Google credentials.", evidence=str(error), do=_GCLOUD) from None
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
            raise CredentialError("The Google credentials cannot be used.", evidence=str(error), do=_GCLOUD) from None
        return str(credentials.token)

    async def events(self, chunks: AsyncIterator[bytes]) -> AsyncGenerator[bytes]:
        async for chunk in chunks:
            yield chunk
