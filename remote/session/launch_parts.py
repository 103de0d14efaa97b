"""What becomes of a client's command line on this host: its own files, its directories, the cage that it asks for."""

from __future__ import annotations

import os
from collections.abc import Sequence

from ccb.tunnel.wire import SessionOptions

from ..permissions.sandbox_mode import Sandbox, SandboxError
from ..sessions.refusal import HostRefusal


def with_own_files(options: SessionOptions, directory: str) -> SessionOptions:
    """Return options whose own files are in the session's `directory`."""
    if not options.own_files:
        return options
    from ..commands.own_files import written  # few people have any

    return written(options, directory)


def check_sandbox(sandbox: Sandbox, directories: Sequence[str]) -> None:
    """Raise HostRefusal if this host cannot make the cage of a sandbox mode that a client asks for."""
    try:
        sandbox.check(directories)
    except SandboxError as error:
        raise HostRefusal("no_sandbox", str(error), {"why": error.why, "place": error.about_place}) from None


def added_directories(cwd: str, options: SessionOptions) -> list[str]:
    """Return the absolute paths of `options.add_dirs`."""
    return [os.path.normpath(os.path.join(cwd, os.path.expanduser(each))) for each in options.add_dirs]
