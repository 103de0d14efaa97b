"""The accounts of a person at one provider, all in one secret, so nothing about them is kept in the clear."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import fields
from pathlib import Path
from typing import Literal, get_args

from ccb.tunnel.errors import ConfigError, CredentialError, NoCredential
from ccb.tunnel.providers.credential import Credential
from ccb.tunnel.secret import Secret
from ccb.tunnel.wire.dataclass import dataclass

from ..config.settings_file import locked
from .credential_helper import OAUTH_BETA, is_login_token
from .secret_store import SecretStore

DEFAULT = "default"
Kind = Literal["api_key", "bearer", "oauth"]
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.@+-]{0,63}")
_FORMAT = 1


@dataclass(frozen=True)
class Account:
    """One account. `secret` is the key or the token, which ends at the time `expires`. With `refresh`, a new token is
    got from `token_url` for `client_id`. `workspace` is Anthropic's."""

    name: str
    kind: Kind
    secret: Secret
    workspace: str = ""
    expires: float | None = None
    refresh: Secret | None = None
    token_url: str = ""
    client_id: str = ""

    def credential(self, source: str) -> Credential:
        of_login = self.kind == "oauth" or is_login_token(self.secret)
        if self.kind == "api_key" and not of_login:
            return Credential(source, api_key=self.secret, workspace=self.workspace)
        betas = (OAUTH_BETA,) if of_login else ()
        return Credential(source, bearer=self.secret, workspace=self.workspace, betas=betas)


@dataclass(frozen=True)
class ProviderAccounts:
    """The accounts at one host. `directory` is for locks. All methods block; see SecretStore for what they raise.
    `missing` is raised instead of the usual error where no account is stored."""

    store: SecretStore
    host: str
    directory: Path
    missing: NoCredential | None = None

    def all(self) -> dict[str, Account]:
        found = self.store.get(self.host)
        return {} if found is None else _read(found, self.host)

    def chosen(self, name: str | None) -> Account:
        """Return the account of this name; without a name the only one, or `default`. Raise CredentialError."""
        accounts = self.all()
        if not accounts:
            raise self.missing or NoCredential(
                f"No model credential for {self.host}.", do="Run `ccb auth login`, or export ANTHROPIC_API_KEY."
            )
        account = accounts.get(name or DEFAULT) or (next(iter(accounts.values())) if len(accounts) == 1 else None)
        if account is None or (name and account.name != name):
            names = ", ".join(accounts)
            raise CredentialError(
                f"No account {name or DEFAULT!r} at {self.host}: there is {names}.",
                do="Name one of them as `accounts` in the settings, or run `ccb auth login --account NAME`.",
            )
        return account

    def put(self, account: Account) -> None:
        with self.alone():
            self._write({**self.all(), account.name: account})

    def remove(self, name: str) -> bool:
        """Remove an account; return False if there was none of this name."""
        with self.alone():
            accounts = self.all()
            if accounts.pop(name, None) is None:
                return False
            if accounts:
                self._write(accounts)
            else:
                self.store.delete(self.host)
            return True

    def renewed(self, account: Account) -> None:
        """Keep a new token of an account that still exists. Call it while this process is `alone`."""
        accounts = self.all()
        if account.name in accounts:
            self._write({**accounts, account.name: account})

    def alone(self, *, wait: bool = True) -> AbstractContextManager[None]:
        """Hold off other processes. Raise BlockingIOError if one changes the accounts now and `wait` is false."""
        digest = hashlib.sha256(self.host.encode()).hexdigest()[:16]
        return locked(self.directory / f"accounts-{digest}.lock", wait=wait)

    def _write(self, accounts: Mapping[str, Account]) -> None:
        kept: dict[str, dict[str, object]] = {}
        for name, account in accounts.items():
            values = {each.name: getattr(account, each.name) for each in fields(account) if each.name != "name"}
            given = {key: value for key, value in values.items() if value not in (None, "")}
            kept[name] = {key: each.reveal() if isinstance(each, Secret) else each for key, each in given.items()}
        self.store.put(self.host, Secret(json.dumps({"ccb": _FORMAT, "accounts": kept})))


def checked_name(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise ConfigError(f"{name!r} cannot be the name of an account", do="Use letters, digits, '-', '_', '.', '@'.")
    return name


def _read(found: Secret, host: str) -> dict[str, Account]:
    text = found.reveal()
    if not text.startswith("{"):  # as earlier versions kept one key for each host
        return {DEFAULT: Account(DEFAULT, "api_key", found)}
    try:
        return {str(name): _account(str(name), each) for name, each in json.loads(text)["accounts"].items()}
    except (ValueError, TypeError, KeyError, AttributeError):
        do = f"`ccb auth logout --all` removes it ({host})."
        raise ConfigError(f"What is stored for {host} cannot be read.", do=do) from None


def _account(name: str, kept: Mapping[str, object]) -> Account:
    kind, expires, refresh = kept["kind"], kept.get("expires"), kept.get("refresh")
    if kind not in get_args(Kind):
        raise ValueError(kind)
    return Account(
        name,
        kind,  # type: ignore[arg-type]  # it is one of Kind
        Secret(str(kept["secret"])),
        workspace=str(kept.get("workspace", "")),
        expires=float(expires) if isinstance(expires, int | float) else None,
        refresh=Secret(refresh) if isinstance(refresh, str) else None,
        token_url=str(kept.get("token_url", "")),
        client_id=str(kept.get("client_id", "")),
    )
