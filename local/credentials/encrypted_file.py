"""A file of secrets, encrypted under a passphrase; neither is ever written in the clear."""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from ccb.tunnel.errors import ConfigError, CredentialError
from ccb.tunnel.secret import Secret
from ccb.tunnel.wire.dataclass import dataclass

from ..config.settings import config_dir
from ..config.settings_file import locked, replace_file
from ..terminal.stdio import in_thread
from .credential_helper import output_of

if TYPE_CHECKING:
    from ccb.tunnel.transports.login_prompts import Prompts


FORMAT = "ccb-sealed-1"
COST = 1 << 17  # the N of scrypt: 128 MB of memory and about half a second for each try
_BLOCK, _PARALLEL, _KEY, _SALT, _NONCE = 8, 1, 32, 16, 12
_COSTS = range(1 << 14, (1 << 20) + 1)
MIN_PASSPHRASE = 8
_MAX_BYTES = 1024 * 1024
_TRIES = 3
_HELPER = "credentials.passphraseHelper"


class WrongPassphrase(ConfigError):
    """The passphrase is not that of the file, or the file was changed."""


@dataclass(frozen=True)
class SealKey:
    salt: bytes
    cost: int
    key: Secret


def key_for(sealed: bytes | None, passphrase: str, cost: int = COST) -> SealKey:
    """Return the key with which `sealed` was made if `passphrase` is right, a new one for None. Takes half a second."""
    from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

    salt, cost = (os.urandom(_SALT), cost) if sealed is None else _parts(sealed)[:2]
    key = Scrypt(salt=salt, length=_KEY, n=cost, r=_BLOCK, p=_PARALLEL).derive(passphrase.encode("utf-8", "replace"))
    return SealKey(salt, cost, Secret(key.hex()))


def fits(key: SealKey, sealed: bytes) -> bool:
    return _parts(sealed)[:2] == (key.salt, key.cost)


def seal(text: str, key: SealKey) -> bytes:
    from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

    nonce = os.urandom(_NONCE)
    header = _header(key.salt, key.cost)
    data = ChaCha20Poly1305(bytes.fromhex(key.key.reveal())).encrypt(nonce, text.encode(), header)
    binary = {"salt": key.salt, "nonce": nonce, "data": data}
    fields = {name: base64.b64encode(value).decode("ascii") for name, value in binary.items()}
    return json.dumps({"format": FORMAT, "cost": key.cost, **fields}).encode("ascii") + b"\n"


def unseal(sealed: bytes, key: SealKey) -> str:
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

    salt, cost, nonce, data = _parts(sealed)
    try:
        return ChaCha20Poly1305(bytes.fromhex(key.key.reveal())).decrypt(nonce, data, _header(salt, cost)).decode()
    except InvalidTag:
        raise WrongPassphrase("the passphrase is wrong, or the file was changed", do="Try again.") from None


def _header(salt: bytes, cost: int) -> bytes:
    return f"{FORMAT} {cost} {salt.hex()}".encode("ascii")


def _parts(sealed: bytes) -> tuple[bytes, int, bytes, bytes]:
    """Return salt, cost, nonce and data. What decides how long the next step takes is checked."""
    try:
        fields = json.loads(sealed)
        if fields["format"] != FORMAT or fields["cost"] not in _COSTS:
            raise ValueError
        salt, nonce, data = (base64.b64decode(fields[name], validate=True) for name in ("salt", "nonce", "data"))
        if len(salt) != _SALT or len(nonce) != _NONCE:
            raise ValueError
    except (ValueError, TypeError, KeyError):
        raise ConfigError("this is no file of encrypted credentials", do="Remove it, and log in again.") from None
    return salt, fields["cost"], nonce, data


class StoreLocked(CredentialError):
    """Nobody has given the passphrase, so what is in the file is not known."""


def credentials_path(environ: Mapping[str, str]) -> Path:
    return config_dir(environ) / "credentials.sealed"


class EncryptedFile:
    """See SecretStore. `unlock` opens the file or makes it; without a passphrase it raises StoreLocked."""

    def __init__(
        self, path: Path, environ: Mapping[str, str], prompts: Prompts, *, helper: str | None = None, cost: int = COST
    ) -> None:
        self.path = path
        self._environ = environ
        self._prompts = prompts
        self._helper = helper
        self._cost = cost

    def exists(self) -> bool:
        return self.path.exists()

    async def unlock(self, *, create: bool = False) -> None:
        sealed = await in_thread(self._sealed)
        key = self._key
        if (sealed is None and not create) or (key is not None and (sealed is None or fits(key, sealed))):
            return
        if self._helper:
            await self._try(sealed, await output_of(self._helper, _HELPER, self._environ))
            return
        if sealed is None:
            first = await self._prompts.passphrase(f"{self.path} (new)", 1) or ""
            _check_length(first)
            if await self._prompts.passphrase(f"{self.path} (new)", 2) != first:
                raise CredentialError("The two passphrases differ; nothing was stored.", do="Try again.")
            await self._try(None, first)
            return
        for attempt in range(1, _TRIES + 1):
            passphrase = await self._prompts.passphrase(str(self.path), attempt)
            if not passphrase:
                break
            with suppress(WrongPassphrase):
                await self._try(sealed, passphrase)
                return
        raise StoreLocked(
            f"{self.path} stays locked: nobody has given its passphrase.",
            do="Type the passphrase in a session on a terminal (not with -p), name a command that prints it as "
            "credentials.passphraseHelper, or export the key.",
        )

    def get(self, name: str) -> Secret | None:
        text = self._read().get(name)
        return Secret(text) if text else None

    def put(self, name: str, secret: Secret) -> None:
        with locked(self.path.with_suffix(".lock")):
            self._write({**self._read(), name: secret.reveal()})

    def delete(self, name: str) -> bool:
        with locked(self.path.with_suffix(".lock")):
            kept = self._read()
            if kept.pop(name, None) is None:
                return False
            if kept:
                self._write(kept)
            else:  # an empty file would only make every run ask for its passphrase
                self.path.unlink(missing_ok=True)
            return True

    def described(self) -> str:
        return f"the encrypted file {self.path}"

    @property
    def _key(self) -> SealKey | None:
        found = self._prompts.memory.seals.get(self.path)
        return found if isinstance(found, SealKey) else None

    async def _try(self, sealed: bytes | None, passphrase: str) -> None:
        """Remember the key of the passphrase. Raise WrongPassphrase, ConfigError."""
        passphrase = passphrase.rstrip("\r\n")
        if sealed is None:
            _check_length(passphrase)
        key = await in_thread(lambda: key_for(sealed, passphrase, self._cost))
        if sealed is not None:
            unseal(sealed, key)
        self._prompts.memory.seals[self.path] = key

    def _sealed(self) -> bytes | None:
        try:
            with self.path.open("rb") as file:
                sealed = file.read(_MAX_BYTES + 1)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise ConfigError(f"{self.path} cannot be read", evidence=str(error.strerror)) from None
        if len(sealed) > _MAX_BYTES:
            raise ConfigError(f"{self.path} is larger than {_MAX_BYTES} bytes", do=f"Check {self.path}.")
        return sealed

    def _read(self) -> dict[str, str]:
        sealed = self._sealed()
        if sealed is None:
            return {}
        if self._key is None:
            raise ConfigError(f"{self.path} is locked", do="Give its passphrase.")
        kept = json.loads(unseal(sealed, self._key))
        return {str(name): str(text) for name, text in kept.items()} if isinstance(kept, dict) else {}

    def _write(self, kept: Mapping[str, str]) -> None:
        if self._key is None:
            raise ConfigError(f"{self.path} is locked", do="Give its passphrase.")
        try:
            replace_file(self.path, seal(json.dumps(kept), self._key))
        except OSError as error:
            raise ConfigError(f"{self.path} cannot be written", evidence=str(error.strerror)) from None


def _check_length(passphrase: str) -> None:
    if len(passphrase) < MIN_PASSPHRASE:
        raise ConfigError(f"the passphrase is shorter than {MIN_PASSPHRASE} characters", do="Take a longer one.")
