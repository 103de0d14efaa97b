"""Find a master connection of the OpenSSH client that is running already: its control socket, and whether it may be
used."""

from __future__ import annotations

import os
import re
import socket
import stat
import struct
from collections.abc import Sequence
from pathlib import Path

from ..ssh_config.host_config import HostConfig
from ..ssh_config.target import SshTarget
from ..wire.dataclass import dataclass

_HASH = re.compile(r"(?<![0-9a-f])[0-9a-f]{40}(?![0-9a-f])")
"""What `%C` in a ControlPath becomes: a hash of this machine, the host, the port and the user."""


@dataclass(frozen=True)
class LiveMaster:
    """The control socket of a master. `problem` says why it is not used, "" if it may be."""

    socket: Path
    problem: str = ""


def find_master(config: HostConfig, target: SshTarget) -> LiveMaster | None:
    """Return the master that the person's ssh_config names for `target`, or None.

    ssh would use any master at ControlPath. ccb uses it only if nobody else can have made it, and if it leads to this
    account: its name says so, or the command line names it for this host.
    """
    path = config.control_path
    if path is None or not os.path.lexists(path):
        return None
    if config.control_asks:
        return LiveMaster(path, "it asks for confirmation (ControlMaster ask)")
    problem = socket_problem(path)
    named = any(option.strip().lower().startswith("controlpath") for option in target.options)
    if not problem and not named and not _names_account(path.name, config, target):
        problem = "its name does not tell user, host and port apart: use %C in ControlPath"
    return LiveMaster(path, problem or peer_problem(path))


def socket_problem(path: Path) -> str:
    """Return why the socket at `path` may belong to somebody else, "" if only this user can have made it."""
    try:
        found, directory = path.lstat(), path.parent.stat()
    except OSError as error:
        return str(error.strerror)
    if not stat.S_ISSOCK(found.st_mode):
        return "it is not a socket"
    if found.st_uid != os.getuid():
        return f"it belongs to user {found.st_uid}"
    if directory.st_uid not in (os.getuid(), 0) or stat.S_IMODE(directory.st_mode) & 0o022:
        return f"other users may write to {path.parent}"
    return ""


def peer_problem(path: Path) -> str:
    """Return why no process of this user answers at the socket, "" if one accepts connections."""
    with socket.socket(socket.AF_UNIX) as probe:
        probe.setblocking(False)
        try:
            probe.connect(str(path))
        except OSError as error:
            return f"no process listens on it ({error.strerror})"
        if hasattr(socket, "SO_PEERCRED"):
            _, uid, _ = struct.unpack("3i", probe.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
            if uid != os.getuid():
                return f"a process of user {uid} listens on it"
    return ""


def _names_account(name: str, config: HostConfig, target: SshTarget) -> bool:
    """Return whether the name of a socket holds the user, the host and the port, each in a place of its own."""
    if _HASH.search(name):
        return True
    hosts = sorted({config.hostname, target.host}, key=len, reverse=True)
    for choices in (hosts, [config.user], [str(config.port)]):
        found = next((each for each in choices if each.lower() in name.lower()), None)
        if found is None:
            return False
        at = name.lower().index(found.lower())
        name = f"{name[:at]}\0{name[at + len(found) :]}"
    return True


def client_words(ssh: str, socket: Path, host: str, *, send_env: Sequence[str] = ()) -> list[str]:
    """Return the words that run a command over the master at `socket`; the command line follows.

    No configuration is read, and no login is possible: if the master is gone, the way to the host is `false`.
    """
    sending = ["-o", f"SendEnv={' '.join(send_env)}"] if send_env else []
    return [
        ssh, "-F", "none", "-S", str(socket).replace("%", "%%"), "-o", "ControlMaster=no", "-o", "ProxyCommand=false",
        "-o", "BatchMode=yes", "-o", "LogLevel=ERROR", "-o", "ClearAllForwardings=yes", "-a", "-x", *sending, "-T",
        "--", host,
    ]  # fmt: skip
