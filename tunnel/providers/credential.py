"""The credential a provider sends, and where it gets it from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from ..secret import Secret
from ..wire.dataclass import dataclass


@dataclass(frozen=True)
class Credential:
    """A model credential. `api_key` goes into x-api-key, `bearer` into Authorization; at least one is set. `source` is
    the public name of where it came from (`apiKeySource` in system/init). `workspace` (which one pays) and `betas`
    (what the API must switch on to take the credential) are Anthropic's."""

    source: str
    api_key: Secret | None = None
    bearer: Secret | None = None
    workspace: str = ""
    betas: tuple[str, ...] = ()

    @property
    def kind(self) -> str:
        """How it is sent, for people."""
        return "+".join(name for name in ("api_key", "bearer") if getattr(self, name))

    def headers(self, beside: Mapping[str, str] | None = None) -> dict[str, str]:
        """Return the headers that carry the credential in the clear: do not keep them. `beside` are the other headers
        of the request, whose betas stay."""
        headers = {}
        if self.workspace:
            headers["anthropic-workspace-id"] = self.workspace
        if self.betas:
            asked = [each.strip() for each in (beside or {}).get("anthropic-beta", "").split(",") if each.strip()]
            headers["anthropic-beta"] = ",".join(dict.fromkeys((*asked, *self.betas)))
        if self.api_key:
            headers["x-api-key"] = self.api_key.reveal()
        if self.bearer:
            headers["authorization"] = f"Bearer {self.bearer.reveal()}"
        return headers


def key_headers(credential: Credential | None, key_header: str, only: str | None = None) -> dict[str, str]:
    """Return the headers of a key. `key_header` is "" for those of the Messages API; `only` may be one of them."""
    if credential is None:
        return {}
    if not key_header:
        return {**in_one_header(credential, only).headers(), "anthropic-version": "2023-06-01"}
    key = credential.bearer or credential.api_key
    if not key:
        return {}
    return {key_header: f"Bearer {key.reveal()}" if key_header == "authorization" else key.reveal()}


def in_one_header(credential: Credential, header: str | None) -> Credential:
    """Return a credential for one `header` of the Messages API. Without one, it has those that it has by itself."""
    key = credential.bearer or credential.api_key
    if not header:
        return credential
    if header == "authorization":
        return Credential(credential.source, bearer=key)
    return Credential(credential.source, api_key=key)


class CredentialSource(Protocol):
    """Returns the credential for each call."""

    async def get(self) -> Credential:
        """Return the current credential. Raise CredentialError or ConfigError if there is none."""

    async def refused(self, credential: Credential) -> bool:
        """The provider answered 401 to `credential`. Return True if the next `get` may give another one."""


@dataclass(frozen=True)
class FixedCredential:
    """A source that always gives the same credential."""

    credential: Credential

    async def get(self) -> Credential:
        return self.credential

    async def refused(self, credential: Credential) -> bool:
        return False
