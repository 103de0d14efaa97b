"""What differs between the clouds that serve Claude models: where a request goes, how it is signed, how it streams."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from importlib.util import find_spec
from typing import Any, Protocol

from ....errors import ConfigError
from ....wire.dataclass import dataclass

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
        """Return all headers of a request to `url`, with those that prove who asks. Raise CredentialError."""

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
