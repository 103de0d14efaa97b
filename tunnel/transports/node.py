"""A node behind the one that a login has reached: the commands of another transport, run there by the site's way."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ..errors import CcbError, ConfigError, Node
from .command_transport import COMMAND, shell_argv, words_of
from .container import quoted_script
from .login_failures import command_failure, ssh_failure
from .pipe import Pipe, Transport

_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,251}[A-Za-z0-9])?", re.ASCII)
_JOB = re.compile(r"[0-9]{1,18}", re.ASCII)
_UNQUOTABLE = re.compile(r"['\\\x00-\x1f]")
_SSH = ("ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10", "-o", "ServerAliveInterval=15")
_SRUN = ("srun", "--overlap", "--unbuffered", "--nodes=1", "--ntasks=1", "--jobid", "{job}", "--nodelist", "{node}")
NODE, JOB = "{node}", "{job}"


def node_words(node: Node, command: str) -> tuple[str, ...]:
    """Return the words that lead to a node, with `{command}` for the line that runs there: those of the setting
    `command`, else srun into its job, else ssh. The node is one word or a part of one. Raise ConfigError."""
    if not _NAME.fullmatch(node.name):
        raise ConfigError(f"{node.name[:80]!r} is no name of a node", do="Ask the host's administrator: `hostname`.")
    words = words_of(command, "nodeCommand") if command else _SRUN if node.job else (*_SSH, NODE)
    if any(_UNQUOTABLE.search(word) for word in words):
        raise ConfigError("nodeCommand cannot be passed on: it has ' or \\", do="Put it into a script on the host.")
    if any(JOB in word for word in words) and not _JOB.fullmatch(node.job):
        raise ConfigError(f"the session on {node.name} is in no job", do="Write nodeCommand with {node} only.")
    return tuple(shell_argv([word.replace(NODE, node.name).replace(JOB, node.job) for word in words], COMMAND))


def node_line(words: Sequence[str], line: str) -> str:
    """Return the line for a login shell that runs `line` by `words`. Both have the form `exec /bin/sh -c '…'`; `$Q` is
    the quote that cannot stand in there. srun would take the runtime directory of this node along. Raise ValueError if
    that is impossible."""
    inner = f"exec /bin/sh -c ${{Q}}{quoted_script(line)[1:-1]}${{Q}}"
    quoted = (re.sub(r'(["$`])', r"\\\1", word).replace(COMMAND, inner) for word in words)
    run = " ".join(f'"{each}"' for each in quoted)
    return f"exec /bin/sh -c 'unset XDG_RUNTIME_DIR; Q=$(printf \"\\047\"); exec {run}'"


class NodeTransport(Transport):
    """Runs commands on a node. It has nothing to close: others use `login`, too."""

    def __init__(self, login: Transport, node: Node, words: Sequence[str]) -> None:
        self.name = f"{node.name} (over {login.name})"
        self._login, self._words = login, words

    async def execute(self, command: str) -> Pipe:
        return await self._login.execute(node_line(self._words, command))

    def failure(self, status: int | None, said: str) -> CcbError | None:
        shown = " ".join(word for word in self._words if word != COMMAND)
        if self._words[0].rpartition("/")[2] == "ssh" and (error := ssh_failure(self.name, status, said, shown)):
            return error
        return command_failure(self.name, shown, status, said)

    @property
    def alive(self) -> bool:
        return self._login.alive

    @property
    def warm(self) -> bool:
        return self._login.warm

    def abort(self) -> None:
        pass

    async def close(self) -> None:
        pass
