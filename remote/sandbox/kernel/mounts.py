"""Mounts of the mount namespace of a cage. This module runs in the zygote."""

from __future__ import annotations

import ctypes
import errno
import os
import struct

from .syscalls import Kernel

_RDONLY, _NOSUID, _NODEV, _NOEXEC, _REMOUNT, _BIND, _REC, _PRIVATE = 1, 2, 4, 8, 32, 4096, 16384, 1 << 18
_NOATIME, _NODIRATIME, _RELATIME = 1024, 2048, 1 << 21
_DETACH = 2
_HERE, _RECURSIVE, _EMPTY_PATH, _NO_FOLLOW = -100, 0x8000, 0x1000, 0x100
_CLONE, _FROM_EMPTY_PATH = 1, 4
_FLAGS_OF_STATVFS = (
    *((1, _RDONLY), (2, _NOSUID), (4, _NODEV), (8, _NOEXEC), (1024, _NOATIME), (2048, _NODIRATIME), (4096, _RELATIME)),
)


class Mounts:
    """Changes the mounts that this process sees. Every method may raise OSError."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel

    def make_private(self) -> None:
        """Keep every further change from other namespaces."""
        self._mount(b"none", b"/", b"", _REC | _PRIVATE)

    def mount_new(self, kind: bytes, target: bytes, data: bytes) -> None:
        """Mount a new file system of this kind over a directory, if the directory is there."""
        if os.path.isdir(target):
            self._mount(kind, target, kind, _NOSUID | _NOEXEC | (_NODEV if kind == b"tmpfs" else 0), data)

    def bind(self, source: bytes, target: bytes) -> None:
        """Show `source`, with the mounts in it, as `target` too."""
        self._mount(source, target, b"", _BIND | _REC)

    def copy(self, path: bytes, read_only: bool = False) -> int:
        """Return a descriptor for a copy of the mounts at a path, which nobody sees yet. A link is not followed: the
        copy shows the link itself."""
        text = ctypes.create_string_buffer(path)
        flags = _CLONE | os.O_CLOEXEC | _RECURSIVE | _NO_FOLLOW
        copy = self._kernel.call("open_tree", _HERE, ctypes.addressof(text), flags)
        if read_only:
            empty = ctypes.create_string_buffer(b"")
            attributes = ctypes.create_string_buffer(struct.pack("=4Q", _RDONLY, 0, 0, 0), 32)
            arguments = ctypes.addressof(empty), _EMPTY_PATH | _RECURSIVE, ctypes.addressof(attributes), 32
            self._kernel.call("mount_setattr", copy, *arguments)
        return copy

    def put(self, copy: int, target: bytes) -> None:
        """Show the copy at a path, and close it. A link is not followed."""
        empty, text = ctypes.create_string_buffer(b""), ctypes.create_string_buffer(target)
        addresses = ctypes.addressof(empty), ctypes.addressof(text)
        try:
            self._kernel.call("move_mount", copy, addresses[0], _HERE, addresses[1], _FROM_EMPTY_PATH)
        finally:
            os.close(copy)

    def limit(
        self,
        path: bytes,
        read_only: bool = False,
        no_programs: bool = False,
        no_devices: bool = False,
        recursive: bool = True,
    ) -> None:
        """Limit the mount at a path, and the mounts in it. No program in them changes the user it runs as."""
        flags = _NOSUID | read_only * _RDONLY | no_programs * _NOEXEC | no_devices * _NODEV
        text = ctypes.create_string_buffer(path)
        attributes = ctypes.create_string_buffer(struct.pack("=4Q", flags, 0, 0, 0), 32)
        arguments = ctypes.addressof(text), _RECURSIVE if recursive else 0, ctypes.addressof(attributes), 32
        try:
            self._kernel.call("mount_setattr", _HERE, *arguments)
        except OSError as error:
            if error.errno != errno.ENOSYS:
                raise
            self._limit_each(path, flags, recursive)

    def _limit_each(self, path: bytes, flags: int, recursive: bool) -> None:
        """Do the same on a kernel before 5.12, which limits one mount at a time and wants its old limits repeated."""
        targets = [path]
        if recursive:
            with open("/proc/self/mountinfo", "rb") as file:
                points = [line.split(b" ")[4] for line in file]
            inside = path.rstrip(b"/") + b"/"
            targets += [_unescaped(point) for point in points if _unescaped(point).startswith(inside)]
        for target in targets:
            old = os.statvfs(target).f_flag
            kept = sum(flag for bit, flag in _FLAGS_OF_STATVFS if old & bit)
            self._mount(b"none", target, b"", _REMOUNT | _BIND | flags | kept)

    def become_root(self, path: bytes) -> None:
        """Make a mount the root of this process, and let go of the old one."""
        os.chdir(path)
        here = ctypes.create_string_buffer(b".")
        self._kernel.call("pivot_root", ctypes.addressof(here), ctypes.addressof(here))
        self._kernel.call("umount2", ctypes.addressof(here), _DETACH)
        os.chdir("/")

    def _mount(self, source: bytes, target: bytes, kind: bytes, flags: int, data: bytes = b"") -> None:
        texts = [ctypes.create_string_buffer(each) for each in (source, target, kind, data)]
        addresses = [ctypes.addressof(each) for each in texts]
        try:
            self._kernel.call("mount", *addresses[:3], flags, addresses[3] if data else 0)
        except OSError as error:
            error.filename = "mount of %s" % os.fsdecode(target)
            raise


def _unescaped(point: bytes) -> bytes:
    """Return a path as it stands in /proc/self/mountinfo with its blanks and backslashes."""
    for code, character in ((b"\\040", b" "), (b"\\011", b"\t"), (b"\\012", b"\n"), (b"\\134", b"\\")):
        point = point.replace(code, character)
    return point
