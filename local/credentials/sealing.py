"""Encrypt a text under a passphrase: scrypt makes the key, ChaCha20-Poly1305 encrypts and proves that nothing changed.

The result is JSON, so that it says by itself how it was made.
"""

from __future__ import annotations

import base64
import json
import os

from ccb.tunnel.errors import ConfigError
from ccb.tunnel.secret import Secret
from ccb.tunnel.wire.dataclass import dataclass

FORMAT = "ccb-sealed-1"
COST = 1 << 17
"""The N of scrypt: 128 MB of memory and about half a second for each try."""

_BLOCK, _PARALLEL, _KEY, _SALT, _NONCE = 8, 1, 32, 16, 12
_COSTS = range(1 << 14, (1 << 20) + 1)


class WrongPassphrase(ConfigError):
    """The passphrase is not that of the file, or the file was changed."""


@dataclass(frozen=True)
class SealKey:
    """The key of one file, and the salt and the cost that it was made with."""

    salt: bytes
    cost: int
    key: Secret


@dataclass(frozen=True)
class _Sealed:
    salt: bytes
    cost: int
    nonce: bytes
    data: bytes

    @property
    def header(self) -> bytes:
        return f"{FORMAT} {self.cost} {self.salt.hex()}".encode("ascii")


def new_key(passphrase: str, cost: int = COST) -> SealKey:
    """Return a key with a new salt. Takes half a second."""
    return _derived(passphrase, os.urandom(_SALT), cost)


def key_for(sealed: bytes, passphrase: str) -> SealKey:
    """Return the key with which `sealed` was made if `passphrase` is right. Takes half a second. Raise ConfigError."""
    parts = _parts(sealed)
    return _derived(passphrase, parts.salt, parts.cost)


def fits(key: SealKey, sealed: bytes) -> bool:
    """Return whether `sealed` was made with the same salt and cost."""
    parts = _parts(sealed)
    return (parts.salt, parts.cost) == (key.salt, key.cost)


def seal(text: str, key: SealKey) -> bytes:
    """Return `text` encrypted, each time under a new nonce."""
    from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

    parts = _Sealed(key.salt, key.cost, os.urandom(_NONCE), b"")
    data = ChaCha20Poly1305(bytes.fromhex(key.key.reveal())).encrypt(parts.nonce, text.encode(), parts.header)
    binary = {"salt": parts.salt, "nonce": parts.nonce, "data": data}
    fields = {name: base64.b64encode(value).decode("ascii") for name, value in binary.items()}
    return json.dumps({"format": FORMAT, "cost": key.cost, **fields}).encode("ascii") + b"\n"


def unseal(sealed: bytes, key: SealKey) -> str:
    """Return the text in `sealed`. Raise WrongPassphrase, ConfigError."""
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

    parts = _parts(sealed)
    try:
        return ChaCha20Poly1305(bytes.fromhex(key.key.reveal())).decrypt(parts.nonce, parts.data, parts.header).decode()
    except InvalidTag:
        raise WrongPassphrase("the passphrase is wrong, or the file was changed", do="Try again.") from None


def _derived(passphrase: str, salt: bytes, cost: int) -> SealKey:
    from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

    key = Scrypt(salt=salt, length=_KEY, n=cost, r=_BLOCK, p=_PARALLEL).derive(passphrase.encode("utf-8", "replace"))
    return SealKey(salt, cost, Secret(key.hex()))


def _parts(sealed: bytes) -> _Sealed:
    """Read the fields, and check what decides how long the next step takes."""
    try:
        fields = json.loads(sealed)
        if fields["format"] != FORMAT or fields["cost"] not in _COSTS:
            raise ValueError
        salt, nonce, data = (base64.b64decode(fields[name], validate=True) for name in ("salt", "nonce", "data"))
        if len(salt) != _SALT or len(nonce) != _NONCE:
            raise ValueError
    except (ValueError, TypeError, KeyError):
        raise ConfigError("this is no file of encrypted credentials", do="Remove it, and log in again.") from None
    return _Sealed(salt, fields["cost"], nonce, data)
