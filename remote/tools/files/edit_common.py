"""The steps that Edit, MultiEdit and Write share: check that the file was read and has not changed since, and replace
it."""

from __future__ import annotations

from typing import Any

from ccb.tunnel.wire.dataclass import dataclass

from ...system.regular_files import ABSENT, FileChanged, FileInfo, FileKind, digest_of
from ..contract import FileVersion, Preview, ToolContext, ToolResult, UpcomingChange
from .edit_text import is_utf8
from .file_state import Seen
from .patch import MAX_PREVIEW, compared
from .paths import absolute, host_of, path_error

Json = dict[str, Any]

MAX_BYTES = 32 << 20
"""Largest file that is edited, in bytes."""
_PEEK = 1 << 20  # bytes that may be read while a call is validated

UNREAD = "File has not been read yet. Read it first before writing to it."
CHANGED = (
    "File has been modified since it was read, by the user or by another program. Read it again before writing to it."
)
CHANGED_SINCE_ASKED = (
    "File has been modified since the user was asked about this change, so nothing was written. Read it again and "
    "repeat the change."
)


class ChangeRefused(Exception):
    """The change is refused; the text says why."""


@dataclass(frozen=True)
class Current:
    """The file to change. `data` is None if there is no such file."""

    path: str  # as the model gave it, absolute
    real: str
    data: bytes | None
    digest: str
    mode: int = 0


def refusal(text: str) -> ToolResult:
    """Return the result for a call that did nothing; `text` says why."""
    return ToolResult(text, is_error=True, structured=f"Error: {text}")


def text_error(text: str) -> str | None:
    """Return why a string cannot be written to a file, or None."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        return f"The text contains a lone surrogate at character {error.start}, which UTF-8 cannot write."
    return None


def path_refusal(file_path: str) -> str | None:
    """Return why a text tool cannot change the path, or None."""
    if file_path.endswith("/"):
        return f"{file_path} names a directory, not a file."
    return path_error(file_path)


def peek(context: ToolContext, file_path: str) -> tuple[Seen | None, bytes | None]:
    """Return the version of the file that was seen, and its content if it is small, for a quick check before the person
    is asked."""
    real = context.host.real_path(absolute(file_path, context.cwd))
    return context.files.get(real), context.host.peek(real, _PEEK)


def peek_refusal(context: ToolContext, file_path: str) -> str | None:
    """Return why the file may not be changed, None if a quick check finds no reason."""
    seen, data = peek(context, file_path)
    if data is None:
        return None
    if seen is None:
        return UNREAD
    if seen.digest and seen.digest != digest_of(data):
        return CHANGED
    return None


async def current(context: ToolContext, file_path: str) -> Current:
    """Return the file if it may be changed: it is absent, or was read and has not changed since. Raise ChangeRefused or
    OSError."""
    path = absolute(file_path, context.cwd)
    real = context.host.real_path(path)
    info = await host_of(context).stat(real)
    if info is None:
        _check_approved(context, real, ABSENT)
        return Current(path, real, None, ABSENT)
    if info.kind is not FileKind.FILE:
        raise ChangeRefused(f"{path} is a {info.kind.value}, not a file.")
    if info.size > MAX_BYTES:
        raise ChangeRefused(f"{path} has {info.size:,} bytes; files over {MAX_BYTES:,} are not edited. Use Bash.")
    seen = context.files.get(real)
    if seen is None:
        raise ChangeRefused(UNREAD)
    data = await host_of(context).read(real, 0, MAX_BYTES + 1)
    digest = digest_of(data)
    if not seen.is_version(digest, info):
        raise ChangeRefused(CHANGED)
    _check_approved(context, real, digest)
    return Current(path, real, data, digest, info.mode)


def _check_approved(context: ToolContext, real: str, digest: str) -> None:
    """Refuse a version of the file that is not the one that the person has seen."""
    if context.call.approved is not None and context.call.approved != FileVersion(real, digest):
        raise ChangeRefused(CHANGED_SINCE_ASKED)


def preview_of(file: Current, data: bytes) -> Preview:
    """Return the preview of a change that makes `data` the content of the file."""
    before, after = ((part or b"").decode("utf-8", "replace") for part in (file.data, data))
    public: Json = {
        "path": file.real if file.real != file.path else "",
        "created": file.data is None,
        "decoded": file.data is None or is_utf8(file.data),
        **compared(before, after, MAX_PREVIEW),
    }
    return Preview(public, FileVersion(file.real, file.digest))


async def store(context: ToolContext, file: Current, data: bytes) -> FileInfo:
    """Make `data` the content of the file. Raise ChangeRefused if the file has changed meanwhile, or OSError."""
    digest = digest_of(data)
    await context.call.before_change(UpcomingChange(file.real, file.data, file.mode, file.digest, digest))
    try:
        info = await host_of(context).replace(file.real, data, file.digest)
    except FileChanged:
        raise ChangeRefused(CHANGED) from None
    context.files.written(file.real, digest, info)
    return info
