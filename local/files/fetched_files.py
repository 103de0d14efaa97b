"""Fetch files to be looked at: a viewer gets only kinds without programs, under the end of a name of their content."""

from __future__ import annotations

import asyncio
import base64
import codecs
import contextlib
import fcntl
import hashlib
import os
import posixpath
import re
import shlex
import shutil
import stat
import sys
import tempfile
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import field, replace
from pathlib import Path
from subprocess import DEVNULL, Popen

from ccb.tunnel.errors import CcbError, CopyFailed, UsageError
from ccb.tunnel.plain_text import one_line
from ccb.tunnel.wire.dataclass import dataclass
from ccb.tunnel.wire.prompt_content import image_size, image_type

from ..terminal.stdio import in_thread
from .copying import CopyOrder, Transfer, Transfers, open_path, outcome, size_of

_CONTENT = "content"
_MAX_OFFERED = 20
_PUT_AWAY = "Open them, or put them away."


@dataclass(frozen=True)
class FetchedFile:
    path: Path
    kind: ViewedKind
    size: int

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def text(self) -> str:
        note = f" · {self.kind.note}" if self.kind.note else ""
        return f"{self.name} · {self.kind.label} · {size_of(self.size)}{note}"


@dataclass(eq=False)
class FetchedFiles:
    """The files that were fetched to be looked at; `offered` waits for the person."""

    transfers: Transfers
    folder: PrivateFolder
    open_with: str = ""
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)
    offered: list[FetchedFile] = field(default_factory=list)
    _coming: dict[int, Path] = field(default_factory=dict)  # the directories of what is under way, by number

    async def __aenter__(self) -> FetchedFiles:
        await in_thread(self.folder.remove_left_over)
        return self

    async def __aexit__(self, *_: object) -> None:
        await in_thread(self.folder.close)

    def fetch(self, argument: str, cwd: str) -> Transfer:
        remote = open_path(argument, cwd)
        if len(self.offered) >= _MAX_OFFERED:
            raise UsageError(f"{_MAX_OFFERED} files wait for you already", do=_PUT_AWAY)
        if (size := sum(each.size for each in self.offered)) > MAX_BYTES:
            raise UsageError(f"the files that wait for you hold {size_of(size)} already", do=_PUT_AWAY)
        try:
            in_use = [*(each.path.parent for each in self.offered), *self._coming.values()]
            target = self.folder.place_for(remote, in_use) / _CONTENT
        except OSError as error:
            raise CopyFailed(
                f"there is no private place for the file: {error.strerror}",
                evidence=str(error.filename or ""),
                do="Mend that, or copy it with /get.",
            ) from error
        transfer = self.transfers.start(CopyOrder(False, str(target), remote, private=True, most=MAX_BYTES))
        self._coming[transfer.number] = target.parent
        return transfer

    async def arrived(self, transfer: Transfer) -> FetchedFile | CcbError | None:
        """Wait for a file and offer it. Return why it cannot be had, None if it was broken off."""
        try:
            path = await outcome(transfer)
            if not isinstance(path, str):
                return path
            found = await in_thread(lambda: _named(Path(path), transfer.order.remote))
            if isinstance(found, FetchedFile):
                self.offered = [each for each in self.offered if each.path != found.path] + [found]
            return found
        except OSError as error:
            return CopyFailed(f"the file that has arrived cannot be read: {error.strerror}", do="Copy it with /get.")
        finally:
            self._coming.pop(transfer.number, None)

    @property
    def viewer(self) -> str:
        try:
            return _program(viewer_command(self.open_with, self.environ))
        except NoViewer:
            return ""

    async def open_file(self, file: FetchedFile) -> str:
        try:
            command = viewer_command(self.open_with, self.environ)
            await start_viewer(command, file.path, self.environ)
        except NoViewer as error:
            raise CopyFailed(
                f"{file.name} was not opened: {error}",
                evidence=f"It is {file.path} until you leave this session.",
                do="Open it there, or copy it to a place of yours with /get.",
            ) from error
        return f"Opened {file.name} with {_program(command)}"

    def take_first(self) -> FetchedFile | None:
        return self.offered.pop(0) if self.offered else None


def _program(command: list[str]) -> str:
    return one_line(posixpath.basename(command[0]))


def _named(content: Path, remote: str) -> FetchedFile | CopyFailed:
    """Give a file that has arrived the name by which viewers know its kind. Blocks. A file that is not opened goes."""
    name = posixpath.basename(remote.rstrip("/"))
    with content.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        kind = kind_of(name, file.read(HEAD_BYTES))
    if not kind.ends:
        content.unlink()
        shown = one_line(name)[:200]
        return CopyFailed(
            f"{shown} is {kind.label}, and ccb opens only what is looked at",
            do="Copy it with /get if you want to have it on the laptop.",
        )
    path = content.with_name(viewer_name(name, kind))
    if kind.is_page:
        _write_page(content, path, is_drawing=name.lower().endswith(".svg"))
        path.chmod(stat.S_IRUSR | stat.S_IWUSR)
        content.unlink()
    else:
        content.rename(path)
    return FetchedFile(path, kind, size)


HEAD_BYTES = 64 * 1024  # how much of a file is read to tell what it is
_MAX_NAME = 100
_UNFIT = re.compile(r"[^\w .,()+=@-]")
_BINARY = re.compile(r"[\x00-\x06\x0e-\x1a\x1c-\x1f]")


@dataclass(frozen=True)
class ViewedKind:
    """A kind of file. `ends` are its ends of names, the usual one first; none: it is not opened."""

    label: str
    ends: tuple[str, ...] = ()
    note: str = ""
    is_page: bool = False


_TEXT = ViewedKind("text", (".txt",))
_TEXTS = {
    ".md": ViewedKind("Markdown text", (".md",)),
    ".json": ViewedKind("JSON text", (".json",)),
    ".log": ViewedKind("text", (".log",)),
    ".csv": ViewedKind("table", (".csv",), "a spreadsheet may follow formulas in it"),
    ".tsv": ViewedKind("table", (".tsv",), "a spreadsheet may follow formulas in it"),
}
_FOLLOWED = "its scripts run in your browser; it loads nothing from elsewhere, but may lead you to another address"
_PAGE = ViewedKind("web page", (".html",), _FOLLOWED, is_page=True)
_DRAWING = ViewedKind("SVG image", (".html",), "shown as a picture in a page; its scripts do not run", is_page=True)
_OFFICE = {
    end: ViewedKind(label, (end,), "let your office program run no macros of it")
    for end, label in (
        (".docx", "Word document"), (".xlsx", "Excel table"), (".pptx", "PowerPoint slides"),
        (".odt", "text document"), (".ods", "spreadsheet"), (".odp", "slides"),
    )
}  # fmt: skip
_IMAGES = {
    "image/png": ViewedKind("PNG image", (".png",)),
    "image/jpeg": ViewedKind("JPEG image", (".jpg", ".jpeg")),
    "image/gif": ViewedKind("GIF image", (".gif",)),
    "image/webp": ViewedKind("WebP image", (".webp",)),
}
_ARCHIVE = b"PK\x03\x04"
_BY_START: tuple[tuple[int, bytes, ViewedKind], ...] = (
    (0, b"%PDF-", ViewedKind("PDF document", (".pdf",))),
    (0, b"BM", ViewedKind("BMP image", (".bmp",))),
    (0, b"II*\0", ViewedKind("TIFF image", (".tif", ".tiff"))),
    (0, b"MM\0*", ViewedKind("TIFF image", (".tif", ".tiff"))),
    (4, b"ftyp", ViewedKind("MP4 video", (".mp4", ".m4v", ".m4a", ".mov"))),
    (0, b"\x1aE\xdf\xa3", ViewedKind("WebM or Matroska video", (".mkv", ".webm"))),
    (0, b"OggS", ViewedKind("Ogg audio or video", (".ogg", ".oga", ".ogv", ".opus"))),
    (8, b"WAVE", ViewedKind("WAV audio", (".wav",))),
    (0, b"fLaC", ViewedKind("FLAC audio", (".flac",))),
    (0, b"ID3", ViewedKind("MP3 audio", (".mp3",))),
    (0, b"\x7fELF", ViewedKind("a program of Linux")),
    (0, b"MZ", ViewedKind("a program of Windows")),
    (0, b"\xcf\xfa\xed\xfe", ViewedKind("a program of macOS")),
    (0, b"\xca\xfe\xba\xbe", ViewedKind("a program of macOS or Java")),
    (0, _ARCHIVE, ViewedKind("an archive")),
    (0, b"\x1f\x8b", ViewedKind("an archive")),
)
_UNKNOWN = ViewedKind("data of a kind that ccb does not know")


def kind_of(name: str, head: bytes) -> ViewedKind:
    """Return what a file is. `head` is its first HEAD_BYTES. Among texts and archives, the name tells more."""
    end = posixpath.splitext(name.lower())[1]
    media_type, pixels = image_type(head), image_size(head)
    if media_type is not None:
        kind = _IMAGES[media_type]
        return replace(kind, label=f"{kind.label}, {pixels[0]}x{pixels[1]}") if pixels else kind
    text = _text_of(head)
    if text is None or head.startswith(b"%PDF-"):
        if head.startswith(_ARCHIVE) and end in _OFFICE:
            return _OFFICE[end]
        return next((kind for at, start, kind in _BY_START if head.startswith(start, at)), _UNKNOWN)
    if end in (".html", ".htm"):
        return _PAGE
    return _DRAWING if end == ".svg" and "<svg" in text else _TEXTS.get(end, _TEXT)


def viewer_name(name: str, kind: ViewedKind) -> str:
    clean = _UNFIT.sub("_", one_line(name)).lstrip(".- ")[-_MAX_NAME:] or "file"
    return clean if clean.lower().endswith(kind.ends) else clean + kind.ends[0]


def _text_of(head: bytes) -> str | None:
    try:
        text = codecs.getincrementaldecoder("utf-8")().decode(head)
    except UnicodeDecodeError:
        return None
    return None if _BINARY.search(text) else text


_POLICY = (
    "default-src 'none'; script-src 'unsafe-inline' 'unsafe-eval' data: blob:; worker-src data: blob:; "
    "style-src 'unsafe-inline' data:; img-src data: blob:; media-src data: blob:; font-src data:; "
    "form-action 'none'; base-uri 'none'"
)
_START = (
    '<!doctype html><meta charset="utf-8"><meta http-equiv="Content-Security-Policy" '
    f'content="{_POLICY}"><meta name="referrer" content="no-referrer">\n'
).encode()
_IMAGE = b'<img style="max-width: 100%" alt="" src="data:image/svg+xml;base64,', b'">\n'
_PIECE = 3 * 64 * 1024  # base64 takes three bytes at a time


def _write_page(source: Path, target: Path, *, is_drawing: bool) -> None:
    """Write the page, or one that shows the drawing, under a policy by which it loads nothing."""
    with source.open("rb") as page, target.open("wb") as written:
        written.write(_START)
        if is_drawing:
            before, behind = _IMAGE
            written.write(before)
            while piece := page.read(_PIECE):
                written.write(base64.b64encode(piece))
            written.write(behind)
            return
        start = page.read(len(codecs.BOM_UTF8))
        written.write(b"" if start == codecs.BOM_UTF8 else start)
        shutil.copyfileobj(page, written)


MAX_BYTES = 500 << 20  # bytes of one file, and of all, before those that nobody waits for go
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class PrivateFolder:
    """A directory below `above`, with a lock that says that its process lives. All methods block."""

    def __init__(self, above: Path) -> None:
        self._above = above
        self._path: Path | None = None
        self._lock = -1

    def remove_left_over(self) -> None:
        if not self._above.is_dir():
            return
        with self._alone():
            for each in self._above.iterdir():
                lock = _locked(each)
                if lock >= 0:
                    shutil.rmtree(each, ignore_errors=True)
                    os.close(lock)

    def place_for(self, remote: str, in_use: Collection[Path] = ()) -> Path:
        """Return the directory for a file. Once the others hold much, those not `in_use` go. Raise OSError."""
        if self._path is None:
            self._path = self._make()
        place = self._path / hashlib.sha256(os.fsencode(remote)).hexdigest()[:16]
        others = [each for each in self._path.iterdir() if each != place]
        if sum(file.stat().st_size for each in others for file in each.iterdir()) > MAX_BYTES:
            for each in set(others) - set(in_use):
                shutil.rmtree(each, ignore_errors=True)
        place.mkdir(mode=0o700, exist_ok=True)
        return place

    def close(self) -> None:
        if self._path is not None:
            shutil.rmtree(self._path, ignore_errors=True)
            os.close(self._lock)
            self._path = None

    def _make(self) -> Path:
        self._above.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._above.chmod(0o700)
        with self._alone():
            path = Path(tempfile.mkdtemp(dir=self._above))  # 0700
            self._lock = _locked(path)
            return path

    @contextmanager
    def _alone(self) -> Iterator[None]:
        lock = os.open(self._above, _DIRECTORY)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        finally:
            os.close(lock)


def _locked(path: Path) -> int:
    """Lock a directory for as long as the descriptor that is returned is open. -1 if another process has it."""
    try:
        lock = os.open(path, _DIRECTORY)
    except OSError:  # another ccb has removed it, or another user made it
        return -1
    with contextlib.suppress(OSError):
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return lock
    os.close(lock)
    return -1


_STARTS_S = 3.0  # seconds in which a viewer says that it cannot show the file. Some run as long as the person looks.


class NoViewer(Exception):
    """No viewer could be started; the text says why."""


def viewer_command(open_with: str, environ: Mapping[str, str], platform: str = sys.platform) -> list[str]:
    """Return the command that shows the file whose path is put behind it. Raise NoViewer."""
    if open_with:
        try:
            command = shlex.split(open_with)
        except ValueError as error:
            raise NoViewer(f"the setting openWith cannot be read: {error}") from None
    elif platform == "darwin":
        command = ["open"]
    elif environ.get("WSL_DISTRO_NAME") and shutil.which("wslview", path=environ.get("PATH")):
        command = ["wslview"]
    elif environ.get("DISPLAY") or environ.get("WAYLAND_DISPLAY"):
        command = ["xdg-open"]
    else:
        raise NoViewer("no display is known here (DISPLAY and WAYLAND_DISPLAY are not set)")
    if not command or shutil.which(command[0], path=environ.get("PATH")) is None:
        raise NoViewer(f"there is no program {' '.join(command[:1])!r}: set openWith in your settings")
    return command


async def start_viewer(command: list[str], path: Path, environ: Mapping[str, str]) -> None:
    """Start a viewer without the terminal. It outlives this process. Raise NoViewer if it fails at once."""
    try:
        process = Popen(  # noqa: ASYNC220 - asyncio's own would kill it at the end
            [*command, str(path)], stdin=DEVNULL, stdout=DEVNULL, stderr=DEVNULL, start_new_session=True, env=environ
        )
    except OSError as error:
        raise NoViewer(f"{command[0]} cannot be started: {error.strerror}") from None
    try:
        async with asyncio.timeout(_STARTS_S):
            code = await in_thread(process.wait)  # which also reaps one that runs longer
    except TimeoutError:
        return
    if code:
        raise NoViewer(f"{command[0]} could not show it (it ended with code {code})")
