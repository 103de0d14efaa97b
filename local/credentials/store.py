"""Where secrets are kept between runs: the keyring of the system, or a file that a passphrase encrypts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

from ccb.tunnel.secret import Secret

from .keyring_store import KeyStore, NoKeyring

if TYPE_CHECKING:
    from ccb.tunnel.login.prompter import Prompts

    from ..config.settings import Settings


class SecretStore(Protocol):
    """Keeps one secret under each name. Only `unlock` asks the person by ccb's own means, and it comes first; all other
    methods block. All raise ConfigError."""

    async def unlock(self, *, create: bool = False) -> None:
        """Ask for what opens the store, if that is needed and not known yet. With `create`, make the store. Raise
        CredentialError without an answer."""

    def get(self, name: str) -> Secret | None:
        """Return the secret under `name`, or None."""

    def put(self, name: str, secret: Secret) -> None:
        """Keep a secret, and replace an earlier one."""

    def delete(self, name: str) -> bool:
        """Remove the secret; return False if there was none."""

    def described(self) -> str:
        """Return the store in words: "the keyring (NAME)". Raise NoKeyring if nothing can be kept."""


def open_store(environ: Mapping[str, str], settings: Settings, prompts: Prompts) -> SecretStore:
    """Return the keyring, or the encrypted file: the settings name one of them, and by themselves they take the file
    only where it exists and this machine has no keyring."""
    from .encrypted_file import EncryptedFile, credentials_path

    file = EncryptedFile(credentials_path(environ), environ, prompts, helper=settings.credentials.passphraseHelper)
    if settings.credentials.store == "file":
        return file
    keyring = KeyStore()
    if settings.credentials.store == "keyring" or not file.exists():
        return keyring
    try:
        keyring.require()
    except NoKeyring:
        return file
    return keyring
