"""The quota of this user on a file system."""

from __future__ import annotations

import errno
import os
import shutil
import struct

_GET_QUOTA = 0x800007 << 8  # QCMD(Q_GETQUOTA, USRQUOTA)
_QUOTACTL_FD = 443
_KILO = 1024
_LAYOUT = struct.Struct("=8QI")


class Quota:
    """Bytes and inodes in use, and their limits. A limit of 0 means none."""

    def __init__(self, used: int, limit: int, nodes: int, max_nodes: int) -> None:
        self.used = used
        self.limit = limit
        self.nodes = nodes
        self.max_nodes = max_nodes

    @property
    def left(self) -> int | None:
        """Bytes that are left; None without a limit."""
        return max(0, self.limit - self.used) if self.limit else None

    @property
    def nodes_left(self) -> int | None:
        return max(0, self.max_nodes - self.nodes) if self.max_nodes else None


def of_path(path: str, device: str) -> Quota | None:
    """Return the quota of this user on the file system of `path`, which is on `device`. Return None when there is no
    quota or it cannot be read here. For networked file systems, see `over_on_network`."""
    try:
        import ctypes

        libc = ctypes.CDLL(None, use_errno=True)
        answer = ctypes.create_string_buffer(128)
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            failed = libc.syscall(_QUOTACTL_FD, fd, _GET_QUOTA, os.getuid(), answer)
        finally:
            os.close(fd)
        if failed and ctypes.get_errno() == errno.ENOSYS:
            failed = libc.quotactl(_GET_QUOTA, os.fsencode(device), os.getuid(), answer)
    except (ImportError, OSError, AttributeError):
        return None
    return None if failed else parse_quota(answer.raw)


def parse_quota(raw: bytes) -> Quota | None:
    """Parse a `struct if_dqblk`. Return None when it has no limit. The lower of the soft and the hard limit counts,
    because writes beyond the soft limit are refused after a grace period."""
    hard, soft, used, hard_nodes, soft_nodes, nodes, _, _, _ = _LAYOUT.unpack_from(raw)
    limit = min([each * _KILO for each in (hard, soft) if each], default=0)
    max_nodes = min([each for each in (hard_nodes, soft_nodes) if each], default=0)
    return Quota(used, limit, nodes, max_nodes) if limit or max_nodes else None


def over_on_network() -> str:
    """Return what the program `quota` prints about networked file systems on which this user is over a limit; "" when
    there are none, the program is missing, or this host has no cage for it. The program asks the file servers, so this
    may take a while."""
    from ..programs import said_by

    program = shutil.which("quota")
    return said_by([program, "-q"], any_status=True, network=True) if program else ""
