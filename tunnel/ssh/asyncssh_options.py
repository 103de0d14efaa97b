"""The options of one host as asyncssh takes them: explicit ones only, so asyncssh reads no file of its own."""

from __future__ import annotations

import fnmatch
import os
import re
from collections.abc import Mapping, Sequence

import asyncssh
from asyncssh import public_key as keys
from asyncssh.connection import _expand_algs
from asyncssh.encryption import get_default_encryption_algs, get_encryption_algs
from asyncssh.kex import get_default_kex_algs, get_kex_algs
from asyncssh.mac import get_default_mac_algs, get_mac_algs

from ..errors import ConfigError
from ..ssh_config.host_config import HostConfig
from ..transports.host_keys import KnownKeys

KEEPALIVE_S = 5
KEEPALIVE_COUNT = 2  # asyncssh gives up after (count + 1) intervals of silence: 15 s
LOGIN_TIMEOUT_S = 300  # seconds for a whole login. A second factor on a phone takes its time.

WINDOW, PACKET = 4 << 20, 128 << 10
"""Bytes that a command may send ahead, and in one packet: with asyncssh's 2 MB and 32 KB a copy stands still whenever
the interface is busy for a moment."""

_NEVER_SENT = ("ANTHROPIC_*", "CLAUDE_CODE_OAUTH_TOKEN", "CCB_*")

_NAMES = {
    "ciphers": (get_encryption_algs, get_default_encryption_algs),
    "macs": (get_mac_algs, get_default_mac_algs),
    "kexalgorithms": (get_kex_algs, get_default_kex_algs),
    "pubkeyacceptedalgorithms": (keys.get_public_key_algs, keys.get_default_public_key_algs),
}


def connection_options(
    config: HostConfig, known: KnownKeys, *, certificates: bool
) -> asyncssh.SSHClientConnectionOptions:
    """Return the options for one connection. `certificates`: also ask the host for one. Raise ConfigError."""
    stream, methods = config.stream, config.methods
    trusted = (known.trusted, known.authorities, known.revoked, (), (), (), ())
    stored = [kind for key in known.trusted for kind in key.sig_algorithms]
    interval, count = KEEPALIVE_S, KEEPALIVE_COUNT
    if stream.alive is not None:  # the person's ServerAlive options count if those give up earlier
        total = min(interval * (count + 1), stream.alive[0] * stream.alive[1])
        interval = min(interval, stream.alive[0])
        count = max(1, total // interval - 1)
    rekey_bytes, rekey_seconds = stream.rekey
    return asyncssh.SSHClientConnectionOptions(
        config=None,
        known_hosts=lambda host, address, port: trusted,
        host_key_alias=config.trust.alias,
        username=config.user,
        client_keys=None,  # LoginClient offers the keys: asyncssh would use no agent without key files
        agent_path=None,
        compression_algs=["zlib@openssh.com", "none"] if stream.compression else None,
        encryption_algs=ciphers(stream.algorithms),
        mac_algs=chosen(stream.algorithms, "macs") or (),
        kex_algs=chosen(stream.algorithms, "kexalgorithms") or (),
        signature_algs=chosen(stream.algorithms, "pubkeyacceptedalgorithms") or (),
        server_host_key_algs=host_key_algorithms(stream.algorithms, stored, certificates=certificates),
        preferred_auth=methods.preferred or (),
        public_key_auth=methods.public_key,
        password_auth=methods.password,
        kbdint_auth=methods.challenges,
        env={**_sent(stream.send_env), **stream.set_env} or None,
        rekey_bytes=rekey_bytes or (),
        rekey_seconds=rekey_seconds or (),
        keepalive_interval=interval,
        keepalive_count_max=count,
        login_timeout=LOGIN_TIMEOUT_S,
        window=WINDOW,
        max_pktsize=PACKET,
    )


def _sent(patterns: Sequence[str]) -> dict[str, str]:
    return {
        name: value
        for name, value in os.environ.items()
        if any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)
        and not any(fnmatch.fnmatchcase(name, pattern) for pattern in _NEVER_SENT)
    }


def chosen(given: Mapping[str, str], option: str) -> list[str] | None:
    """Return the algorithms of an option that asyncssh knows; None if it is not set. Raise ConfigError for none."""
    if option not in given:
        return None
    known, default = _NAMES[option]
    text = given[option]
    if option == "pubkeyacceptedalgorithms":
        # asyncssh has no own names for signatures by a certificate: its key's algorithm signs
        text = re.sub(r"(sk-[^,@]*)-cert-v01(@openssh\.com)", r"\1\2", text).replace("-cert-v01@openssh.com", "")
    return _select(text, known(), default(), option)


def ciphers(given: Mapping[str, str]) -> list[str]:
    """Return the ciphers. If nobody set them, AES-GCM precedes ChaCha20 (three calls of OpenSSL a packet)."""
    default = sorted(_text(get_default_encryption_algs()), key=lambda name: "-gcm@" not in name)
    return chosen(given, "ciphers") or default


def host_key_algorithms(given: Mapping[str, str], stored: Sequence[bytes], *, certificates: bool) -> list[str]:
    """Return the algorithms for host keys: HostKeyAlgorithms, else first the kinds in known_hosts (`stored`)."""
    every = keys.get_certificate_algs() + keys.get_public_key_algs()
    certified, plain = keys.get_default_certificate_algs(), keys.get_default_public_key_algs()
    option = "hostkeyalgorithms"
    if option in given:
        names = _select(given[option], every, certified + plain, option)
    else:
        first = [name for name in stored if name in plain]
        names = _text([*certified, *first, *(name for name in plain if name not in first)])
    return [name for name in names if certificates or name not in _text(keys.get_certificate_algs())] or _text(plain)


def _select(text: str, known: list[bytes], default: list[bytes], option: str) -> list[str]:
    """Apply a list of patterns with its leading `+`, `-` or `^` (ssh_config(5), Ciphers)."""
    names = _text(_expand_algs(option, text, known, default, strict_match=False))
    if not names:
        raise ConfigError(
            f"{option} in your ssh configuration names only algorithms that ccb's own SSH does not know",
            evidence=text,
            do="Allow one more, or connect with ssh itself: --transport ssh.",
        )
    return list(dict.fromkeys(names))


def _text(names: Sequence[bytes]) -> list[str]:
    return [name.decode("ascii") for name in names]
