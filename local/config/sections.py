"""The sections of the settings: objects with keys of their own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, fields
from fnmatch import fnmatchcase
from pathlib import Path
from typing import ClassVar, Literal, TypeVar

from ccb.tunnel.wire.dataclass import dataclass

PermissionMode = Literal["default", "acceptEdits", "plan", "dontAsk", "bypassPermissions"]
PYDANTIC = {"strict": True}
"""How pydantic reads these classes."""

Limits = TypeVar("Limits", bound="HostBudget | HostCalls")


def key(description: str, **limits: float) -> dict[str, object]:
    """Return the metadata of a key, in the words of pydantic's `Field`."""
    return {"description": description, **limits}


@dataclass(frozen=True)
class RuleSettings:
    """Permission rules of every session, spelt as for `--allowedTools` and `--disallowedTools`."""

    __pydantic_config__: ClassVar[Mapping[str, object]] = PYDANTIC

    allow: list[str] = field(
        default_factory=list,
        metadata=key("Rules that allow a tool call without asking, as for `--allowedTools`."),
    )
    deny: list[str] = field(
        default_factory=list, metadata=key("Rules that deny a tool call, as for `--disallowedTools`.")
    )
    ask: list[str] = field(
        default_factory=list, metadata=key("Rules that want a question before a tool call, whatever allows it.")
    )
    defaultMode: PermissionMode | None = field(
        default=None, metadata=key("Permission mode of new sessions, if `permissionMode` is not set.")
    )
    additionalDirectories: list[str] = field(
        default_factory=list, metadata=key("Directories of the host that tools may use as well, as for `--add-dir`.")
    )
    disableBypassPermissionsMode: Literal["disable"] | None = field(
        default=None, metadata=key("`disable`: nobody can choose the mode bypassPermissions.")
    )


@dataclass(frozen=True)
class HostBudget:
    """What the sessions of one host may cost."""

    __pydantic_config__: ClassVar[Mapping[str, object]] = PYDANTIC

    dayUsd: float | None = field(default=None, metadata=key("Dollars for the host since midnight.", gt=0))
    dayTokens: int | None = field(default=None, metadata=key("Tokens for the host since midnight.", gt=0))


@dataclass(frozen=True)
class BudgetSettings:
    """What model calls may cost. This machine keeps account of them itself, whatever a host says."""

    __pydantic_config__: ClassVar[Mapping[str, object]] = PYDANTIC

    sessionUsd: float | None = field(default=None, metadata=key("Dollars for one session.", gt=0))
    sessionTokens: int | None = field(default=None, metadata=key("Tokens of all kinds for one session.", gt=0))
    dayUsd: float | None = field(
        default=None, metadata=key("Dollars for all sessions of this machine since midnight.", gt=0)
    )
    dayTokens: int | None = field(
        default=None, metadata=key("Tokens of all kinds for all sessions of this machine since midnight.", gt=0)
    )
    strict: bool = field(
        default=False,
        metadata=key(
            "Refuse each call that might pass a budget, although some of it is left. Else one call may pass it."
        ),
    )
    hosts: dict[str, HostBudget] = field(
        default_factory=dict,
        metadata=key("`dayUsd` and `dayTokens` of single hosts, by patterns of their names such as `gpu-*`."),
    )

    def of_host(self, host: str) -> HostBudget:
        """Return what holds for a host: of several patterns that match, the last one for each key."""
        return _of_host(HostBudget(), self.hosts, host)


@dataclass(frozen=True)
class HostCalls:
    """Which model calls a host may make."""

    __pydantic_config__: ClassVar[Mapping[str, object]] = PYDANTIC

    models: list[str] | None = field(
        default=None, metadata=key("Patterns of the models that may be asked, such as `claude-*`; all without it.")
    )
    maxOutputTokens: int | None = field(
        default=None, metadata=key("Largest length of an answer that a call may ask for, in tokens.", ge=1_000)
    )
    maxRequestBytes: int | None = field(
        default=None, metadata=key("Largest request, in bytes.", ge=100_000, le=32 * 1024 * 1024)
    )
    maxResponseBytes: int | None = field(default=None, metadata=key("Largest answer, in bytes.", ge=100_000))
    maxConcurrent: int | None = field(default=None, metadata=key("Calls at the same time.", ge=1, le=64))
    perMinute: int | None = field(default=None, metadata=key("Calls in a minute.", ge=1, le=300))
    expiresHours: float | None = field(
        default=None, metadata=key("Hours after which a connected ccb lets a session call no models any more.", gt=0)
    )


@dataclass(frozen=True)
class ModelCallSettings(HostCalls):
    """Which model calls every host may make, and what differs for single hosts."""

    hosts: dict[str, HostCalls] = field(
        default_factory=dict,
        metadata=key("The other keys of this section for single hosts, by patterns of their names such as `gpu-*`."),
    )

    def of_host(self, host: str) -> HostCalls:
        """Return what holds for a host: of several patterns that match, the last one for each key."""
        general = HostCalls(**{each.name: getattr(self, each.name) for each in fields(HostCalls)})
        return _of_host(general, self.hosts, host)


@dataclass(frozen=True)
class CredentialSettings:
    """Where stored credentials are, and which account a session takes. No secret is in here."""

    __pydantic_config__: ClassVar[Mapping[str, object]] = PYDANTIC

    store: Literal["auto", "keyring", "file"] = field(
        default="auto",
        metadata=key("`keyring`, `file` (encrypted under a passphrase), or `auto`: the keyring if there is one."),
    )
    passphraseHelper: str | None = field(
        default=None, metadata=key("Shell command that prints the passphrase of the encrypted file.", min_length=1)
    )
    helperSeconds: float = field(
        default=300, metadata=key("Seconds for which the output of `apiKeyHelper` is used again.", ge=0, le=86_400)
    )
    workspace: str | None = field(
        default=None, metadata=key("Anthropic's workspace for keys that are not stored, as `anthropic-workspace-id`.")
    )
    account: dict[str, str] = field(
        default_factory=dict, metadata=key('The account for each provider, such as `{"anthropic": "work"}`.')
    )
    hosts: dict[str, dict[str, str]] = field(
        default_factory=dict,
        metadata=key("`account` for single hosts, by patterns of the names that you use, such as `gpu-*`."),
    )

    def account_for(self, provider: str, host: str) -> str | None:
        """Return the account of a provider for the sessions of a host: of several patterns, the last one counts."""
        own = [
            each[provider] for pattern, each in self.hosts.items() if provider in each and fnmatchcase(host, pattern)
        ]
        return own[-1] if own else self.account.get(provider)


@dataclass(frozen=True)
class NetworkSettings:
    """The way to the providers. A variable of the environment outranks each key."""

    __pydantic_config__: ClassVar[Mapping[str, object]] = PYDANTIC

    caFile: str | None = field(
        default=None, metadata=key("File of the CAs to trust instead of the system's, as SSL_CERT_FILE.", min_length=1)
    )
    clientCertificate: str | None = field(
        default=None, metadata=key("Certificate that this machine shows, as CCB_CLIENT_CERT.", min_length=1)
    )
    clientKey: str | None = field(
        default=None, metadata=key("Key of that certificate, if it is in another file; CCB_CLIENT_KEY.", min_length=1)
    )

    def over(self, environ: Mapping[str, str]) -> dict[str, str]:
        """Return `environ` with these settings as variables, where it does not set them itself."""
        files = (self.caFile, self.clientCertificate, self.clientKey)
        named = zip(("SSL_CERT_FILE", "CCB_CLIENT_CERT", "CCB_CLIENT_KEY"), files, strict=True)
        own = {name: str(Path(file).expanduser()) for name, file in named if file}
        return {**own, **{name: value for name, value in environ.items() if value or name not in own}}


Section = RuleSettings | BudgetSettings | ModelCallSettings | CredentialSettings | NetworkSettings


def _of_host(general: Limits, hosts: Mapping[str, Limits], host: str) -> Limits:
    values = {each.name: getattr(general, each.name) for each in fields(general)}
    for pattern, own in hosts.items():
        if fnmatchcase(host, pattern):
            values |= {name: value for each in fields(own) if (value := getattr(own, name := each.name)) is not None}
    return type(general)(**values)
