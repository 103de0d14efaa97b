"""Stores secrets in the keyring of the system, or in the encrypted file."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from ccb.tunnel.errors import ConfigError
from ccb.tunnel.secret import Secret

if TYPE_CHECKING:
    from keyring.backend import KeyringBackend

    from ccb.tunnel.transports.login_prompts import Prompts

    from ..config.settings import Settings


SERVICE = "ccb"

NO_BACKEND = "this machine has no usable keyring"
WITHOUT_KEYRING = (
    "Without a keyring, export ANTHROPIC_API_KEY, set apiKeyHelper in the settings to a command that prints the key,"
    " or store it in a file under a passphrase: `ccb auth login --file`. On a Linux desktop, installing gnome-keyring"
    " or KWallet gives you one."
)


class NoKeyring(ConfigError):
    """This machine has no keyring to store a key in."""


class KeyStore:
    """See SecretStore. All methods block and may show the system's own unlock dialog."""

    def __init__(self, backend: Callable[[], KeyringBackend] | None = None) -> None:
        self._backend = backend or _system_backend

    def get(self, host: str) -> Secret | None:
        with _errors():
            value = self._backend().get_password(SERVICE, host)
        return Secret(value) if value else None

    def put(self, host: str, key: Secret) -> None:
        with _errors():
            self._backend().set_password(SERVICE, host, key.reveal())

    def delete(self, host: str) -> bool:
        if self.get(host) is None:
            return False
        with _errors():
            self._backend().delete_password(SERVICE, host)
        return True

    async def unlock(self, *, create: bool = False) -> None:
        """See SecretStore: the system asks by itself."""

    def described(self) -> str:
        return f"the keyring ({self.require()})"

    def require(self) -> str:
        with _errors():
            return str(self._backend().name)


def _system_backend() -> KeyringBackend:
    import keyring
    from keyring.backends import fail, null
    from keyring.errors import KeyringError

    try:
        backend = keyring.get_keyring()
    except KeyringError:
        raise
    except Exception as error:  # noqa: BLE001 - a backend class that a variable or a file names may raise anything
        named = os.environ.get("PYTHON_KEYRING_BACKEND", "")
        origin = "PYTHON_KEYRING_BACKEND" if named else "keyringrc.cfg (`keyring diagnose` says where it is)"
        raise ConfigError(
            f"The keyring backend{f' {named}' if named else ''} cannot be loaded.",
            evidence=f"{type(error).__name__}: {error}",
            do=f"Correct {origin}, or remove the choice there. {WITHOUT_KEYRING}",
        ) from None
    if isinstance(backend, (fail.Keyring, null.Keyring)):
        raise NoKeyring(f"There is no place to keep a key: {NO_BACKEND}.", do=WITHOUT_KEYRING)
    return backend


@contextmanager
def _errors() -> Iterator[None]:
    from keyring.errors import KeyringError, NoKeyringError

    try:
        yield
    except NoKeyringError:
        raise NoKeyring(f"There is no place to keep a key: {NO_BACKEND}.", do=WITHOUT_KEYRING) from None
    except KeyringError as error:
        raise ConfigError(
            "The keyring cannot be used.",
            evidence=f"{type(error).__name__}: {error}",
            do=f"Unlock the keyring and try again. {WITHOUT_KEYRING}",
        ) from None


class SecretStore(Protocol):
    """Keeps one secret under each name. Only `unlock` asks the person, and it comes first; all others block."""

    async def unlock(self, *, create: bool = False) -> None:
        """Ask for what opens the store, if needed. With `create`, make it. Raise CredentialError without an answer."""

    def get(self, name: str) -> Secret | None:
        """Return the secret under `name`, or None."""

    def put(self, name: str, secret: Secret) -> None:
        """Keep a secret, and replace an earlier one."""

    def delete(self, name: str) -> bool:
        """Remove the secret; return False if there was none."""

    def described(self) -> str:
        """Return the store in words: "the keyring (NAME)". Raise NoKeyring if nothing can be kept."""


def open_store(
    environ: Mapping[str, str], settings: Settings, prompts: Prompts, *, creates: bool = False
) -> SecretStore:
    """Return the keyring, or the encrypted file; by default that only where there is no keyring, and where the file
    exists or may be made (`creates`)."""
    from .encrypted_file import EncryptedFile, credentials_path

    file = EncryptedFile(credentials_path(environ), environ, prompts, helper=settings.credentials.passphraseHelper)
    if settings.credentials.store == "file":
        return file
    keyring = KeyStore()
    if settings.credentials.store == "keyring" or not (file.exists() or creates):
        return keyring
    try:
        keyring.require()
    except NoKeyring:
        return file
    return keyring
