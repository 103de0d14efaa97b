"""The doctor's checks of SSH key files, and of the keyring that keeps the provider's key."""

from __future__ import annotations

import asyncio
import base64
import binascii
import os
import pwd
import stat
from collections.abc import Sequence
from pathlib import Path

from ccb.tunnel.errors import CcbError
from ccb.tunnel.ssh_config.resolve import DEFAULT_KEYS

from ..credentials.keyring_store import KeyStore, NoKeyring
from ..terminal.stdio import in_thread
from .findings import Finding, State

_KEYRING_S = 10.0
_MAX_KEY = 64 * 1024
_OPEN_SSH = "-----BEGIN OPENSSH PRIVATE KEY-----"
_MAGIC = b"openssh-key-v1\0"


def default_keys() -> list[Path]:
    """Return the key files that ssh tries if none is named. They may not exist."""
    return [_ssh_directory() / name for name in DEFAULT_KEYS]


def _ssh_directory() -> Path:
    """Return the directory `.ssh` as ssh finds it: ssh ignores HOME."""
    try:
        return Path(pwd.getpwuid(os.getuid()).pw_dir) / ".ssh"
    except KeyError:
        return Path.home() / ".ssh"


def keys_finding(where: str, paths: Sequence[Path]) -> Finding:
    """Check the private key files: which exist, whether they have a passphrase, whether others can read them."""
    lines, problems = [], []
    usual = (_ssh_directory(), Path.home() / ".ssh")  # without OpenSSH, ccb looks in the second
    for path in dict.fromkeys(paths):
        try:
            mode = path.stat().st_mode
        except OSError as error:
            if not (path.parent in usual and path.name.startswith("id_")):  # nobody named it
                problems.append(f"{path}: {error.strerror}")
            continue
        kind = _kind(path)
        lines.append(f"{path}: {kind}")
        if mode & (stat.S_IRWXG | stat.S_IRWXO) and not kind.startswith("public"):
            problems.append(f"{path} can be read by others, so ssh does not use it: chmod 600 {path}")
    text = "\n".join([*lines, *problems]) or "no key files: only an agent or a password can log in"
    if problems:
        return Finding(where, "keys", State.WARN, text, "Correct these files, or name others with -i or IdentityFile.")
    return Finding(where, "keys", State.OK if lines else State.INFO, text)


def _kind(path: Path) -> str:
    """Return the kind of a key file, as far as the file reveals it without being unlocked."""
    try:
        with path.open("rb") as file:
            text = file.read(_MAX_KEY).decode("ascii", "replace").strip()
    except OSError as error:
        return f"cannot be read: {error.strerror}"
    if text.startswith(_OPEN_SSH):
        try:
            body = base64.b64decode("".join(text.splitlines()[1:-1]), validate=False)
        except (binascii.Error, ValueError):
            return "damaged"
        if not body.startswith(_MAGIC):
            return "damaged"
        return "without passphrase" if body[len(_MAGIC) :].startswith(b"\0\0\0\4none") else "with passphrase"
    if text.startswith("-----BEGIN"):
        return "with passphrase" if "ENCRYPTED" in text[:400] else "without passphrase"
    if text.startswith(("ssh-", "ecdsa-", "sk-")):
        return "public key only: the agent must hold the private key"
    return "not a private key"


async def keyring_finding(where: str) -> Finding:
    """Check whether `ccb auth login` can store a key."""
    try:
        async with asyncio.timeout(_KEYRING_S):
            name = await in_thread(KeyStore().require)
    except NoKeyring:
        return Finding(where, "keyring", State.INFO, "no usable keyring; only `ccb auth login` needs one")
    except CcbError as error:
        return Finding(where, "keyring", State.WARN, f"{error.what} {error.evidence}".strip(), error.do)
    except TimeoutError:
        text = f"did not answer in {_KEYRING_S:g} s"
        return Finding(where, "keyring", State.WARN, text, "Unlock it, or export ANTHROPIC_API_KEY.")
    return Finding(where, "keyring", State.OK, name)
