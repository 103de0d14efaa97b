"""The processes below one. Supervisors and keepers are programs of their own, so importing this takes no time."""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable


def descendants(top: int) -> list[int]:
    """Return the processes below this one; none where there is no /proc."""
    try:
        below = _Children() if os.path.exists(f"/proc/self/task/{os.getpid()}/children") else _all_parents()
    except OSError:
        return []
    found = [top]
    for pid in found:
        found += below.get(pid, ())
    return found[1:]


def send(pids: Iterable[int], number: int) -> None:
    for pid in pids:
        try:
            os.kill(pid, number)
        except OSError:
            pass  # it has ended, or belongs to another user, as after sudo


def group_lives(group: int) -> bool:
    """Return whether a process group has members, which may be zombies."""
    try:
        os.killpg(group, 0)
    except PermissionError:
        return True
    except OSError:
        return False
    return True


class _Children:
    """The children of processes, as the kernel tells them: without a look at any other process."""

    def get(self, pid: int, default: tuple[int, ...]) -> list[int]:
        found: list[int] = []
        try:
            for task in os.listdir(f"/proc/{pid}/task"):
                with open(f"/proc/{pid}/task/{task}/children", "rb", 0) as file:
                    found += map(int, file.readall().split())
        except OSError:
            pass  # it has ended
        return found


def _all_parents() -> dict[int, list[int]]:
    below: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", "rb", 0) as file:
                    fields = file.read(1024).rpartition(b")")[2].split(None, 2)
                below.setdefault(int(fields[1]), []).append(int(name))
            except (OSError, IndexError, ValueError):
                pass  # it has ended
    return below
