"""Runs ripgrep and grep without the module `subprocess`, whose import would take as long as that of everything else
here."""

from __future__ import annotations

import os
import select
import time

TYPE_CHECKING = False
if TYPE_CHECKING:  # each import is felt where each search starts the program anew
    from typing import Any, Callable

_SIGKILL = 9  # `signal` imports much
_MEMORY = 1 << 30
_COMPUTING_S = 300  # of all threads together
_SOON_S = 1.0


def limit() -> None:
    """Limit what this process, and each that it starts, may take: a line of 2 GB costs a search several times that."""
    import resource

    for kind, most in ((resource.RLIMIT_DATA, _MEMORY), (resource.RLIMIT_CPU, _COMPUTING_S)):
        try:
            _, hard = resource.getrlimit(kind)
            most = most if hard == resource.RLIM_INFINITY else min(most, hard)
            resource.setrlimit(kind, (most, most))
        except (OSError, ValueError):
            pass  # a system that does not know it


class Running:
    """A command that runs in `root`, in the locale C. If it is `quiet`, its stdout is dropped. OSError is raised if it
    cannot be started."""

    def __init__(self, root: str, command: list[str], quiet: bool = False) -> None:
        self.what = root, command
        (self._out, out_end), (self._err, err_end) = os.pipe(), os.pipe()
        stdout: Any = (os.POSIX_SPAWN_DUP2, out_end, 1)
        if quiet:
            stdout = (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)
        stdin: Any = (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0)
        streams = [stdin, (os.POSIX_SPAWN_DUP2, err_end, 2), stdout]
        back = os.getcwd()
        try:
            os.chdir(root)
            self._pid = os.posix_spawn(command[0], command, {**os.environ, "LC_ALL": "C"}, file_actions=streams)
        finally:
            os.chdir(back)
            os.close(out_end)
            os.close(err_end)

    def end(self, seconds: float, is_stuck: Callable[[], bool] | None = None) -> tuple[bytes, bytes, int | None]:
        """Wait. Return the command's stdout, its stderr, and its exit code: None if it was killed, because its time was
        over, or because it had printed nothing: for a second if `is_stuck` says so, or for half of its time."""
        now = time.monotonic()
        until, silent_until = now + seconds, now + (min(_SOON_S, seconds / 2) if is_stuck else seconds)
        with open(self._out, "rb", 0) as found, open(self._err, "rb", 0) as told:
            texts, waiting = {found: bytearray(), told: bytearray()}, [found, told]
            while waiting:
                left = (until if texts[found] else min(until, silent_until)) - time.monotonic()
                ready = select.select(waiting, [], [], max(0, left))[0]
                if not ready:
                    asked, is_stuck = is_stuck, None
                    if asked is not None and not texts[found] and not asked():
                        silent_until = now + seconds / 2
                        continue
                    os.kill(self._pid, _SIGKILL)
                    break
                for pipe in ready:
                    piece = pipe.read(1 << 16)
                    texts[pipe] += piece
                    if not piece:
                        waiting.remove(pipe)
        code = os.waitstatus_to_exitcode(os.waitpid(self._pid, 0)[1])
        return bytes(texts[found]), bytes(texts[told]), None if waiting else code


_ahead: list[Running] = []


def start_ahead(root: str, command: list[str]) -> None:
    """Start the command that the search will need first, while the rest of the program is still being loaded."""
    limit()
    try:
        _ahead.append(Running(root, command))
    except OSError:
        pass  # the search finds out when it starts the command itself


def running(root: str, command: list[str]) -> Running:
    """Return the command that was started ahead if it is this one; start it otherwise. Raise OSError."""
    ahead = _ahead.pop() if _ahead and _ahead[0].what == (root, command) else None
    return ahead or Running(root, command)
