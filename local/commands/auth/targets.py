"""The providers that a person can have credentials for: where they are, and how a credential is checked there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ccb.tunnel.errors import ConfigError, UsageError
from ccb.tunnel.proxy.providers.anthropic import anthropic_endpoint, list_models
from ccb.tunnel.proxy.providers.credential import Credential, in_one_header, key_headers
from ccb.tunnel.proxy.providers.kinds import KINDS
from ccb.tunnel.proxy.providers.network.endpoint import Endpoint
from ccb.tunnel.proxy.providers.network.http_client import ProviderClient
from ccb.tunnel.proxy.providers.provider import ProviderRequest
from ccb.tunnel.proxy.providers.request_body import WholeBody
from ccb.tunnel.wire.dataclass import dataclass

from ...config.settings import Settings
from ...credentials.helper import HELPER
from ...credentials.sources import ANTHROPIC, API_KEY_VARIABLE, TOKEN_VARIABLE
from ...providers.named_provider import named_provider, refuse_provider

_CHECKED_AT = {"openrouter": "/key"}
"""Where a kind of provider refuses a wrong key; `/models` elsewhere. OpenRouter's list of models is for everybody."""


@dataclass(frozen=True)
class AuthTarget:
    """A provider. `variables` may hold its key, and the command `helper` may print it; `helper_name` is the setting.
    `key_header` carries the key, "" for the headers of the Messages API. A key is checked at the path `checked_at`, ""
    for where the Messages API lists its models. `needs_key` is False for a server that often runs without one."""

    name: str
    endpoint: Endpoint
    checked_at: str
    key_header: str
    variables: tuple[str, ...]
    helper: str
    helper_name: str
    needs_key: bool = True

    @property
    def host(self) -> str:
        return self.endpoint.host

    async def ask(self, credential: Credential, environ: Mapping[str, str]) -> int:
        """Return the status of a request that costs nothing and shows whether the credential is good. Raise
        ProviderError."""
        client = ProviderClient(self.endpoint, environ)
        if not self.checked_at:
            sent = in_one_header(credential, self.key_header) if self.key_header else credential
            return (await list_models(client, sent))[0]
        headers = {**key_headers(credential, self.key_header), "accept": "application/json", "user-agent": "ccb"}
        request = ProviderRequest("GET", self.checked_at, headers, WholeBody([]), 0)
        async with client, client.request(request) as response:
            return response.status


def target(name: str, environ: Mapping[str, str], settings: Settings) -> AuthTarget:
    """Return the provider with a name. Raise UsageError, ConfigError."""
    if name == ANTHROPIC:
        endpoint = anthropic_endpoint(environ, allow_plain=True)
        variables = (API_KEY_VARIABLE, TOKEN_VARIABLE)
        return AuthTarget(name, endpoint, "", "", variables, settings.apiKeyHelper or "", HELPER)
    named = named_provider(name, environ, settings)
    if named is None:
        refuse_provider(name, settings)
    own, kind = named.own, named.kind
    if named.dialect in ("bedrock", "vertex"):
        raise UsageError(f"{name} is signed with the credentials of the cloud's own tools", do="Log in with those.")
    anthropic = named.dialect == "anthropic"
    return AuthTarget(
        name,
        named.endpoint(environ),
        "" if anthropic else _CHECKED_AT.get(kind.name, "/models"),
        own.keyHeader or "" if anthropic else named.key_header,
        (own.keyVariable,) if own.keyVariable else kind.key_variables,
        own.keyHelper or "",
        f"providers.{name}.keyHelper",
        kind.needs_key,
    )


def targets(environ: Mapping[str, str], settings: Settings) -> Iterator[AuthTarget]:
    """Yield Anthropic, the providers of the settings, and those that ccb knows; not those without an address."""
    for name in dict.fromkeys((ANTHROPIC, *settings.providers, *KINDS)):
        try:
            yield target(name, environ, settings)
        except (ConfigError, UsageError):  # it is not set up
            continue
