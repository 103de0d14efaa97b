"""What root can read of a host's user: processes with their arguments, environment and memory, and files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tests.support.hosts.reached_host import Host
from tests.support.hosts.sshd import HostUser
from tests.support.machine.processes import memory_of, processes_of


def processes(user: HostUser) -> list[Path]:
    return [Path("/proc", str(process.pid)) for process in processes_of(user)]


def seen_in(process: Path) -> Iterator[tuple[str, bytes]]:
    """Arguments and environment of a process, which everybody and the user can read."""
    for name in ("cmdline", "environ"):
        try:
            yield f"{process}/{name}", (process / name).read_bytes()
        except (FileNotFoundError, ProcessLookupError):
            return


def files_of(uid: int, *roots: Path) -> list[Path]:
    return [path for root in roots for path in root.rglob("*") if path.lstat().st_uid == uid]


def places_of(host: Host) -> list[Path]:
    """Where a user can have left files. The uids of throwaway users are used again, so what other tests have left in
    /tmp does not count."""
    uid = host.uid
    return [host.home, Path(f"/tmp/ccb-{uid}"), Path("/var/tmp"), Path("/dev/shm"), Path(f"/run/user/{uid}")]


def found_on_host(host: Host, secret: str) -> list[str]:
    """Where a secret is: in arguments, environment and memory of the user's processes, and in files."""
    wanted, found = secret.encode(), []
    for process in processes(host.user):
        found += [where for where, content in seen_in(process) if wanted in content]
        if wanted in memory_of(int(process.name)):
            found.append(f"the memory of {process}")
    temporary = [each for each in Path("/tmp").iterdir() if each.is_dir() and _owner(each) == host.uid]
    for path in files_of(host.uid, *places_of(host), *temporary):
        if path.is_file() and not path.is_symlink() and wanted in path.read_bytes():
            found.append(str(path))
    return found


def _owner(path: Path) -> int:
    try:
        return path.lstat().st_uid
    except FileNotFoundError:
        return -1
