"""Files that go along.

Only what the person pastes or drops into the composer, or mentions in an editor, gets here. What is sent is what was in
the file at that moment; an image that is too large for the model is scaled, if Pillow is installed.
"""

from __future__ import annotations

import os
import re
import shlex
import socket
import stat
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from urllib.parse import unquote, urlsplit

from ccb.tunnel.plain_text import one_line
from ccb.tunnel.wire.dataclass import dataclass
from ccb.tunnel.wire.frames import Json
from ccb.tunnel.wire.prompt_content import (
    MAX_IMAGE_BYTES,
    MAX_PIXELS,
    attached_file,
    image_block,
    image_size,
    image_trouble,
    image_type,
)

from ..rendering.pictures import GOOD_PIXELS, NotDecoded, can_decode, scaled

MAX_TEXT_BYTES = 256 << 10  # largest text file that goes along with a prompt
MAX_KEPT_BYTES = 12 << 20
"""Most bytes of all files that wait in the composer: with what base64 adds they fit into a request."""

MAX_SOURCE_BYTES = 64 << 20  # largest image that is read to be scaled
_MAX_KEPT = 20
_LONG, _LINES = 1_000, 15  # characters and lines of a pasted text that is shown as it is
_MAX_TEXTS = 100
_MAX_NAME = 60
_UNFIT = re.compile(r'["\[\]<>]')  # in a placeholder, or in the name in front of the file's text
_SECRET = re.compile(rb"-----BEGIN [A-Z ]*PRIVATE KEY-----")


class NotAttached(Exception):
    """A file cannot go along with a prompt; the text says why."""


@dataclass(frozen=True)
class Attachment:
    """A file as it was when it was dropped; `path` is None for an image of the clipboard. `kind` is image or file."""

    path: Path | None
    kind: str
    size: int
    block: Json
    pixels: tuple[int, int] | None = None
    scaled: bool = False

    @property
    def placeholder(self) -> str:
        if self.path is None:
            return f"[Image {'x'.join(map(str, self.pixels or ()))}]"
        return f"[{self.kind}: {shown_name(self.path)} {size_text(self.size)}]"


@dataclass(frozen=True)
class AttachedFile:
    """What became of a text that was pasted and names files: the placeholders, or why it stays what it is."""

    shown: str
    said: str


class Attachments:
    """Keeps files by their placeholders: those that wait in the composer, and, while there is room, those that were
    sent, so that a prompt that comes back still has them. Of long texts that were pasted it keeps the newest."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}
        self._pasted = 0
        self._kept: dict[str, Attachment] = {}
        self._sent: frozenset[str] = frozenset()
        self._leaving: frozenset[str] = frozenset()  # of prompts that were submitted and are not sent yet
        self._images = 0

    def take(self, files: Sequence[Attachment], composed: str = "") -> AttachedFile:
        """Keep files that were dropped, or an image of the clipboard, for the prompt that is `composed`."""
        try:
            self._make_room(len(files), sum(each.size for each in files), composed)
        except NotAttached as error:
            return AttachedFile("", str(error))
        shown = " ".join(map(self._keep, files))
        scaled_too = ", scaled for the model" if any(each.scaled for each in files) else ""
        if files[0].path is None:
            return AttachedFile(shown, f"the image will go along with the prompt{scaled_too}; Backspace removes it")
        names = shown_name(files[0].path) if len(files) == 1 else f"{len(files)} files"
        return AttachedFile(
            shown, f"{names} of this laptop will go along with the prompt{scaled_too}; undo makes it text"
        )

    def submitted(self, text: str) -> None:
        """Note that a prompt with this text is on its way out of the composer."""
        self._leaving |= set(self.named_in(text))

    def named_in(self, text: str) -> list[str]:
        return list(dict.fromkeys(_any_of(self._kept).findall(text)))

    def blocks(self, text: str) -> list[Json]:
        """Return the content of a prompt with this text: the text, then the files that it names."""
        named = self.named_in(text)
        self._sent |= set(named)
        self._leaving -= self._sent
        return [{"type": "text", "text": text}, *(self._kept[each].block for each in named)]

    def with_paths(self, text: str) -> str:
        """Return a text with paths in place of the placeholders; an image of the clipboard has none."""
        paths = {each: shlex.quote(str(file.path)) if file.path else "" for each, file in self._kept.items()}
        return _any_of(self._kept).sub(lambda found: paths[found[0]], text)

    def shortened(self, text: str) -> str:
        """Keep a pasted text if it is long. Return what stands for it in the composer."""
        lines = text.count("\n") + (not text.endswith("\n"))
        if len(text) <= _LONG and lines <= _LINES:
            return text
        self._pasted += 1
        placeholder = f"[Pasted text #{self._pasted}, {f'{lines} lines' if lines > 1 else f'{len(text):,} characters'}]"
        self._texts[placeholder] = text
        while len(self._texts) > _MAX_TEXTS:
            del self._texts[next(iter(self._texts))]
        return placeholder

    def expanded(self, text: str) -> str:
        return _any_of(self._texts).sub(lambda found: self._texts[found[0]], text)

    def placeholder_before(self, text: str) -> str:
        return next((each for each in (*self._texts, *self._kept) if text.endswith(each)), "")

    def _make_room(self, count: int, size: int, composed: str) -> None:
        """Forget files that no prompt needs until there is room, those that were sent first. Raise NotAttached."""
        needed = self._leaving | set(self.named_in(composed))
        free = sorted((each for each in self._kept if each not in needed), key=lambda each: each not in self._sent)
        while why := self._full(count, size):
            if not free:
                raise NotAttached(f"{why}: send first what you have")
            del self._kept[free[0]]
            self._sent -= {free.pop(0)}

    def _full(self, count: int, size: int) -> str:
        """Return why there is no room, "" if there is."""
        if len(self._kept) + count > _MAX_KEPT:
            return f"at most {_MAX_KEPT} files go along with a prompt"
        full = size + sum(each.size for each in self._kept.values()) > MAX_KEPT_BYTES
        return f"files with a prompt may have {size_text(MAX_KEPT_BYTES)} in all" if full else ""

    def _keep(self, new: Attachment) -> str:
        placeholder, number = new.placeholder, 1
        if new.path is None:
            self._images += 1
            placeholder = placeholder.replace("[Image ", f"[Image #{self._images} ")
        while placeholder in self._kept and self._kept[placeholder].block != new.block:
            number += 1
            placeholder = f"{new.placeholder[:-1]} #{number}]"
        self._kept[placeholder] = new
        self._sent -= {placeholder}
        return placeholder


def _any_of(placeholders: Iterable[str]) -> re.Pattern[str]:
    return re.compile("|".join(map(re.escape, placeholders)) or r"(?!)")  # which matches nothing


def dropped_files(text: str) -> list[Attachment]:
    """Read the files that a pasted text names; none if it is not such a text. Blocks. Raise NotAttached."""
    return [read_attachment(path) for path in dropped_paths(text)]


def read_attachment(path: Path, name: str = "", opened: Callable[[Path, int], int] = os.open) -> Attachment:
    """Read a file that was dropped, or that an editor mentions, which has its own way to open it. Blocks. Raise
    NotAttached."""
    name = name or shown_name(path)
    try:
        data = _read(opened(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC))
    except OSError as error:
        raise NotAttached(f"{name} cannot be read: {error.strerror or error}") from error
    if data is None:
        raise NotAttached(f"{name} is no file that goes along with a prompt: its path stays text")
    if image_type(data[:16]) is not None:
        return image_attachment(data, name, path)
    if _SECRET.search(data):
        raise NotAttached(f"{name} holds a private key, which stays on the laptop: its path stays text")
    if len(data) > MAX_TEXT_BYTES and b"\0" not in data:
        raise NotAttached(f"{name} is longer than {size_text(MAX_TEXT_BYTES)}: its path stays text")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        raise NotAttached(f"{name} is neither text nor an image that the model takes: its path stays text")
    return Attachment(path, "file", len(data), attached_file(name, text))


def image_attachment(data: bytes, name: str, path: Path | None) -> Attachment:
    """Return an image as the model takes it, scaled if it must be and can be. Blocks. Raise NotAttached."""
    size, before = image_size(data) or (0, 0), len(data)
    many = f"{name} is too large: the model takes images of {size_text(MAX_IMAGE_BYTES)} at most"
    if len(data) > MAX_IMAGE_BYTES or max(size) > (GOOD_PIXELS if can_decode() else MAX_PIXELS):
        if len(data) > MAX_SOURCE_BYTES:
            raise NotAttached(many)
        try:
            data = scaled(data, MAX_IMAGE_BYTES)
        except NotDecoded as error:
            if len(data) > MAX_IMAGE_BYTES:
                raise NotAttached(f"{many}, and it was not scaled: {error}") from error
    media_type, trouble = image_type(data[:16]), image_trouble(data)
    if media_type is None:
        raise NotAttached(f"{name} is of a kind that the model does not take")
    if trouble:
        raise NotAttached(f"{name} is an image that the model does not take: {trouble}")
    return Attachment(path, "image", len(data), image_block(data, media_type), image_size(data), len(data) != before)


def _read(descriptor: int) -> bytes | None:
    """Return the start of a regular file, as much as could be sent and a byte more; None for anything else."""
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        return None
    with os.fdopen(descriptor, "rb") as file:
        head = file.read(MAX_TEXT_BYTES + 1)
        return head if image_type(head[:16]) is None else head + file.read(MAX_SOURCE_BYTES + 1 - len(head))


def shown_name(path: Path) -> str:
    name = _UNFIT.sub("_", one_line(path.name)) or "file"
    return name if len(name) <= _MAX_NAME else f"{name[: _MAX_NAME - 11]}…{name[-10:]}"


def size_text(size: int) -> str:
    if size < 1 << 10:
        return f"{size} B"
    if size < 1 << 20:
        return f"{size / (1 << 10):.0f} KB"
    return f"{size / (1 << 20):.2f}".rstrip("0").rstrip(".") + " MB"


_MAX_CHARS = 8_000
_MAX_PATHS = 20
_STARTS = ("/", "~/", "'/", '"/', "file://", "'file://", '"file://')


def dropped_paths(text: str) -> list[Path]:
    """Return the files that `text` names, quoted, escaped, plain or as file:// URIs; [] if it holds anything else."""
    if not may_name_files(text):
        return []
    text = text.strip()
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    plain = [_path(line) for line in lines]  # a path with blanks, as some terminals paste it
    found = plain if None not in plain else [_path(word) for word in _words(text)]
    paths = [path for path in found if path is not None]
    return paths if len(paths) == len(found) <= _MAX_PATHS else []


def may_name_files(text: str) -> bool:
    return text.lstrip().startswith(_STARTS) and len(text) <= _MAX_CHARS


def _words(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError:  # a quote without its end
        return [""]


def _path(word: str) -> Path | None:
    """Return what a word names, None if that does not exist."""
    if word.startswith("file://"):
        try:
            parts = urlsplit(word)
            if parts.netloc not in ("", "localhost", socket.gethostname()):
                return None
        except ValueError:
            return None
        word = unquote(parts.path)
    try:
        path = Path(word).expanduser()
        return path if path.is_absolute() and path.exists() else None
    except (OSError, ValueError, RuntimeError):  # RuntimeError: nobody knows the home of this user
        return None
