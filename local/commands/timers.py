"""Timers of this machine's own scheduler: user timers of systemd, agents of launchd, lines of a crontab.

What a timer runs is a script of ccb, so a scheduler gets no word of the person but the time, and the path of the
script is the mark of what ccb wrote. All methods may raise UsageError or OSError."""

from __future__ import annotations

import itertools
import os
import plistlib
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from ccb.tunnel.errors import UsageError

from ..config.settings_file import replace_file

_ASKS_S = 30.0
_CRON_TIMES = re.compile(r"@[a-z]+|(?:[\w*,/~-]+\s+){4}[\w*,/~-]+", re.ASCII)
"""Without more words, which would be a command, and without what makes the line a comment or an assignment."""
_CRON_FIELDS = (("Minute", 0, 59), ("Hour", 0, 23), ("Day", 1, 31), ("Month", 1, 12), ("Weekday", 0, 7))


def _program(*words: str, given: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(words, input=given, capture_output=True, text=True, timeout=_ASKS_S, check=False)


def _done(*words: str, given: str = "", nothing: str = "\n") -> str:
    """Run a program of the scheduler and return its output, "" if its error begins with `nothing`. Raise UsageError."""
    ran = _program(*words, given=given)
    if ran.returncode and not ran.stderr.startswith(nothing):
        do = "Correct --on." if words[-1] == "-" or "calendar" in words else "Run it by hand to see what is wrong."
        raise UsageError(f"{' '.join(words)} failed", evidence=ran.stderr or ran.stdout, do=do)
    return "" if ran.returncode else ran.stdout


def _alone(script: Path) -> Sequence[str]:
    """Return the command that runs a script with as few variables as cron and launchd give it."""
    return ["env", "-i", f"HOME={Path.home()}", "PATH=/usr/bin:/bin", "/bin/sh", str(script)]


@dataclass(frozen=True)
class Timer:
    """A timer of a scheduler that reads `files`, what begins and ends it there, and the command that runs it now."""

    files: Mapping[Path, bytes]
    begin: Callable[[], object]
    end: Callable[[], object]
    start: Sequence[str]

    def add(self) -> None:
        for path in self.files:
            if path.exists():  # what ccb wrote was removed with its script
                do = "Choose another name, or move that file."
                raise UsageError(f"{path} is there, and ccb did not write it", do=do)
        try:
            for path, content in self.files.items():
                replace_file(path, content)
            self.begin()
        except UsageError:
            self._unlink()
            raise

    def remove(self) -> None:
        self.end()
        self._unlink()

    def _unlink(self) -> None:
        for path in self.files:
            path.unlink(missing_ok=True)


def systemd_timer(directory: Path, script: Path, on: str) -> Timer:
    service, timer = (directory / f"ccb-{script.stem}.{kind}" for kind in ("service", "timer"))
    unit = f"# Written by `ccb schedule`.\n[Unit]\nDescription=ccb schedule {script.stem}\n\n"
    quoted = re.sub(r'([\\"])', r"\\\1", str(script)).replace("%", "%%").replace("$", "$$")
    runs = f'{unit}[Service]\nType=oneshot\nExecStart=/bin/sh "{quoted}"\n'
    times = f"{unit}[Timer]\nOnCalendar={on}\nPersistent=true\n\n[Install]\nWantedBy=timers.target\n"
    control = "systemctl", "--user"

    def begin() -> None:
        _done("systemd-analyze", "calendar", on)
        _done(*control, "daemon-reload")
        _done(*control, "enable", "--now", timer.name)

    end = partial(_program, *control, "disable", "--now", timer.name)  # one that does not run is fine
    return Timer({service: runs.encode(), timer: times.encode()}, begin, end, (*control, "start", service.name))


def launchd_agent(directory: Path, script: Path, on: str) -> Timer:
    label, domain = f"ccb.{script.stem}", f"gui/{os.getuid()}"
    path, program = directory / f"{label}.plist", ["/bin/sh", str(script)]
    times = _calendar_intervals(on) if on else []
    agent = plistlib.dumps({"Label": label, "ProgramArguments": program, "StartCalendarInterval": times})
    begin = partial(_done, "launchctl", "bootstrap", domain, str(path))
    return Timer({path: agent}, begin, partial(_program, "launchctl", "bootout", f"{domain}/{label}"), _alone(script))


def _calendar_intervals(on: str) -> list[dict[str, int]]:
    """Return the times of five fields as of a crontab, in launchd's words. Raise UsageError."""
    choices: list[list[dict[str, int]]] = []
    try:
        for text, (name, first, last) in zip(on.split(), _CRON_FIELDS, strict=True):
            values: set[int] = set()
            for part in text.split(",") if text != "*" else ():
                low, _, high = part.partition("-")
                values |= {*range(int(low), int(high or low) + 1)}
            if not all(first <= each <= last for each in values) or (text != "*" and not values):
                raise ValueError(text)
            choices.append([{name: each} for each in sorted(values)] or [{}])
    except ValueError:
        do = "Write minute, hour, day, month and weekday: '30 6 * * 1-5'. Each is *, numbers, or ranges of them."
        raise UsageError(f"{on!r} is no time for launchd", do=do) from None
    return [dict(pair for each in chosen for pair in each.items()) for chosen in itertools.product(*choices)]


def cron_line(script: Path, on: str) -> Timer:
    command = f" /bin/sh {shlex.quote(str(script))} # ccb schedule\n".replace("%", "\\%")

    def begin() -> None:
        if not _CRON_TIMES.fullmatch(on):
            raise UsageError(f"{on!r} is no time for cron", do="Write five fields, such as '30 6 * * 1-5', or @daily.")
        write(f"{on}{command}")

    def write(*own: str) -> None:
        lines = _done("crontab", "-l", nothing="no crontab").splitlines(keepends=True)
        _done("crontab", "-", given="".join([*(each for each in lines if not each.endswith(command)), *own]))

    return Timer({}, begin, write, _alone(script))


Scheduler = Callable[[Path, str], Timer]
"""Makes the timer of a script; the text says when it runs, and is needed to add it."""


def scheduler_here(environ: Mapping[str, str]) -> Scheduler:
    """Return the scheduler of this machine. Raise UsageError if there is none."""
    home = Path(environ.get("HOME") or Path.home())
    if sys.platform == "darwin":
        return partial(launchd_agent, home / "Library" / "LaunchAgents")
    if shutil.which("systemctl") and _program("systemctl", "--user", "show-environment").returncode == 0:
        return partial(systemd_timer, Path(environ.get("XDG_CONFIG_HOME") or home / ".config") / "systemd" / "user")
    if shutil.which("crontab"):
        return cron_line
    raise UsageError(
        "this machine has no scheduler that ccb can use",
        evidence="systemd does not run timers of users here, and there is no cron.",
        do="Install cron, or run the command from a scheduler of your own.",
    )
