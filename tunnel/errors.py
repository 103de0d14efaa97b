"""The errors that the laptop shows to the person."""

from __future__ import annotations

from enum import IntEnum

from .plain_text import neutralise, one_line
from .wire.dataclass import dataclass


class ExitCode(IntEnum):
    """What each means says docs/reference/exit-codes.md."""

    OK = 0
    AGENT_FAILED = 1
    USAGE = 2
    PERMISSION_DENIED = 3
    LIMIT_REACHED = 4
    NO_SUCH_PATH = 66
    UNREACHABLE = 69
    INTERNAL = 70
    NO_PYTHON = 72
    NO_STORAGE = 73
    LINK_LOST = 75
    PROTOCOL = 76
    AUTH_FAILED = 77
    CONFIG = 78
    HOST_KEY = 79
    HANGUP = 129
    INTERRUPTED = 130
    TERMINATED = 143


class CcbError(Exception):
    """`what` happened, the `evidence`, one thing to `do` (or `way_out`), neutralised; and the name of an `ExitCode`."""

    exit_name = "INTERNAL"
    way_out = "Run again with --debug and report it."

    def __init__(self, what: str, *, evidence: str = "", do: str = "") -> None:
        self.what = one_line(what)
        super().__init__(self.what)
        self.evidence = neutralise(evidence)
        self.do = one_line(do) or self.way_out

    @property
    def exit_code(self) -> ExitCode:
        return ExitCode[self.exit_name]

    def __str__(self) -> str:
        return "\n".join(part for part in (self.what, self.evidence, self.do) if part)


class UsageError(CcbError):
    """A flag or target is not valid."""

    exit_name = "USAGE"
    way_out = "See `ccb help`."


class WaitsForAnswer(UsageError):
    """The session waits for an answer, and this run cannot give one."""

    exit_name = "PERMISSION_DENIED"


@dataclass(frozen=True)
class Node:
    """A machine of a shared home that owns a session, by the word of another one. `job` is that of a cluster."""

    name: str
    boot: str
    job: str = ""


class KeptElsewhere(CcbError):
    """The session lives on another host that shares this home. `node` is None for a container of the same machine."""

    exit_name = "USAGE"
    node: Node | None = None


class NoSuchSession(CcbError):
    """The host has no such session, or several that match."""

    exit_name = "AGENT_FAILED"


class SessionStopped(CcbError):
    """Somebody has stopped the session; only a person starts it again."""

    exit_name = "LINK_LOST"


class ConfigError(CcbError):
    """Settings, ssh_config or an environment variable cannot be used."""

    exit_name = "CONFIG"


class PolicyRefused(ConfigError):
    """The owner of this machine does not allow it."""


class ConnectError(CcbError):
    exit_name = "UNREACHABLE"


class Unreachable(ConnectError):
    """Unknown name, closed port, time-out, refused channel."""


class Dropped(Unreachable):
    """The connection broke off before the session was attached."""


class AuthFailed(ConnectError):
    exit_name = "AUTH_FAILED"


class HostKeyError(ConnectError):
    """A host key is unknown in a headless run, or has changed."""

    exit_name = "HOST_KEY"


class NodeGone(ConnectError):
    """There is no way to the node on which the session runs."""


class DeployError(CcbError):
    """The worker could not be started."""

    exit_name = "PROTOCOL"


class NoPython(DeployError):
    exit_name = "NO_PYTHON"


class NoStorage(DeployError):
    exit_name = "NO_STORAGE"


class NoSuchPath(DeployError):
    exit_name = "NO_SUCH_PATH"


class CopyFailed(CcbError):
    """A file or folder could not be copied to the other machine."""

    exit_name = "AGENT_FAILED"


class ConnectionLost(CcbError):
    exit_name = "LINK_LOST"
    way_out = "Connect again."


class EventsLost(ConnectionLost):
    """The link was lost, and with it events of the session."""


class ProtocolError(CcbError):
    """Bytes break the rules of the link, or are of another version."""

    exit_name = "PROTOCOL"


class CredentialError(CcbError):
    """There is no model credential, or the provider refuses it."""

    exit_name = "AUTH_FAILED"


class NoCredential(CredentialError):
    """No credential of a provider is set or stored: the person may give one."""
