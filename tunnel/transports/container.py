"""A container on a host: the commands of another transport, run in the container by docker or podman of that host."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ..errors import CcbError, DeployError, UsageError
from .login_failures import command_failure
from .pipe import Pipe, Transport

_NAME = re.compile(r"([A-Za-z0-9_][A-Za-z0-9_.-]{0,63}@)?[A-Za-z0-9][A-Za-z0-9_.-]{0,250}")
_SEALED = re.compile(r"exec /bin/sh -c '([^'\n]*)'")
_UNSAFE = re.compile(r'\\(["$`\\]|$)')  # needs a doubled backslash, which fish reads as a single one
_NO_ENGINE = 93


def container_name(text: str) -> str:
    """Check `[USER@]NAME`. Raise UsageError."""
    if not _NAME.fullmatch(text):
        raise UsageError(
            f"{text[:80]!r} is not a name of a container", do="`docker ps` on the host lists them: --container NAME."
        )
    return text


def container_command(container: str, command: str, env: Sequence[str] = ()) -> str:
    """Return the line for the host's login shell that runs `command` in `[USER@]NAME`. Both have the form `exec /bin/sh
    -c '…'`, which every login shell reads alike; the script stands in double quotes inside, and so does each NAME=VALUE
    of `env`, which has no `'` and what sh is to expand. Raise ValueError if that is impossible."""
    script = quoted_script(command)
    _, _, name = container.rpartition("@")
    variables = "".join(f'-e "{each}" ' for each in env)
    return (
        "exec /bin/sh -c 'if test -t 0; then stty raw -echo || exit 94; fi; "
        "PATH=$PATH:/usr/local/bin:/usr/bin:/bin; E=; "
        "for D in docker podman; do command -v $D >/dev/null 2>&1 || continue; E=${E:-$D}; "
        f"$D container inspect {name} </dev/null >/dev/null 2>&1 && E=$D && break; done; "
        f'test "$E" || exit {_NO_ENGINE}; exec $E exec {variables}{_exec_words(container)} sh -c {script}\''
    )


def quoted_script(command: str) -> str:
    """Return the script of a line `exec /bin/sh -c '…'` as a word in double quotes, for a line of the same form. Raise
    ValueError if it cannot be passed on unchanged."""
    sealed = _SEALED.fullmatch(command)
    if sealed is None or _UNSAFE.search(sealed[1]):
        raise ValueError("this line cannot be passed on unchanged")
    script = re.sub(r'(["$`])', r"\\\1", sealed[1])
    return f'"{script}"'


def _exec_words(container: str) -> str:
    user, _, name = container.rpartition("@")
    return f"-i -u {user} {name}" if user else f"-i {name}"


class ContainerTransport(Transport):
    """Runs commands in the container `[USER@]NAME` on the machine behind `host`. Closing it closes `host`."""

    def __init__(self, host: Transport, container: str, env: Sequence[str] = ()) -> None:
        self.name = f"{container} on {host.name}"
        self._host = host
        self._container = container
        self._env = env

    async def execute(self, command: str) -> Pipe:
        return await self._host.execute(container_command(self._container, command, self._env))

    def failure(self, status: int | None, said: str) -> CcbError | None:
        if status == _NO_ENGINE:
            return DeployError(
                f"{self._host.name} has neither docker nor podman on its PATH",
                evidence=said,
                do="Install one of them there, or leave out --container.",
            )
        shown = f"docker exec {_exec_words(self._container)} sh  (on {self._host.name})"
        return command_failure(f"the container {self.name}", shown, status, said)

    @property
    def on_trial(self) -> bool:
        return self._host.on_trial

    async def logged_in(self) -> None:
        await self._host.logged_in()

    @property
    def alive(self) -> bool:
        return self._host.alive

    @property
    def warm(self) -> bool:
        return self._host.warm

    def abort(self) -> None:
        self._host.abort()

    async def close(self) -> None:
        await self._host.close()
