"""The bundle: the files of the worker, one behind the other, each as its name and its text with a zero byte behind."""

from __future__ import annotations

from collections.abc import Mapping


def joined(files: Mapping[str, str | bytes]) -> bytes:
    """Return the bundle of these files. Raise ValueError if a zero byte is in one."""
    parts = [each.encode() if isinstance(each, str) else each for item in files.items() for each in item]
    if any(b"\0" in each for each in parts):
        raise ValueError("a file of the worker has a zero byte in it")
    return b"".join(each + b"\0" for each in parts)


def files_of(bundle: bytes) -> dict[str, str]:
    """Return the files of a bundle, by name."""
    parts = bundle.decode().split("\0")
    return dict(zip(parts[:-1:2], parts[1::2], strict=True))
