"""Claude models in a cloud's envelope."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager
from importlib.util import find_spec
from typing import Any, Protocol

from ..errors import ConfigError
from ..wire.dataclass import dataclass
from .api_errors import read_error
from .http_client import HttpProvider, ProviderClient
from .json_fields import dump
from .provider import ProviderRequest, ProviderResponse
from .request_body import as_body, model_of, read_json, whole_body
from .request_content import Untranslatable, estimated_count
from .thinking import without_ours
from .translating_provider import COUNT_PATH, ROUTES, json_answer, refused_answer, start_of

Json = dict[str, Any]


@dataclass(frozen=True)
class CloudCall:
    """A request in the envelope of a cloud. `path` is appended to the base URL. `streams`: the answer is a stream."""

    path: str
    body: Json
    streams: bool


class Cloud(Protocol):
    """One cloud, at one place and with one identity."""

    counts: bool
    """Whether it counts tokens."""

    def call(self, asked: Json, model: str, betas: str) -> CloudCall:
        """Return a call of `model`, a name without a provider. `betas` is the header of that name. `asked` is not
        changed. Raise Untranslatable for what cannot be asked for."""

    def count_call(self, asked: Json, model: str) -> CloudCall:
        """Return a request for the number of tokens. Only where it `counts`."""

    async def signed(self, url: str, headers: Mapping[str, str], body: bytes, method: str = "POST") -> dict[str, str]:
        """Return all headers of a request to `url`, with those that authenticate it. Raise CredentialError."""

    def events(self, chunks: AsyncIterator[bytes]) -> AsyncGenerator[bytes]:
        """Yield the events of a stream as the Messages API has them. Raise ProviderError if it breaks off."""

    async def credential_name(self) -> str:
        """Return the public name of where the credential comes from. Raise CredentialError, ConfigError."""


def require_extra(module: str, extra: str) -> None:
    """Raise ConfigError if the module is not installed that a provider needs. `extra` is the provider, and the extra of
    ccb that has the module."""
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


class CloudProvider(HttpProvider):
    """See `Provider`. The worker asks for its models as `given_name/model`."""

    def __init__(self, cloud: Cloud, client: ProviderClient, given_name: str) -> None:
        super().__init__(None, client, given_name)
        self._cloud = cloud

    @property
    def routes(self) -> frozenset[tuple[str, str]]:
        return ROUTES

    async def credential_name(self) -> str:
        return await self._cloud.credential_name()

    @asynccontextmanager
    async def exchange(self, request: ProviderRequest) -> AsyncIterator[ProviderResponse]:
        try:
            asked = await self._asked(request)
        except Untranslatable as refused:
            yield refused_answer(400, "invalid_request_error", str(refused))
            return
        if isinstance(asked, ProviderResponse):
            yield asked
            return
        sent, streams = asked
        async with self._client.request(sent) as got:
            if got.status != 200:
                yield await self._refusal(got)
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
        asked = await read_json(await whole_body(request.body))
        model = model_of(asked).removeprefix(f"{self._given_name}/")
        if isinstance(asked.get("messages"), list):
            asked["messages"] = without_ours(asked["messages"])
        counting = request.path.partition("?")[0] == COUNT_PATH
        if counting and not self._cloud.counts:
            return json_answer(200, estimated_count(asked))
        await self._cloud.credential_name()  # the project may come with it
        betas = request.headers.get("anthropic-beta", "")
        call = self._cloud.count_call(asked, model) if counting else self._cloud.call(asked, model, betas)
        data = dump(call.body).encode("utf-8", "replace")
        plain = {"content-type": "application/json", "accept": "application/json", "accept-encoding": "identity"}
        url = str(self._client.endpoint.url(call.path))
        headers = {**await self._cloud.signed(url, plain, data), "user-agent": "ccb"}
        return ProviderRequest("POST", call.path, headers, as_body(data), len(data)), call.streams

    async def _refusal(self, response: ProviderResponse) -> ProviderResponse:
        """Return an error answer. One of the model's own API, inside the cloud's, is passed on as it is."""
        body = await start_of(response)
        if body.lstrip().startswith(b'{"type":"error"'):
            return ProviderResponse(response.status, response.headers, as_body(body))
        error = read_error(response.status, response.headers, body, self._given_name)
        return ProviderResponse(error.status, error.headers(), as_body(error.body()))
