"""Namespaces and mounts. With Landlock, which cannot except `.git` from a directory, only the workspace needs them;
without it the cage for reading stands on them. All but root get a user namespace. Runs in the zygote."""

from __future__ import annotations

import _socket
import ctypes
import errno
import fcntl
import os
import struct

from . import landlock, seccomp
from .syscalls import PR_SET_DUMPABLE, PR_SET_NO_NEW_PRIVS, Kernel, keep_capabilities

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Sequence

_DAC_OVERRIDE = 1 << 0 | 1 << 1 | 1 << 3 | 1 << 4  # with CHOWN, FOWNER and FSETID
_DAC_READ_SEARCH = 1 << 2


class CageRequest:
    argv: list[bytes]
    environment: dict[bytes, bytes]
    program = temporary = b""
    cwd = b"/"
    caged = True
    abi = 0
    workspace = network = own = False
    read: Sequence[bytes] = ()
    write: Sequence[bytes] = ()
    execute: Sequence[bytes] = ()
    protected: Sequence[bytes] = ()
    linked: Sequence[bytes] = ()

    def __init__(self, fields: dict[str, object]) -> None:
        self.__dict__.update(fields)


def enter(kernel: Kernel, request: CageRequest, code: bytes) -> None:
    """Put this process into its cage for good; `code` is its filter. If it raises OSError, nothing may run any more."""
    if request.workspace or not request.abi:
        enter_namespaces(kernel, request)
    kept = _DAC_READ_SEARCH | (_DAC_OVERRIDE if request.workspace else 0)
    keep_capabilities(kernel, kept if os.geteuid() == 0 else 0)
    kernel.prctl(PR_SET_NO_NEW_PRIVS, 1)
    if request.abi:
        may = landlock.READ | landlock.CHANGE | (landlock.EXECUTE if request.workspace else 0)
        rules = [(path, landlock.READ) for path in request.read]
        rules += [(path, landlock.READ | landlock.EXECUTE) for path in request.execute]
        rules += [(path, may) for path in (*request.write, request.temporary) if path]
        for path in (b"/dev/shm", b"/dev/pts", b"/dev/ptmx") if request.workspace else ():
            rules.append((path, landlock.READ | landlock.CHANGE | landlock.IOCTL_DEV))
        on_null = landlock.READ_FILE | landlock.WRITE_FILE | landlock.TRUNCATE | landlock.IOCTL_DEV
        landlock.enforce(kernel, request.abi, [*rules, (b"/dev/null", on_null)], request.workspace)
    seccomp.install(kernel, code)


_RDONLY, _NOSUID, _NODEV, _NOEXEC, _REMOUNT, _BIND, _REC, _PRIVATE = 1, 2, 4, 8, 32, 4096, 16384, 1 << 18
_NOATIME, _NODIRATIME, _RELATIME = 1024, 2048, 1 << 21
_DETACH = 2
_HERE, _RECURSIVE, _EMPTY_PATH, _NO_FOLLOW = -100, 0x8000, 0x1000, 0x100
_CLONE, _FROM_EMPTY_PATH = 1, 4
_OF_STATVFS = _RDONLY | _NOSUID | _NODEV | _NOEXEC | _NOATIME | _NODIRATIME  # the same there
_STATVFS_RELATIME = 4096


class Mounts:
    """Changes the mounts that this process sees. Every method may raise OSError."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self.mount(b"none", b"/", b"", _REC | _PRIVATE)  # keeps every further change from other namespaces

    def mount_new(self, kind: bytes, target: bytes, data: bytes) -> None:
        if os.path.isdir(target):
            self.mount(kind, target, kind, _NOSUID | _NOEXEC | (_NODEV if kind == b"tmpfs" else 0), data)

    def copy(self, path: bytes, read_only: bool = False) -> int:
        """Return a descriptor of a copy of the mounts at a path, which nobody sees yet. A link is shown itself."""
        text = ctypes.create_string_buffer(path)
        flags = _CLONE | os.O_CLOEXEC | _RECURSIVE | _NO_FOLLOW
        copy = self._kernel.call("open_tree", _HERE, ctypes.addressof(text), flags)
        if read_only:
            self._set_attributes(copy, b"", _EMPTY_PATH | _RECURSIVE, _RDONLY)
        return copy

    def _set_attributes(self, directory: int, path: bytes, how: int, flags: int) -> None:
        text, attributes = ctypes.create_string_buffer(path), struct.pack("=4Q", flags, 0, 0, 0)
        buffer = ctypes.create_string_buffer(attributes, 32)
        arguments = ctypes.addressof(text), how, ctypes.addressof(buffer), 32
        self._kernel.call("mount_setattr", directory, *arguments)

    def put(self, copy: int, target: bytes) -> None:
        """Show the copy at a path, and close it. A link is not followed."""
        empty, text = ctypes.create_string_buffer(b""), ctypes.create_string_buffer(target)
        addresses = ctypes.addressof(empty), ctypes.addressof(text)
        try:
            self._kernel.call("move_mount", copy, addresses[0], _HERE, addresses[1], _FROM_EMPTY_PATH)
        finally:
            os.close(copy)

    def limit(
        self, path: bytes, read_only: bool, no_programs: bool = False, no_devices: bool = False, recursive: bool = True
    ) -> None:
        """Limit the mount at a path, and the mounts in it. No program in them changes the user it runs as."""
        flags = _NOSUID | read_only * _RDONLY | no_programs * _NOEXEC | no_devices * _NODEV
        try:
            self._set_attributes(_HERE, path, _RECURSIVE if recursive else 0, flags)
        except OSError as error:
            if error.errno != errno.ENOSYS:
                raise
            self._limit_each(path, flags, recursive)

    def _limit_each(self, path: bytes, flags: int, recursive: bool) -> None:
        """Do the same on a kernel before 5.12, which limits one mount at a time and wants its old limits repeated."""
        targets = [path]
        if recursive:
            with open("/proc/self/mountinfo", "rb") as file:
                points = [unescaped(line.split(b" ")[4]) for line in file]
            targets += [point for point in points if point.startswith(path.rstrip(b"/") + b"/")]
        for target in targets:
            old = os.statvfs(target).f_flag
            kept = old & _OF_STATVFS | (_RELATIME if old & _STATVFS_RELATIME else 0)
            self.mount(b"none", target, b"", _REMOUNT | _BIND | flags | kept)

    def become_root(self, path: bytes) -> None:
        os.chdir(path)
        here = ctypes.create_string_buffer(b".")
        self._kernel.call("pivot_root", ctypes.addressof(here), ctypes.addressof(here))
        self._kernel.call("umount2", ctypes.addressof(here), _DETACH)
        os.chdir("/")

    def mount(self, source: bytes, target: bytes, kind: bytes, flags: int, data: bytes = b"") -> None:
        texts = [ctypes.create_string_buffer(each) for each in (source, target, kind, data)]
        addresses = [ctypes.addressof(each) for each in texts]
        try:
            self._kernel.call("mount", *addresses[:3], flags, addresses[3] if data else 0)
        except OSError as error:
            error.filename = "mount of %s" % os.fsdecode(target)
            raise


def unescaped(point: bytes) -> bytes:
    """Return a path of mountinfo, where a blank is `\\040`. The codec for this may lie below a mount already."""
    first, *escaped = point.split(b"\\")
    return first + b"".join(bytes((int(each[:3], 8),)) + each[3:] for each in escaped)


_NEWNS, _NEWUSER, _NEWNET = 0x00020000, 0x10000000, 0x40000000
_SIOCSIFFLAGS, _UP_AND_RUNNING = 0x8914, 0x41
_BASES = (b"/tmp", b"/run", b"/mnt", b"/var/tmp", b"/media", b"/srv")
_DEVICES = (b"/dev/null", b"/dev/zero", b"/dev/full", b"/dev/random", b"/dev/urandom")
_LINKS_IN_DEV = ((b"fd", b"/proc/self/fd"), (b"stdin", b"fd/0"), (b"stdout", b"fd/1"), (b"stderr", b"fd/2"))


def enter_namespaces(kernel: Kernel, request: CageRequest) -> None:
    """Move this process into namespaces of its own, with the view that the request asks for. Raise OSError."""
    _unshare(kernel, _NEWNS if request.network or not request.workspace else _NEWNS | _NEWNET)
    mounts = Mounts(kernel)
    if request.workspace:
        _show_workspace(mounts, request)
        if not request.network:
            connection = _socket.socket(_socket.AF_INET, _socket.SOCK_DGRAM)
            fcntl.ioctl(connection.fileno(), _SIOCSIFFLAGS, struct.pack("=16sH14x", b"lo", _UP_AND_RUNNING))
            connection.close()
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


def _show_all(mounts: Mounts, request: CageRequest) -> None:
    """Show everything, writable as requested; without Landlock only harmless devices, and programs where requested."""
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
    """Let only the directories of the request be written. A protected path is a mount, and so is each directory on the
    way to it; a file with names outside, too, but it may move with its directory. Raise FileNotFoundError."""
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
    # by path: may programs be run from it, may it be written
    places = {os.path.realpath(path): (False, False) for path in request.read}
    places.update((os.path.realpath(path), (True, False)) for path in request.execute)
    written = filter(None, (*request.write, request.temporary, b"/dev/null"))
    places.update((os.path.realpath(path), (False, True)) for path in written)
    opened = []
    for path in sorted(places):
        try:
            opened.append((path, os.open(path, os.O_PATH | os.O_CLOEXEC)))
        except OSError:
            pass  # it is not there, or this user cannot reach it
    in_root = (b"/" + name for name in os.listdir(b"/"))
    links = _links([*request.read, *request.execute, request.cwd, *in_root])
    base = next(each for each in _BASES if os.path.isdir(each))
    mounts.mount_new(b"tmpfs", base, b"mode=755")
    for path, file in opened:
        executable, writable = places[path]
        target = base + path
        _make_mount_point(target, is_directory=os.path.isdir("/proc/self/fd/%d" % file))
        try:
            mounts.mount(b"/proc/self/fd/%d" % file, target, b"", _BIND | _REC)
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


def _make_mount_point(target: bytes, *, is_directory: bool) -> None:
    if os.path.lexists(target):  # a mount already shows it
        return
    os.makedirs(target if is_directory else os.path.dirname(target), exist_ok=True)
    if not is_directory:
        os.close(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))


def _links(waiting: list[bytes]) -> list[tuple[bytes, bytes]]:
    """Return the symbolic links on the way to these paths, each with what it points to."""
    found: dict[bytes, bytes] = {}
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
