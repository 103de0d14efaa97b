"""This machine with every file system read-only, in a mount namespace: no file can be made there."""

from __future__ import annotations

import os
from pathlib import Path

from tests.support.machine.programs import shell_script

_SCRIPT = """#!/bin/sh
exec unshare --mount --propagation private sh -c '
mount -t tmpfs tmpfs /media && mkdir /media/python && mount --bind {python} /media/python || exit 1
mount --bind {files} {files} || exit 1
while read -r _ point _; do
    case $point in {files}|/proc|/proc/*|*/dev/pts) ;; *) mount -o remount,bind,ro "$point" 2>/dev/null ;; esac
done < /proc/mounts
exec "$@"' sealed "$@"
"""
_KERNEL = ("proc", "sysfs", "devpts", "cgroup", "cgroup2", "securityfs", "debugfs", "tracefs", "bpf", "binfmt_misc")


def seal(script: Path, files: Path, python: Path) -> list[str]:
    """A command that runs what follows it on such a machine. Only root can write, and only in `files`; `python` (its
    prefix) is the first on the PATH of `environment`."""
    return [str(shell_script(script, _SCRIPT.format(files=files, python=python)))]


ENVIRONMENT = {"PATH": "/media/python/bin:/usr/bin:/bin", "LD_LIBRARY_PATH": "/media/python/lib"}
"""Of logins, so that the `python` of `seal` is the one that is found."""


def writable_mounts(pid: int, files: Path) -> list[str]:
    """Where a file could be made on the machine that process `pid` sees, beside `files`."""
    options_of = {}  # what is mounted last at a place hides the others
    for line in Path(f"/proc/{pid}/mounts").read_text(encoding="utf-8").splitlines():
        _, point, kind, options, *_ = line.split(" ")
        if kind not in _KERNEL and point != str(files) and os.path.ismount(f"/proc/{pid}/root{point}"):
            options_of[point] = options.split(",")
    return [point for point, options in options_of.items() if "rw" in options]
