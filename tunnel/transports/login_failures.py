"""Turn the output of ssh and of other commands into errors for the person."""

from __future__ import annotations

import re
import socket

from ..errors import AuthFailed, CcbError, ConfigError, DeployError, Dropped, HostKeyError, Unreachable
from ..plain_text import neutralise

SSH_FAILED = 255  # the exit code of ssh itself. Any other one is that of the command on the host.
_OURS = range(93, 98)  # exit codes of our own command line on the host. Its caller reads those.
_SESSION_REFUSED = r"^(\S+: session request failed: )?session open refused by peer"
_WAY_ENDED_PATTERN = (
    r"^((kex_exchange_identification|banner exchange): |connection timed out during banner exchange)"
    r"[\s\S]*\bunknown port"
)

_SSH: tuple[tuple[str, type[CcbError], str, str], ...] = (
    (
        _SESSION_REFUSED,
        Dropped,
        "{name} refused another session on the connection",
        "Raise MaxSessions in its sshd_config, or use a separate connection (-o ControlPath=none).",
    ),
    (
        r"^(warning: )?revoked host key detected|^the \S+ host key for .+ is marked as revoked"
        r"|^\S+ host key for \S+ was revoked and|^host key \S+ \S+ revoked by file",
        HostKeyError,
        "a host key on the way to {name} is revoked",
        "Do not connect. Ask the host's administrator for its new key.",
    ),
    (
        r"^(warning: )?remote host identification has changed|^host key for \S+ has changed and",
        HostKeyError,
        "a host key on the way to {name} has changed: somebody may be intercepting the connection",
        "If the host was really reinstalled, remove the old key: ssh names its place above.",
    ),
    (
        r"^host key verification failed|^no \S+ host key is known for ",
        HostKeyError,
        "a host key on the way to {name} cannot be verified",
        "Check the fingerprint, then connect once with `{by_hand}` in a terminal.",
    ),
    (
        r"^\S.*\bline \d+: (bad configuration option|unsupported option|missing argument|garbage at end"
        r"|keyword .* (extra|missing))|^\S.*: terminating, \d+ bad|^bad owner or permissions on "
        r"|^can't open user config file|^(ssh: )?(unknown|illegal) option -- |^\w*percent_expand: ",
        ConfigError,
        "ssh does not accept its configuration",
        "Correct it until `{by_hand}` works.",
    ),
    (
        r"^(received disconnect from .*)?too many authentication failures",
        AuthFailed,
        "{name} ended the login after too many failed tries (MaxAuthTries)",
        "If your agent holds many keys, choose one: -i KEY -o IdentitiesOnly=yes (or both in your ssh_config).",
    ),
    (
        r"^permission denied( \(|, please try again)|^\S+@\S+: permission denied|^authentication failed"
        r"|^(received disconnect|disconnected) from .*no supported authentication",
        AuthFailed,
        "{name} refused the login",
        "Make `{by_hand}` work first: it needs a key in the host's authorized_keys, an agent or a password.",
    ),
    (
        r"^ssh: could not resolve host|^channel \d+: open failed: connect failed: .*(not known|resol)",
        Unreachable,
        "the name of {name} does not resolve",
        "Check the spelling, or the network.",
    ),
    (
        r"^(ssh: )?connect to (host|address) \S+ port \S+: |^channel \d+: open failed: connect failed: ",
        Unreachable,
        "cannot reach {name}",
        "Check that the host is up and its SSH server listens on that port.",
    ),
    (
        _WAY_ENDED_PATTERN,
        Unreachable,
        "the jump host or ProxyCommand does not reach {name}",
        "Correct its options until `{by_hand}` works.",
    ),
    (
        r"^(banner exchange: |ssh_dispatch_run_fatal: )?(connection|disconnected|received disconnect) .*"
        r"\bunknown port \d+",
        Unreachable,
        "the SSH connection to {name} over a jump host or ProxyCommand broke off",
        "Make `{by_hand}` work first. If it works, read the host's SSH log.",
    ),
    (
        r"^connection timed out|^connection (to|with) .*\btimed out|^timeout, server "
        r"|^(read from|client_loop: ).*timed out",
        Unreachable,
        "cannot reach {name}",
        "Check that the host is up and its SSH server listens on that port.",
    ),
    (
        r"^connection (closed|reset)|^connection to .* closed|^(kex|ssh)_exchange_identification: |^disconnect(ed|ing) "
        r"|^(client_loop|packet_write_wait|ssh_dispatch_run_fatal|write_wait|ssh_packet_\w+): "
        r"|^read from (remote host|socket)"
        r"|^corrupted |^bad packet length",
        Dropped,
        "the SSH connection to {name} broke off",
        "Try again. If it happens again, read the host's SSH log.",
    ),
)
"""Messages of ssh and the errors they mean: pattern, class, what happened, what to do. The first matching row
counts. Patterns are anchored to the start of a line: a banner or ProxyCommand may use the same words elsewhere."""

_ALSO_SSH = (
    r"^offending |^received disconnect |^stdio forwarding failed"
    r"|^channel \d+: |^unable to negotiate |^load (pub)?key |^sign_and_send_pubkey: |^banner exchange: "
    r"|^\S+: session request failed"
)
_OWN_LINE = "(?i)" + "|".join([*(row[0] for row in _SSH), _ALSO_SSH])
"""This and the other patterns are compiled at the first failure, and not in every start (5 ms)."""

_BEFORE_LOGIN = r"^kex_exchange_identification: [^\n]*\n[^\n]*connection (closed|reset) by (?!unknown)"
"""ssh says "unknown" for the far end of a ProxyCommand, also of the `false` in `client_command`."""

_WAY_ENDED = "(?im)" + _WAY_ENDED_PATTERN  # A jump host or ProxyCommand ended before the host behind it said anything
_NO_REASON = r"(?i)^(kex_exchange_identification|banner exchange|connection .*unknown port|connection timed out)"
"""Messages of ssh about the end of its ProxyCommand that give no reason."""


def ssh_failure(name: str, status: int | None, said: str, by_hand: str = "", *, told: bool = False) -> CcbError | None:
    """Return the error that the output of ssh means, if `status` is its own. `told`: the person has read `said`."""
    if status != SSH_FAILED:
        return None
    by_hand = by_hand or f"ssh {name} true"
    said = _without_frames(said)
    evidence = last_words(said) if told else said
    if error := expired(name, said):
        if told:
            own = [line for line in said.splitlines() if expired(name, line) or re.search(_OWN_LINE, line)]
            error.evidence = "\n".join(own)
        return error
    if re.search(_BEFORE_LOGIN, said, re.IGNORECASE | re.MULTILINE):
        return closed_before_login(name, evidence)
    for pattern, kind, what, do in _SSH:
        if re.search(pattern, said, re.IGNORECASE | re.MULTILINE):
            return kind(what.format(name=name), evidence=evidence, do=do.replace("{by_hand}", by_hand))
    return Unreachable(
        f"no SSH connection to {name}", evidence=evidence or "ssh said nothing.", do=f"Make `{by_hand}` work first."
    )


def last_words(said: str) -> str:
    """Return the last lines in which ssh itself says why it ended, and the line before them if they give no reason."""
    lines = _without_frames(said).splitlines()
    first = len(lines)
    while first and re.search(_OWN_LINE, lines[first - 1]):
        first -= 1
    if all(re.search(_NO_REASON, line) for line in lines[first:]):
        first -= 1
    return "\n".join(lines[max(first, 0) :])


def _without_frames(said: str) -> str:
    return "\n".join(line.strip("@ ") for line in said.splitlines() if line.strip("@ "))


def session_failure(name: str, status: int | None, said: str, by_hand: str = "") -> CcbError | None:
    """Return the error that a client of our master means. "No way to the host" means that the master has ended."""
    error = ssh_failure(name, status, said, by_hand)
    if isinstance(error, Dropped) and re.search(_SESSION_REFUSED, said, re.IGNORECASE | re.MULTILINE):
        error.do = "Raise MaxSessions in its sshd_config: it allows no session, or all of them are in use."
    elif type(error) is Unreachable and (re.search(_WAY_ENDED, said) or not said):  # after EPIPE ssh may say nothing
        return Dropped(f"the SSH connection to {name} broke off", evidence=said, do="Connect again.")
    return error


def wrapper_failure(name: str, shown: str, status: int | None, said: str) -> CcbError | None:
    return ssh_failure(name, status, said, shown) or command_failure(name, shown, status, said)


def command_failure(name: str, shown: str, status: int | None, said: str) -> CcbError | None:
    if status is None or status in _OURS:
        return None
    by_hand = f"Make this work in a terminal first: {shown}"
    code = f"`{shown}` ended with exit code {status}"
    evidence = f"{said}\n{code}" if said else f"{code} and said nothing."
    missing = re.search(r"no such (file|command)|executable file not found|not found in \$?path", said, re.IGNORECASE)
    if not missing and re.search(
        r"permission denied|unauthori[sz]ed|forbidden|not authori[sz]ed|access denied|logged in|log in"
        r"|password is required",
        said,
        re.IGNORECASE,
    ):
        return AuthFailed(f"{name} refused the login", evidence=evidence, do=by_hand)
    if missing or status == 127:
        return DeployError(
            f"{name} cannot run `sh`", evidence=evidence, do="Install a POSIX sh and Python 3.9 or newer there."
        )
    return Unreachable(f"no connection to {name}", evidence=evidence, do=by_hand)


_MAX_HEARD = 512
_MAX_SHOWN = 200
_EXPIRED = re.compile(
    r"your (account|password) has expired|password change required|you are required to change your password",
    re.IGNORECASE,
)


class ServerMessages(socket.socket):
    """Takes over `sock` and remembers the first bytes that arrive."""

    def __init__(self, sock: socket.socket) -> None:
        super().__init__(sock.family, sock.type, sock.proto, fileno=sock.detach())
        self.setblocking(False)
        self._heard = b""

    def recv(self, bufsize: int, flags: int = 0, /) -> bytes:
        data = super().recv(bufsize, flags)
        if len(self._heard) < _MAX_HEARD:
            self._heard += data[: _MAX_HEARD - len(self._heard)]
        return data

    @property
    def spoke_ssh(self) -> bool:
        return re.search(rb"^SSH-", self._heard, re.MULTILINE) is not None

    @property
    def said(self) -> str:
        return " ".join(neutralise(self._heard.decode("utf-8", "replace")).split())[:_MAX_SHOWN]


def too_many_logins(said: str) -> bool:
    """Return whether this text of the server, perhaps empty, means that it accepts no login now (MaxStartups)."""
    return not said or re.search(r"MaxStartups|not allowed at this time", said, re.IGNORECASE) is not None


def closed_before_login(name: str, said: str) -> Dropped:
    return Dropped(
        f"{name} closed the connection before any login",
        evidence=said,
        do="Too many logins are under way there (MaxStartups), or it blocks this address: try again in a minute.",
    )


def expired(name: str, said: str) -> AuthFailed | None:
    if not _EXPIRED.search(said):
        return None
    return AuthFailed(
        f"{name} ended the login: the account or its password has expired",
        evidence=said.strip(),
        do="Renew a password by one login in a terminal (ssh -t). Ask the host's administrator to renew an account.",
    )
