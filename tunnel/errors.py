"""The errors that the laptop shows to the person.

CcbError                     what happened, the evidence, one thing to do, an exit code
├── UsageError               a flag or target that is not valid
│   └── WaitsForAnswer       the session waits for an answer, and this run cannot give one
├── KeptElsewhere            the session lives on another host that shares this home
├── NoSuchSession            the host has no such session, or several that match
├── SessionStopped           somebody has stopped the session; only a person starts it again
├── ConfigError              settings, ssh_config or an environment variable cannot be used
├── ConnectError             no connection to the host
│   ├── Unreachable          unknown name, closed port, time-out, refused channel
│   │   └── Dropped          the connection broke off before the session was attached
│   ├── AuthFailed           SSH authentication refused
│   └── HostKeyError         unknown in headless, or changed
├── DeployError              the worker could not be started
│   ├── NoPython
│   ├── NoStorage
│   └── NoSuchPath
├── CopyFailed               a file or folder could not be copied to the other machine
├── ConnectionLost           the link was lost
│   └── EventsLost           and with it events of the session
├── ProtocolError            bytes that break the rules of the link, another version
└── CredentialError          no model credential, or refused by the provider
"""

from __future__ import annotations

from .plain_text import neutralise, one_line


class CcbError(Exception):
    """`what` happened, the `evidence` (perhaps several lines), and the one thing to `do`: one line each but for the
    evidence, and neutralised, whatever they are made of.

    `exit_name` is the name of a member of `ccb.local.command_line.exit_codes.ExitCode`. `way_out` is what to do if
    nothing better is known.
    """

    exit_name = "INTERNAL"
    way_out = "Run again with --debug and report it."

    def __init__(self, what: str, *, evidence: str = "", do: str = "") -> None:
        self.what = one_line(what)
        super().__init__(self.what)
        self.evidence = neutralise(evidence)
        self.do = one_line(do) or self.way_out

    def __str__(self) -> str:
        return "\n".join(part for part in (self.what, self.evidence, self.do) if part)


class UsageError(CcbError):
    exit_name = "USAGE"
    way_out = "See `ccb help`."


class WaitsForAnswer(UsageError):
    exit_name = "PERMISSION_DENIED"


class KeptElsewhere(CcbError):
    exit_name = "USAGE"


class NoSuchSession(CcbError):
    exit_name = "AGENT_FAILED"


class SessionStopped(CcbError):
    exit_name = "LINK_LOST"


class ConfigError(CcbError):
    exit_name = "CONFIG"


class ConnectError(CcbError):
    exit_name = "UNREACHABLE"


class Unreachable(ConnectError):
    exit_name = "UNREACHABLE"


class Dropped(Unreachable):
    exit_name = "UNREACHABLE"


class AuthFailed(ConnectError):
    exit_name = "AUTH_FAILED"


class HostKeyError(ConnectError):
    exit_name = "HOST_KEY"


class DeployError(CcbError):
    exit_name = "PROTOCOL"


class NoPython(DeployError):
    exit_name = "NO_PYTHON"


class NoStorage(DeployError):
    exit_name = "NO_STORAGE"


class NoSuchPath(DeployError):
    exit_name = "NO_SUCH_PATH"


class CopyFailed(CcbError):
    exit_name = "AGENT_FAILED"


class ConnectionLost(CcbError):
    exit_name = "LINK_LOST"
    way_out = "Connect again."


class EventsLost(ConnectionLost):
    exit_name = "LINK_LOST"


class ProtocolError(CcbError):
    exit_name = "PROTOCOL"


class CredentialError(CcbError):
    exit_name = "AUTH_FAILED"
