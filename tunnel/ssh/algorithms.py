"""Names of algorithms in ssh_config, as asyncssh takes them: what it does not know is left out."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Mapping, Sequence

from asyncssh.encryption import get_default_encryption_algs, get_encryption_algs
from asyncssh.kex import get_default_kex_algs, get_kex_algs
from asyncssh.mac import get_default_mac_algs, get_mac_algs
from asyncssh.public_key import (
    get_certificate_algs,
    get_default_certificate_algs,
    get_default_public_key_algs,
    get_public_key_algs,
)

from ..errors import ConfigError

_NAMES = {
    "ciphers": (get_encryption_algs, get_default_encryption_algs),
    "macs": (get_mac_algs, get_default_mac_algs),
    "kexalgorithms": (get_kex_algs, get_default_kex_algs),
    "pubkeyacceptedalgorithms": (get_public_key_algs, get_default_public_key_algs),
}


def chosen(given: Mapping[str, str], option: str) -> list[str] | None:
    """The names that `given[option]` means, in its order; None where it was not set. Raises ConfigError when all are unknown."""
    if option not in given:
        return None
    known, default = _NAMES[option]
    text = given[option]
    if option == "pubkeyacceptedalgorithms":
        # a certificate signs with its key's own algorithm, and has no name of its own here
        text = re.sub(r"(sk-[^,@]*)-cert-v01(@openssh\.com)", r"\1\2", text).replace("-cert-v01@openssh.com", "")
    return _select(text, _text(known()), _text(default()), option)


def host_key_algorithms(given: Mapping[str, str], stored: Sequence[bytes], *, certificates: bool) -> list[str]:
    """What the server may prove itself with, the best first: as the person set it, else kinds that are on file (`stored`) before
    the others. Certificates only where an authority is trusted, and not again when one has failed."""
    every = _text(get_certificate_algs()) + _text(get_public_key_algs())
    certified = _text(get_default_certificate_algs())
    plain = _text(get_default_public_key_algs())
    first = [name for name in _text(stored) if name in plain]
    names = certified + first + [name for name in plain if name not in first]
    option = "hostkeyalgorithms"
    if option in given:
        names = _select(given[option], every, certified + plain, option)
    return [name for name in names if certificates or name not in _text(get_certificate_algs())] or plain


def _select(text: str, known: Sequence[str], default: Sequence[str], option: str) -> list[str]:
    how = text[0] if text[:1] in ("+", "-", "^") else ""
    patterns = [name.strip() for name in text.removeprefix(how).split(",")]
    named = [name for pattern in patterns for name in fnmatch.filter(known, pattern)]
    if how == "-":
        names = [name for name in default if name not in named]
    else:
        names = {"+": [*default, *named], "^": [*named, *default]}.get(how, named)
    if not names:
        raise ConfigError(
            f"{option} in your ssh configuration names only what ccb's own SSH does not know",
            evidence=text,
            do="Allow one more, or let ssh itself connect: --transport ssh.",
        )
    return list(dict.fromkeys(names))


def _text(names: Sequence[bytes]) -> list[str]:
    return [name.decode("ascii") for name in names]
