"""What commands that lead to a host say when they do not get there, as errors."""

from __future__ import annotations

import re

from .errors import AuthFailed, CcbError, ConfigError, DeployError, Dropped, HostKeyError, Unreachable
from .expired import expired
from .first_words import taken_by_nobody

SSH_FAILED = 255
"""The exit code by which ssh speaks for itself, not for the command."""

_OURS = range(93, 98)  # exit codes of our own command line: those speak for themselves

_SSH: tuple[tuple[str, type[CcbError], str, str], ...] = (
    (
        r"session open refused",
        Dropped,
        "{name} refused another session on the connection",
        "Raise MaxSessions in its sshd_config, or use a connection of your own (-o ControlPath=none).",
    ),
    (
        r"host key .*revoked|revoked host key",
        HostKeyError,
        "the host key of {where} is revoked",
        "Do not connect. Ask the host's administrator for its new key.",
    ),
    (
        r"remote host identification has changed|host key for .* has changed",
        HostKeyError,
        "{where} shows another host key than before: somebody may be listening in",
        "If the host was really set up anew, remove the old key: ssh names the command above.",
    ),
    (
        r"host key verification failed|no .* host key is known",
        HostKeyError,
        "the host key of {where} cannot be verified",
        "Check the fingerprint, then connect once with `ssh {name}` in a terminal.",
    ),
    (
        r"bad configuration option|unsupported option|bad owner or permissions|terminating, \d+ bad|garbage at end"
        r"|missing argument|unknown option|illegal option|bad option|keyword .* (extra|missing)|percent_expand",
        ConfigError,
        "ssh does not accept its configuration",
        "Mend it until `ssh {name} true` works.",
    ),
    (
        r"too many authentication failures",
        AuthFailed,
        "{where} ended the login after too many keys (MaxAuthTries)",
        "Say which key is meant: -i KEY -o IdentitiesOnly=yes (or both in your ssh_config).",
    ),
    (
        r"permission denied|authentication failed|no supported authentication",
        AuthFailed,
        "{where} refused the login",
        "Make `ssh {name}` work first: it needs a key in the host's authorized_keys, an agent or a password.",
    ),
    (
        r"could not resolve|name or service not known",
        Unreachable,
        "the name of {where} does not resolve",
        "Check the spelling, or the network.",
    ),
    (
        r"refused|timed out|no route|unreachable|cannot assign",
        Unreachable,
        "cannot reach {where}",
        "Check that the host is up and its SSH server listens on that port.",
    ),
    (
        r"(kex_exchange_identification|banner exchange):[\s\S]*unknown port",
        Unreachable,
        "the jump host or ProxyCommand does not lead to {name}",
        "Mend what they say, until `ssh {name} true` works.",
    ),
    (
        r"unknown port",
        Unreachable,
        "the SSH connection to {name} over a jump host or ProxyCommand broke off",
        "Make `ssh {name} true` work first; if it does, look into the host's SSH log.",
    ),
    (
        r"connection (closed|reset|to .* closed)|kex_exchange_identification|broken pipe|corrupted",
        Dropped,
        "the SSH connection to {name} broke off",
        "Try again; if it stays, look into the host's SSH log.",
    ),
)

_BEFORE_LOGIN = r"kex_exchange_identification: [^\n]*\n[^\n]*connection (closed|reset) by (?!unknown)"
"""Unknown is who a ProxyCommand leads to, as the one by which a client that must not log in fails."""

_WAY_ENDED = re.compile(r"(kex_exchange_identification|banner exchange):[\s\S]*\bunknown port", re.IGNORECASE)
"""Before the host at its end has spoken."""

_ON_THE_WAY = re.compile(
    r"host key for (\S+) (?:has changed|was revoked)|host key is known for (\S+) and|could not resolve hostname (\S+?):"
    r"|connect to (?:host|address) (\S+ port \d+)|^([^\s@]+@\S+?): permission denied"
    r"|^(?:received disconnect from|connection (?:closed|reset) by) (?!unknown)(\S+ port \d+)",
    re.IGNORECASE | re.MULTILINE,
)


def ssh_failure(name: str, status: int | None, said: str) -> CcbError | None:
    """What the OpenSSH client means. What is said before the way to the host has ended is said of a host on it."""
    if status != SSH_FAILED:
        return None
    said = "\n".join(line.strip("@ ") for line in said.splitlines() if line.strip("@ "))
    where = name
    if _WAY_ENDED.search(said) and not re.search(r"open failed", said):  # that is a jump host's word on the host itself
        hop = _ON_THE_WAY.search(said)
        where = f"{next(filter(None, hop.groups())) if hop else 'a host'} (on the way to {name})"
    if error := expired(where, said):
        return error
    if re.search(_BEFORE_LOGIN, said, re.IGNORECASE):
        return taken_by_nobody(where, said)
    for pattern, kind, what, do in _SSH:
        if re.search(pattern, said, re.IGNORECASE):
            return kind(what.format(name=name, where=where), evidence=said, do=do.format(name=name))
    return Unreachable(
        f"no SSH connection to {name}", evidence=said or "ssh said nothing.", do=f"Make `ssh {name} true` work first."
    )


def session_failure(name: str, status: int | None, said: str) -> CcbError | None:
    """What a client of our own master means. It has no other way to the host, so that this one leads nowhere says only that
    the master is gone."""
    error = ssh_failure(name, status, said)
    if isinstance(error, Dropped) and re.search(r"session open refused", said, re.IGNORECASE):
        error.do = "Raise MaxSessions in its sshd_config: it allows no session, or all of them are in use."
    elif type(error) is Unreachable and _WAY_ENDED.search(said):
        return Dropped(f"the SSH connection to {name} broke off", evidence=said, do="Connect again.")
    return error


def wrapper_failure(name: str, shown: str, status: int | None, said: str) -> CcbError | None:
    """What a wrapper of ssh means: it may speak for ssh, or for itself."""
    return ssh_failure(name, status, said) or command_failure(name, shown, status, said)


def command_failure(name: str, shown: str, status: int | None, said: str) -> CcbError | None:
    """What any other command means that ended at once."""
    if status is None or status in _OURS:
        return None
    by_hand = f"Make this work in a terminal first: {shown}"
    code = f"`{shown}` ended with exit code {status}"
    evidence = f"{said}\n{code}" if said else f"{code} and said nothing."
    if re.search(r"no such (file|command)|executable file not found|not found in \$?path", said, re.IGNORECASE):
        return DeployError(
            f"{name} cannot run `sh`", evidence=evidence, do="Install a POSIX sh and Python 3.9 or newer there."
        )
    if re.search(
        r"permission denied|unauthori[sz]ed|forbidden|not authori[sz]ed|access denied|logged in|log in|password is required",
        said,
        re.IGNORECASE,
    ):
        return AuthFailed(f"{name} refused the login", evidence=evidence, do=by_hand)
    if status == 127:
        return DeployError(
            f"{name} cannot run `sh`", evidence=evidence, do="Install a POSIX sh and Python 3.9 or newer there."
        )
    return Unreachable(f"no connection to {name}", evidence=evidence, do=by_hand)
