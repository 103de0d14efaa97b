"""The paths and files of tools: what may be read and changed, and changes in one atomic step."""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from ccb.tunnel.wire.dataclass import dataclass
from ccb.tunnel.wire.prompt_content import image_type
from ccb.tunnel.wire.spelling import spelled, unspelled

from ..system.deadline import in_thread
from ..system.host import Files, Host, PinnedHost, is_under
from ..system.regular_files import ABSENT, FileChanged, FileInfo, FileKind, NotAFile, digest_of
from ..system.text_encoding import is_binary, shown, text_of
from .text_changes import MAX_PREVIEW, compared
from .tool_contract import FileVersion, Json, Preview, Tool, ToolContext, ToolRefused, ToolResult, UpcomingChange

MAX_BYTES = 32 << 20  # largest file that is edited, in bytes
_HEAD = 1 << 20  # bytes that tell whether a file is binary
_MAX_ELSEWHERE = 4_000  # bytes of the lines that are shown as changed by others

UNREAD = "File has not been read yet. Read it first before writing to it."
CHANGED = (
    "File has been modified since it was read, by the user or by another program. Read it again before writing to it."
)
CHANGED_SINCE_ASKED = (
    "File has been modified since the user was asked about this change, so nothing was written. Read it again and "
    "repeat the change."
)


@dataclass(frozen=True)
class Current:
    """The file to change; `data` is None without one. `seen` is another version that the model has seen."""

    path: str  # as the model gave it, absolute
    real: str
    data: bytes | None
    digest: str
    mode: int = 0
    seen: bytes | None = None
    is_link: bool = False

    @property
    def name(self) -> str:
        """The path for the model and the person."""
        return spelled(self.path)


def text_error(text: str) -> str | None:
    """Return why a string cannot be written to a file, or None."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        return f"The text contains a lone surrogate at character {error.start}, which UTF-8 cannot write."
    return None


def path_refusal(file_path: str) -> str | None:
    """Return why a text tool cannot change the path, or None."""
    return f"{file_path} names a directory, not a file." if file_path.endswith("/") else path_error(file_path)


def _unread(head: bytes) -> str:
    """Return why a file that begins with `head` (of _HEAD bytes, if it has more) and was not read is not changed."""
    if is_binary(head, whole=len(head) < _HEAD) and image_type(head) is None and not head.startswith(b"%PDF-"):
        return f"It is a binary file, which Read cannot show: only Bash can change or remove it. {binary_hint(head)}"
    return UNREAD


async def current(context: ToolContext, file_path: str, *, merge: bool = False) -> Current:
    """Return the file if it may be changed: it is absent, or was read and has not changed since. With `merge`, it may
    have changed if what the model has seen is known. Raise ToolRefused or OSError."""
    path = absolute(file_path, context.cwd)
    real = context.host.real_path(path)
    info = await host_of(context).stat(real)
    if info is None:
        _check_approved(context, real, ABSENT)
        return Current(path, real, None, ABSENT, is_link=_is_link(context, path, real))
    name = spelled(path)
    if info.kind is not FileKind.FILE:
        raise ToolRefused(f"{name} is a {info.kind.value}, not a file.")
    if info.size > MAX_BYTES:
        raise ToolRefused(f"{name} has {info.size:,} bytes; files over {MAX_BYTES:,} are not edited. Use Bash.")
    seen = context.files.get(real)
    if seen is None:
        raise ToolRefused(_unread(await host_of(context).read(real, 0, _HEAD)))
    data = await host_of(context).read(real, 0, MAX_BYTES + 1)
    digest = digest_of(data)
    is_version = seen.is_version(digest, info)
    if not is_version and not (merge and seen.content is not None):
        raise ToolRefused(CHANGED)
    _check_approved(context, real, digest)
    is_link = _is_link(context, path, real)
    return Current(path, real, data, digest, info.mode, None if is_version else seen.content, is_link)


def _is_link(context: ToolContext, path: str, real: str) -> bool:
    path = os.path.normpath(path)
    if is_under(path, context.cwd):
        path = os.path.normpath(context.host.real_path(context.cwd) + path[len(context.cwd) :])
    return path != real


def _check_approved(context: ToolContext, real: str, digest: str) -> None:
    if context.call.approved is not None and context.call.approved != FileVersion(real, digest):
        raise ToolRefused(CHANGED_SINCE_ASKED)


def _preview(file: Current, data: bytes) -> Preview:
    text = text_of(file.data or b"")
    public: Json = {
        "path": spelled(file.real) if file.real != file.path else "",
        "created": file.data is None,
        "decoded": text is not None and text.codec != "",
        **compared(shown(file.data or b""), shown(data), MAX_PREVIEW),
    }
    return Preview(public, FileVersion(file.real, file.digest))


@dataclass(frozen=True)
class PlannedChange:
    """A change of a file: the file as it is, its new content, and what the tool tells about the change. `is_in_call`:
    the call itself has the content, so that it need not be shown again."""

    file: Current
    data: bytes
    about: Any = None
    is_in_call: bool = False


class FileChangingTool(Tool):
    """A tool that changes one file in one atomic step."""

    @abstractmethod
    async def planned(self, tool_input: Json, context: ToolContext) -> PlannedChange:
        """Return the change that a call makes. Raise ToolRefused or OSError."""

    @abstractmethod
    def result(self, tool_input: Json, done: PlannedChange, notes: str) -> ToolResult:
        """Return the result of a change that was made, with the `notes` about it. It runs in a thread."""

    async def preview(self, tool_input: Json, context: ToolContext) -> Preview:
        with self._naming(tool_input):
            change = await self.planned(tool_input, context)
        return await in_thread(_preview, change.file, b"" if change.is_in_call else change.data)

    async def run(self, tool_input: Json, context: ToolContext) -> ToolResult:
        with self._naming(tool_input):
            change = await self.planned(tool_input, context)
            notes = await store_change(context, change.file, change.data)
        return await in_thread(self.result, tool_input, change, notes)

    def _naming(self, tool_input: Json) -> AbstractContextManager[None]:
        assert self.traits.path is not None
        return naming(tool_input[self.traits.path.key])


async def store_change(context: ToolContext, file: Current, data: bytes) -> str:
    """Make `data` the content of the file. Return what the model must know about it, behind what was done. Raise
    ToolRefused if the file has changed meanwhile, or OSError."""
    digest = digest_of(data)
    unkept = await context.call.before_change(UpcomingChange(file.real, file.data, file.mode, file.digest, digest))
    try:
        info = await host_of(context).replace(file.real, data, file.digest, unkept=unkept)
    except FileChanged:
        raise ToolRefused(CHANGED) from None
    context.files.written(file.real, digest, info, data)
    notes = [f"It is a link: the file is {spelled(file.real)}."] if file.is_link else []
    if info.links > 1:
        notes.append(f"The file has {info.links} hard links, and all of them have the new content.")
    if file.seen is not None:
        notes.append(await in_thread(_changed_elsewhere, shown(file.seen), shown(file.data or b"")))
    return "".join(f" {note}" for note in notes)


def _changed_elsewhere(seen: str, present: str) -> str:
    found = compared(seen, present, _MAX_ELSEWHERE)
    lines: list[str] = []
    for hunk in found["patch"]:
        lines.append(f"@@ -{hunk['oldStart']},{hunk['oldLines']} +{hunk['newStart']},{hunk['newLines']} @@")
        lines += hunk["lines"]
    if not found["complete"]:
        lines.append("(There is more: read the file again to see it.)")
    return "\n".join(["The file had changed elsewhere since you saw it:", *lines])


def absolute(path: str, cwd: str) -> str:
    """Return the absolute path that a model spells. `.` and `..` stay, for the system to resolve."""
    path = unspelled(path)
    if path == "~" or path.startswith("~/"):
        path = os.path.expanduser("~") + path[1:]
    return os.path.join(cwd, path)


def tree_path(host: Host, path: str) -> str:
    """Return an absolute path without `.` and `..` for the same place. As in permission checks, `link/..` is the parent
    of the directory that the link leads to."""
    return host.real_path(path) if ".." in path.split("/") else os.path.normpath(path)


def path_error(path: str) -> str | None:
    """Return why a string cannot be a path, or None."""
    if not path.strip():
        return "The path is empty."
    if "\0" in path:
        return "The path contains a NUL character."
    try:
        path.encode("utf-8")
    except UnicodeEncodeError:
        return "The path contains characters that no file name can have."
    return None


def host_of(context: ToolContext) -> Files:
    """Return the host for the file operations of a call: it reaches the path that was decided on, and no other."""
    return PinnedHost(context.host, context.call.pinned) if context.call.pinned else context.host


async def present(host: Files, path: str, cwd: str) -> FileInfo:
    """Return what is at a path. Raise ToolRefused if nothing is, or OSError."""
    info = await host.stat(path)
    if info is None:
        raise await missing(host, path, cwd)
    return info


async def missing(host: Files, path: str, cwd: str) -> ToolRefused:
    """Return the refusal for a path that does not exist, with similar names."""
    parent, name = os.path.split(path.rstrip("/"))
    try:
        entries = await host.list(parent)
    except OSError:
        entries = []
    link = next((entry for entry in entries if entry.name == name and entry.kind is FileKind.LINK), None)
    if link is not None:
        return ToolRefused(f"{spelled(path)} is a link to {spelled(link.target)}, which does not exist.")
    text = f"File does not exist: {spelled(path)}"
    near = _near_names(name, [each.name for each in entries if each.kind is not FileKind.OTHER and each.name != name])
    if near:
        return ToolRefused(f"{text}. Did you mean {' or '.join(spelled(os.path.join(parent, each)) for each in near)}?")
    return ToolRefused(f"{text}. The session's directory is {spelled(cwd)}.")


def _near_names(name: str, names: list[str]) -> list[str]:
    stem = os.path.splitext(name)[0]
    same = [each for each in names if each.lower() == name.lower() or (stem and os.path.splitext(each)[0] == stem)]
    import difflib

    close = difflib.get_close_matches(name, names[:5000], n=3, cutoff=0.6)
    return list(dict.fromkeys(same + close))[:3]


@contextmanager
def naming(name: str) -> Iterator[None]:
    """Refuse the call if a system call on the path of this name fails, or what is there is no file any more."""
    try:
        yield
    except NotAFile as error:
        raise ToolRefused(f"{spelled(str(error))}; only files can be read.") from None
    except OSError as error:
        raise ToolRefused(f"{name}: {error.strerror or error}") from None


_BINARY_HINTS = (
    ((b"\xff\xfe", b"\xfe\xff"), "It looks like damaged UTF-16 text: `iconv -c -f UTF-16 -t UTF-8` in Bash shows it."),
    ((b"%PDF-",), "It is a PDF: `pdftotext FILE -` in Bash shows its text, if the host has it."),
    ((b"\x7fELF",), "It is an ELF executable or library: use `file`, `readelf` or `strings` in Bash."),
    ((b"PK\x03\x04",), "It is a ZIP archive (or an office document): `unzip -l` in Bash lists it."),
    ((b"\x1f\x8b",), "It is gzip data: `zcat` or `tar -tzf` in Bash shows it."),
    ((b"SQLite format 3",), "It is an SQLite database: `sqlite3` in Bash reads it."),
    ((b"",), "Use a suitable program in Bash, such as `file`, `strings` or `xxd`, to look into it."),
)


def binary_hint(head: bytes) -> str:
    """Return a sentence about what a binary file seems to be, and how to read it."""
    return next(hint for marks, hint in _BINARY_HINTS if head.startswith(marks))
