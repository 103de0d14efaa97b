"""The command by which a person reaches a host without ccb."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from .resolve import SshTarget


def ssh_by_hand(target: SshTarget, words: Sequence[str] = ("ssh",), *options: str, command: str = "true") -> str:
    """What runs `command` on `target` with the ssh that `words` start and everything that the command line says of it: without
    the port, or the key, it is another server that answers. `options` are more of ssh's, as -v."""
    argv = [*words, *options]
    for option in target.options:
        argv += ["-o", option]
    for identity in target.identities:
        argv += ["-i", identity]
    if target.port is not None:
        argv += ["-p", str(target.port)]
    return f"{shlex.join([*argv, target.shown])} {command}"
