"""What runs, looked at while it may end."""

from __future__ import annotations

import contextlib
import os
import pwd
import re
import time
from collections.abc import Callable, Iterator
from itertools import groupby
from mmap import PAGESIZE
from pathlib import Path

import psutil
from tests.support.hosts.sshd import HostUser


def name_of(process: psutil.Process) -> str:
    try:
        return process.name()
    except psutil.NoSuchProcess:
        return ""


def _all_that(fits: Callable[[psutil.Process], bool]) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if fits(process):
                found.append(process)
    return found


def commands_with(word: str) -> list[psutil.Process]:
    return _all_that(lambda process: word in " ".join(process.cmdline()))


def processes_of(user: HostUser) -> list[psutil.Process]:
    uid = pwd.getpwnam(user.name).pw_uid
    return _all_that(lambda process: process.uids().real == uid and process.status() != psutil.STATUS_ZOMBIE)


def with_home(home: Path) -> list[psutil.Process]:
    return _all_that(lambda process: process.environ().get("HOME") == os.fspath(home))


def left_with_home(home: Path, seconds: float = 30) -> list[str]:
    """What still runs with this home after `seconds` in which it could end."""
    end = time.monotonic() + seconds
    while (found := with_home(home)) and time.monotonic() < end:
        psutil.wait_procs(found, timeout=0.05)
    return [f"{process.pid} {name_of(process)}" for process in found]


def memory_of(pid: int) -> bytes:
    """The private writable memory of a process; nothing when it has just ended."""
    found = []
    try:
        maps = Path(f"/proc/{pid}/maps").read_text(encoding="utf-8", errors="replace").splitlines()
        directory = Path(f"/proc/{pid}")
        with (directory / "pagemap").open("rb") as pages, (directory / "mem").open("rb", buffering=0) as memory:
            for line in maps:
                span, mode = line.split()[:2]
                if mode.startswith("rw"):
                    first, last = (int(part, 16) // PAGESIZE for part in span.split("-"))
                    with contextlib.suppress(OSError, OverflowError, ValueError):
                        pages.seek(first * 8)
                        for start, count in _filled(pages.read((last - first) * 8)):
                            memory.seek((first + start) * PAGESIZE)
                            found.append(memory.read(count * PAGESIZE))
    except (FileNotFoundError, ProcessLookupError):
        return b""
    return b"".join(found)


def _filled(pagemap: bytes) -> Iterator[tuple[int, int]]:
    """First page and length of each run of pages that are in memory or swapped out. Some programs reserve gigabytes."""
    place = 0
    for is_filled, run in groupby(memoryview(pagemap).cast("Q"), lambda page: page >> 62 != 0):
        count = sum(1 for _ in run)
        if is_filled:
            yield place, count
        place += count


def peak_mb(pid: int) -> float:
    """The most memory that a process has had, 0 if it has ended. What it frees may stay with it or not."""
    try:
        found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text(encoding="utf-8"))
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    return int(found[1]) / 1024 if found is not None else 0.0
