"""Clocks that jump for some processes only: on the laptop by a `sitecustomize` on PYTHONPATH, on the host by a
`python3` in front of PATH, Python's own are shifted."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from tests.support.hosts.sshd import HostUser
from tests.support.machine.programs import shell_script

_SHIFT = """
import time
def _shift(time, path):
    wall, clock = time.time, time.clock_gettime
    def offset():
        try:
            with open(path) as file:
                return float(file.read() or 0)
        except OSError:
            return 0.0
    time.time = lambda: wall() + offset()
    time.clock_gettime = lambda which: clock(which) + (
        offset() if which in (time.CLOCK_REALTIME, time.CLOCK_BOOTTIME) else 0.0)
_shift(time, {path!r})
"""
_RUN = """
import sys
_given = sys.argv[sys.argv.index("-c", 1) + 1:]
_code, sys.argv = _given[0], ["-c", *_given[1:]]
exec(compile(_code, "<string>", "exec"), {"__name__": "__main__"})
"""


@dataclass(frozen=True)
class Clocks:
    directory: Path
    pythonpath: str

    def jump(self, seconds: float) -> None:
        temporary = self.directory / "offset.new"
        temporary.write_text(str(seconds))
        temporary.chmod(0o644)
        temporary.rename(self.directory / "offset")


def jumping_clocks(directory: Path, user: HostUser) -> Clocks:
    """Clocks for a laptop and for the logins of `user`, whose shell is bash; they are right until they jump."""
    place = directory / "clocks"
    place.mkdir()
    place.chmod(0o755)
    shift = _SHIFT.format(path=str(place / "offset"))
    (place / "sitecustomize.py").write_text(shift)
    (place / "shifted.py").write_text(shift + _RUN)
    (place / "bin").mkdir(mode=0o755)
    python = shutil.which("python3", path="/usr/local/bin:/usr/bin:/bin")
    read = f"exec(open('{place}/shifted.py').read())"
    shell_script(place / "bin" / "python3", f'exec {python} -I -S -u -c "{read}" "$@"')
    (user.home / ".bashrc").write_text(f"export PATH={place}/bin:$PATH\n")
    (user.home / ".profile").write_text(". ~/.bashrc\n")
    return Clocks(place, str(place) + os.pathsep)
