"""Amazon Bedrock: requests signed with SigV4 by botocore, answers in AWS event streams.

The client of the `anthropic` SDK says what a request is, and signs with botocore, too: the tests compare. Loading
botocore alone takes 0.3 s and 5 MB, the whole client 2 s and 55 MB.
"""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from ..errors import CredentialError
from ..secret import Secret
from .anthropic_events import event
from .cloud_provider import CloudCall, require_extra
from .provider import ProviderError
from .request_content import Untranslatable

if TYPE_CHECKING:
    from botocore.credentials import Credentials


Json = dict[str, Any]

API_VERSION = "bedrock-2023-05-31"
BEARER_VARIABLE = "AWS_BEARER_TOKEN_BEDROCK"

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

    counts = False

    def __init__(self, region: str, profile: str = "", bearer: Secret | None = None) -> None:
        require_extra("botocore", "bedrock")
        self._region = region
        self._profile = profile
        self._bearer = bearer
        self._found: Credentials | None = None

    def call(self, asked: Json, model: str, betas: str) -> CloudCall:
        before_parameters = model.partition(";")[0]
        if before_parameters in ("", ".", ".."):
            raise Untranslatable("model: Field required")
        body = {name: value for name, value in asked.items() if name not in ("model", "stream")}
        body.setdefault("anthropic_version", API_VERSION)
        if betas:
            body.setdefault("anthropic_beta", betas.split(","))
        streams = asked.get("stream") is True
        how = "invoke-with-response-stream" if streams else "invoke"
        return CloudCall(f"/model/{quote(model, safe=':;')}/{how}", body, streams)

    def count_call(self, asked: Json, model: str) -> CloudCall:
        raise Untranslatable("Bedrock does not count tokens")

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

    def _identity(self) -> Credentials:
        """Return the credentials. The first time, botocore looks in its places, which may take seconds."""
        from botocore.exceptions import BotoCoreError
        from botocore.session import Session

        if self._found is None:
            try:
                self._found = Session(profile=self._profile or None).get_credentials()
            except BotoCoreError as error:
                raise _unusable(error) from None
        if self._found is None:
            raise CredentialError("There are no AWS credentials.", do=_LOG_IN)
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


_LOG_IN = "Run `aws sso login` or `aws configure`, set AWS_PROFILE, or export AWS_BEARER_TOKEN_BEDROCK."


def _unusable(error: Exception) -> CredentialError:
    return CredentialError("The AWS credentials cannot be used.", evidence=str(error), do=_LOG_IN)


def _event(headers: Mapping[str, object], payload: bytes) -> bytes:
    """Return what one frame says, b"" for one that says nothing to the worker. Raise ValueError, KeyError,
    TypeError for a frame that Bedrock does not send."""
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
