"""Fetches the files that the person wants to look at, and opens each after a key press.

Only a command that the person types fetches a file, and only a key that they press while its name, kind and size are
on the screen opens it.
"""

from __future__ import annotations

import os
import posixpath
import stat
from collections.abc import Mapping
from pathlib import Path

from ccb.tunnel.errors import CcbError, CopyFailed, UsageError
from ccb.tunnel.plain_text import one_line
from ccb.tunnel.wire.dataclass import dataclass

from ...terminal.stdio import in_thread
from ..copy import CopyOrder
from ..orders import open_path
from ..progress import size_of
from ..transfers import Transfer, Transfers, outcome
from .kinds import HEAD_BYTES, ViewedKind, kind_of, viewer_name
from .pages import write_drawing, write_page
from .private_folder import MAX_BYTES, NoRoom, PrivateFolder
from .viewer import NoViewer, start_viewer, viewer_command

_CONTENT = "content"
_MAX_OFFERED = 20


@dataclass(frozen=True)
class FetchedFile:
    """A file that waits for the person's key. `path` is where the viewer finds it."""

    path: Path
    kind: ViewedKind
    size: int

    @property
    def name(self) -> str:
        """The name that the viewer sees. It holds no character that could mislead."""
        return self.path.name

    @property
    def text(self) -> str:
        """Name, kind and size, and what the person should know before."""
        note = f" · {self.kind.note}" if self.kind.note else ""
        return f"{self.name} · {self.kind.label} · {size_of(self.size)}{note}"


class FetchedFiles:
    """The files that were fetched to be looked at. `offered` waits for the person, the first one first. Use with
    `async with`: at its end the files go."""

    def __init__(
        self, transfers: Transfers, folder: PrivateFolder, open_with: str = "", environ: Mapping[str, str] = os.environ
    ) -> None:
        self._transfers = transfers
        self._folder = folder
        self._open_with = open_with
        self._environ = environ
        self.offered: list[FetchedFile] = []
        self._coming: dict[int, Path] = {}  # the directories of what is under way, by the numbers of the copies

    async def __aenter__(self) -> FetchedFiles:
        await in_thread(self._folder.remove_left_over)
        return self

    async def __aexit__(self, *_: object) -> None:
        await in_thread(self._folder.close)

    def fetch(self, argument: str, cwd: str) -> Transfer:
        """Start to fetch the file that the person has named. Raise UsageError, CopyFailed."""
        remote = open_path(argument, cwd)
        if len(self.offered) >= _MAX_OFFERED:
            raise UsageError(f"{_MAX_OFFERED} files wait for you already", do="Open them, or put them away.")
        try:
            in_use = [*(each.path.parent for each in self.offered), *self._coming.values()]
            target = self._folder.place_for(remote, in_use) / _CONTENT
        except NoRoom as error:
            raise UsageError(
                f"the files that wait for you hold {size_of(error.size)} already", do="Open them, or put them away."
            ) from error
        except OSError as error:
            raise CopyFailed(
                f"there is no private place for the file: {error.strerror}",
                evidence=str(error.filename or ""),
                do="Mend that, or copy it with /get.",
            ) from error
        transfer = self._transfers.start(CopyOrder(False, str(target), remote, private=True, most=MAX_BYTES))
        self._coming[transfer.number] = target.parent
        return transfer

    async def arrived(self, transfer: Transfer) -> FetchedFile | CcbError | None:
        """Wait for a file and offer it. Return the error if it cannot be had or must not be opened, None if it was
        broken off."""
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
        """The name of the program that would open a file, or ""."""
        try:
            return _program(viewer_command(self._open_with, self._environ))
        except NoViewer:
            return ""

    async def open_file(self, file: FetchedFile) -> str:
        """Open a file that the person has agreed to. Return what has happened, in words. Raise CopyFailed."""
        try:
            command = viewer_command(self._open_with, self._environ)
            await start_viewer(command, file.path, self._environ)
        except NoViewer as error:
            raise CopyFailed(
                f"{file.name} was not opened: {error}",
                evidence=f"It is {file.path} until you leave this session.",
                do="Open it there, or copy it to a place of yours with /get.",
            ) from error
        return f"Opened {file.name} with {_program(command)}"

    def take_first(self) -> FetchedFile | None:
        """Return the first file that waits, which is offered no longer, or None."""
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
        write = write_drawing if name.lower().endswith(".svg") else write_page
        write(content, path)
        path.chmod(stat.S_IRUSR | stat.S_IWUSR)
        content.unlink()
    else:
        content.rename(path)
    return FetchedFile(path, kind, size)
