"""Namespaces: a view of the file system in which only what the cage allows can be written.

This module runs in the zygote.
"""

from __future__ import annotations

import errno

from .syscalls import Kernel

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .cage import Request


def enter(kernel: Kernel, request: Request) -> None:
    """Move this process into namespaces of its own. Raise OSError."""
    raise OSError(errno.ENOSYS, "not there yet", "namespaces")
