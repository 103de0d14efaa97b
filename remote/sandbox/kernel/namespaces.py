"""Namespaces: a view of the file system in which only what the cage allows is there, or can be written.

With Landlock, a namespace is only needed for the workspace: Landlock cannot except `.git` from a directory that may be
written. Without Landlock, the whole cage for reading stands on it.

This module runs in the zygote. Root needs no user namespace. Others get one, in which they keep their user id.
"""

from __future__ import annotations

import _socket
import fcntl
import os
import struct

from .mounts import Mounts
from .syscalls import PR_SET_DUMPABLE, Kernel

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .cage import CageRequest

_NEWNS, _NEWUSER, _NEWNET = 0x00020000, 0x10000000, 0x40000000
_SIOCSIFFLAGS, _UP_AND_RUNNING = 0x8914, 0x41
_BASES = (b"/tmp", b"/run", b"/mnt", b"/var/tmp", b"/media", b"/srv")
_DEVICES = (b"/dev/null", b"/dev/zero", b"/dev/full", b"/dev/random", b"/dev/urandom")
_LINKS_IN_DEV = ((b"fd", b"/proc/self/fd"), (b"stdin", b"fd/0"), (b"stdout", b"fd/1"), (b"stderr", b"fd/2"))


def enter(kernel: Kernel, request: CageRequest) -> None:
    """Move this process into namespaces of its own, with the view that the request asks for. Raise OSError."""
    _unshare(kernel, _NEWNS if request.network or not request.workspace else _NEWNS | _NEWNET)
    mounts = Mounts(kernel)
    mounts.make_private()
    if request.workspace:
        _show_workspace(mounts, request)
        if not request.network:
            _start_loopback()
    elif b"/" in request.read:
        _show_all(mounts, request)
    else:
        _show_only(mounts, request)
    os.chdir(request.cwd)  # the old working directory is still the one below the new mounts


def _unshare(kernel: Kernel, flags: int) -> None:
    if os.geteuid() == 0:
        try:
            kernel.call("unshare", flags)
            return
        except PermissionError:
            pass  # root in a container without the capability: a user namespace may still be allowed
    user, group = os.geteuid(), os.getegid()
    kernel.call("unshare", flags | _NEWUSER)
    kernel.prctl(PR_SET_DUMPABLE, 1)  # the files below belong to root as long as this process is undumpable
    for name, text in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
        with open(f"/proc/self/{name}", "w", encoding="ascii") as file:
            file.write(text)


def _start_loopback() -> None:
    with _socket_of_kernel() as connection:
        fcntl.ioctl(connection.fileno(), _SIOCSIFFLAGS, struct.pack("=16sH14x", b"lo", _UP_AND_RUNNING))


class _socket_of_kernel:
    """A socket that is only used to ask the kernel for something, as a context manager."""

    def __enter__(self) -> _socket.socket:
        self._socket = _socket.socket(_socket.AF_INET, _socket.SOCK_DGRAM)
        return self._socket

    def __exit__(self, *error: object) -> None:
        self._socket.close()


def _show_all(mounts: Mounts, request: CageRequest) -> None:
    """Show everything, but let only what the request says be written. Without Landlock, also allow only harmless
    devices, and run no program from a directory that is only named for reading."""
    alone = not request.abi
    devices = [path for path in _DEVICES if alone and os.path.exists(path)]
    copies = [(path, mounts.copy(path)) for path in (*request.write, request.temporary, *devices) if path]
    mounts.limit(b"/", read_only=True, no_devices=alone)
    for path in request.read if alone else ():
        if path != b"/" and path[:5] not in (b"/proc", b"/dev/") and os.path.isdir(path) and not os.path.islink(path):
            mounts.put(mounts.copy(path), path)
            mounts.limit(path, read_only=True, no_programs=True)
    for path, copy in copies:
        mounts.put(copy, path)


def _show_workspace(mounts: Mounts, request: CageRequest) -> None:
    """Show everything, but let only the directories of the request be written. A protected path in them is a mount, so
    it can be neither changed nor renamed. So is each directory on the way to it, which could be renamed otherwise. A
    file with names outside is a mount, too, but may move with its directory. A path that has vanished raises
    FileNotFoundError: then the worker looks again."""
    _show_all(mounts, request)
    for path in _on_the_way(request):
        mounts.put(mounts.copy(path), path)
    for path in (*request.linked, *request.protected):
        mounts.put(mounts.copy(path, read_only=True), path)
    mounts.mount_new(b"tmpfs", b"/dev/shm", b"mode=1777")
    mounts.mount_new(b"devpts", b"/dev/pts", b"newinstance,ptmxmode=0666,mode=600")


def _on_the_way(request: CageRequest) -> list[bytes]:
    """Return the directories between what may be written and what is protected in it, the upper ones first."""
    found = set()
    for path in request.protected:
        above = os.path.dirname(path)
        while above not in request.write and any(above.startswith(top + b"/") for top in request.write):
            if os.path.isdir(above) and not os.path.islink(above):
                found.add(above)
            above = os.path.dirname(above)
    return sorted(found)


def _show_only(mounts: Mounts, request: CageRequest) -> None:
    """Show nothing but what the request names. Only what it says can be written."""
    places: dict[bytes, tuple[bool, bool]] = {}  # path: may programs be run from it, may it be written
    for paths, kind in ((request.read, (False, False)), (request.execute, (True, False))):
        for path in paths:
            places[os.path.realpath(path)] = kind
    for path in (*request.write, request.temporary, b"/dev/null"):
        if path:
            places[os.path.realpath(path)] = (False, True)
    opened = []
    for path in sorted(places):
        try:
            opened.append((path, os.open(path, os.O_PATH | os.O_CLOEXEC)))
        except OSError:
            pass  # it is not there, or this user cannot reach it
    links = _links([*request.read, *request.execute, request.cwd, *_names_in_root()])
    base = next(each for each in _BASES if os.path.isdir(each))
    mounts.mount_new(b"tmpfs", base, b"mode=755")
    for path, file in opened:
        executable, writable = places[path]
        target = base + path
        _make_place(target, directory=os.path.isdir("/proc/self/fd/%d" % file))
        try:
            mounts.bind(b"/proc/self/fd/%d" % file, target)
        except FileNotFoundError:
            continue  # another process has replaced the file since it was opened, as adding a user does
        finally:
            os.close(file)
        mounts.limit(target, read_only=not writable, no_programs=not executable, no_devices=path[:5] != b"/dev/")
    for name, to in [*links, *((b"/dev/" + name, to) for name, to in _LINKS_IN_DEV)]:
        if not os.path.lexists(base + name):
            os.makedirs(os.path.dirname(base + name), exist_ok=True)
            os.symlink(to, base + name)
    mounts.limit(base, read_only=True, recursive=False)
    mounts.become_root(base)


def _make_place(path: bytes, directory: bool) -> None:
    """Make what a mount can cover, unless a mount already shows it."""
    if os.path.lexists(path):
        return
    os.makedirs(path if directory else os.path.dirname(path), exist_ok=True)
    if not directory:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))


def _names_in_root() -> list[bytes]:
    return [b"/" + name for name in os.listdir(b"/")]


def _links(paths: list[bytes]) -> list[tuple[bytes, bytes]]:
    """Return the symbolic links on the way to these paths, each with what it points to."""
    found: dict[bytes, bytes] = {}
    waiting = list(paths)
    while waiting:
        path = waiting.pop()
        reached = b""
        parts = [part for part in path.split(b"/") if part]
        for at, part in enumerate(parts):
            reached += b"/" + part
            if reached in found:
                break
            if os.path.islink(reached):
                found[reached] = os.readlink(reached)
                target = os.path.normpath(os.path.join(os.path.dirname(reached), found[reached]))
                waiting.append(os.path.join(target, *parts[at + 1 :]))
                break
    return sorted(found.items())
