"""A throwaway home in which lines run: canary programs, a secret outside, sockets that wait for connections, and a
snapshot that shows what was written."""

from __future__ import annotations

import contextlib
import os
import secrets
import select
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tests.remote.permissions.corpus.rows import make_project
from tests.remote.sandbox.hostile_world import snapshot
from tests.support.machine.programs import shell_script

from ccb.remote.sandbox.cage_rules import read_only_rules
from ccb.remote.sandbox.cage_server import CageServer
from ccb.remote.system.process import child_environment

SHELLS = tuple(path for path in map(shutil.which, ("bash", "dash")) if path)
_NOBODY = 65534
_LINE_S = 5.0
_AT_ONCE = 3
_PROGRAMS = ("run", "ls", "cat", "git", "head", "10/ls", "10/cat", "0/ls", "src/ls", "sub/ls", "touch", "grep")
_REFRESHED = ("/project/.git", "/project/.git/index")  # `git diff` writes anew when it last looked at which file
_SCRIPT = "trap 'pwd -P >/dev/null 2>/dev/null' EXIT; eval \"set --;$1\""  # as the Bash tool starts a line


@dataclass(frozen=True)
class Trouble:
    """What lines have done that they must not do."""

    what: str
    lines: tuple[str, ...]


class Ground:
    """The place. `close` removes it. With a cage, lines run in the cage that only reads, else as another user if this
    one is root."""

    def __init__(self, cages: CageServer | None = None, shells: Sequence[str] = SHELLS) -> None:
        self._cages = cages
        self._shells = shells
        self.mark = f"qz{secrets.token_hex(5)}"  # in the names of files outside, and in their text
        self.secret = f"{self.mark}-text"
        self.top = Path(tempfile.mkdtemp(prefix="ccb-fuzz-", dir="/tmp"))
        self._ends = contextlib.ExitStack()
        self._ends.callback(shutil.rmtree, self.top, ignore_errors=True)
        self.desk = make_project(self.top)
        self._make()
        self._sockets = [self._listening()]
        self._before = self._snapshot()

    def close(self) -> None:
        self._ends.close()

    def _make(self) -> None:
        canary = self.top / "canary"
        canary.mkdir()
        for program in _PROGRAMS:
            (self.desk.cwd / program).parent.mkdir(exist_ok=True)
            shell_script(self.desk.cwd / program, f": > {canary}/ran.$$")
        for place in (self.top / "other", self.desk.home, self.desk.home / ".ssh"):
            (place / self.mark).write_text("")
        for secret in (self.top / "other/c", self.desk.home / ".ssh/id", self.desk.home / "x"):
            secret.write_text(f"{self.secret}\n")
        environ = {"PATH": os.environ["PATH"], "HOME": str(self.desk.home), "GIT_CONFIG_NOSYSTEM": "1"}
        script = "git init -q; git add a.txt src; git -c user.name=a -c user.email=a@b commit -q -m one"
        subprocess.run(["sh", "-ec", script], cwd=self.desk.cwd, env=environ, check=True, capture_output=True)
        self.top.chmod(0o755)
        if os.geteuid() == 0 and self._cages is None:
            for path in (self.top, *self.top.rglob("*")):
                os.chown(path, _NOBODY, _NOBODY, follow_symlinks=False)

    def _listening(self) -> socket.socket:
        listening = self._ends.enter_context(socket.socket(socket.AF_INET))
        listening.bind(("127.0.0.1", 0))
        listening.listen(64)
        return listening

    @property
    def port(self) -> int:
        number: int = self._sockets[0].getsockname()[1]
        return number

    def _snapshot(self) -> dict[str, object]:
        return {path: state for path, state in snapshot(self.top).items() if not path.endswith(_REFRESHED)}

    def environ(self, number: int) -> dict[str, str]:
        """Return the environment of a line; every other one has another locale."""
        own = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(self.desk.home), "GIT_OPTIONAL_LOCKS": "0"}
        return child_environment({**own, "LANG": ("C", "C.UTF-8")[number % 2]})

    def run(self, lines: Sequence[str]) -> Trouble | None:
        """Run each line in each shell. Return what was wrong afterwards, with the line that did it if only one did."""
        trouble = self._run_together(lines)
        if trouble is None or len(lines) == 1:
            return trouble
        for line in lines:  # the first that does it again, in a place of its own
            with contextlib.closing(Ground(self._cages, self._shells)) as ground:
                again = ground.run([line.replace(str(self.top), str(ground.top))])
                if again:
                    return again
        return trouble

    def leaking(self, lines: Sequence[str]) -> str:
        """Run each line in bash, whatever it writes. Return the first that printed the text of a file outside."""
        for number, line in enumerate(lines):
            if self.secret.encode() in self.output(number, SHELLS[0], line):
                return line
        return ""

    def _run_together(self, lines: Sequence[str]) -> Trouble | None:
        jobs = [(number, shell, line) for number, line in enumerate(lines) for shell in self._shells]
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            outputs = list(pool.map(self.output, *zip(*jobs)))
        for (_, _, line), output in zip(jobs, outputs):
            if self.mark.encode() in output:
                return Trouble("read what is outside", (line,))
        what = self._changes()
        return Trouble(what, tuple(lines)) if what else None

    def _changes(self) -> str:
        if os.listdir(self.top / "canary"):
            return "a program of the clone ran"
        after = self._snapshot()
        if after != self._before:
            changed = {path for path in {*after, *self._before} if after.get(path) != self._before.get(path)}
            return f"written: {', '.join(sorted(changed))}"
        if select.select(self._sockets, [], [], 0)[0]:
            return "a connection was made"
        return ""

    def output(self, number: int, shell: str, line: str) -> bytes:
        """Return what a line prints in a shell."""
        argv = [shell, "-c", _SCRIPT, os.path.basename(shell), line]
        if self._cages:
            return self._caged_output(argv, number)
        try:
            done = subprocess.run(
                [*_as_nobody(), *argv], cwd=self.desk.cwd, env=self.environ(number), timeout=_LINE_S, check=False,
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip
        except subprocess.TimeoutExpired as late:
            return late.stdout or b""
        return done.stdout

    def _caged_output(self, argv: Sequence[str], number: int) -> bytes:
        assert self._cages is not None
        environ = self.environ(number)
        rules = read_only_rules([str(self.desk.cwd)], environ, environ["HOME"])
        child = self._cages.start(argv, str(self.desk.cwd), environ, rules)
        data = b"".join(_read(child.stdout.fileno()))
        child.send(signal.SIGKILL)
        child.wait()
        child.finish()
        child.close()
        return data


def _as_nobody() -> list[str]:
    """Return words that run a program as another user if this one is root. (With the argument `user` of `subprocess`,
    Python copies the page tables of the whole test process, which takes longer than the program.)"""
    if os.geteuid() != 0:
        return []
    return ["setpriv", f"--reuid={_NOBODY}", f"--regid={_NOBODY}", "--clear-groups", "--"]


def _read(descriptor: int) -> Iterator[bytes]:
    """Yield what comes out of a pipe until its end, or until a line has had its time."""
    until = time.monotonic() + _LINE_S
    total = 0
    while select.select([descriptor], [], [], max(0, until - time.monotonic()))[0]:
        data = os.read(descriptor, 65536)
        total += len(data)
        if not data or total > 1 << 20 or time.monotonic() > until:
            return
        yield data
