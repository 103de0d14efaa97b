"""Which files change when the person goes back, and restoring them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from ccb.tunnel.wire.dataclass import dataclass
from ccb.tunnel.wire.spelling import spelled, unspelled

from ..file_history.points import FileChange, RewindPoints
from ..system.host import Host
from ..system.regular_files import ABSENT, FileChanged, FileInfo, FileKind, NotAFile, digest_of
from ..system.text_encoding import shown
from ..tools.contract import ToolContext
from ..tools.files.edit_common import MAX_BYTES
from ..tools.files.patch import MAX_BYTES as PATCH_BYTES
from ..tools.files.patch import compared

Json = dict[str, Any]

_LOST = "its earlier content is not kept any more"


@dataclass(frozen=True)
class PlannedFile:
    """A file that is not as it was. `before` and `after` are the digests of its content now and then (ABSENT for no
    file); `added` and `removed` count the lines that restoring it changes. `foreign`: something other than the tools of
    this session has changed it last. `why` says why it cannot be restored, "" if it can. `diff` holds the lines of what
    was changed since then, if they were asked for."""

    path: str
    before: str
    after: str
    mode: int = 0
    added: int = 0
    removed: int = 0
    foreign: bool = False
    why: str = ""
    diff: Json | None = None

    def public(self) -> Json:
        """Return the file as clients are shown it."""
        does = "remove" if self.after == ABSENT else "create" if self.before == ABSENT else "change"
        shown: Json = {"path": self.path, "insertions": self.added, "deletions": self.removed, "does": does}
        if self.foreign:
            shown["changedElsewhere"] = True
        if self.why:
            shown["why"] = self.why
        if self.diff is not None:
            shown.update(patch=self.diff["patch"], complete=self.diff["complete"])
        return shown

    def recorded(self) -> Json:
        """Return the file for the journal."""
        return {"path": self.path, "before": self.before, "after": self.after, "mode": self.mode}


async def plan(
    context: ToolContext, points: RewindPoints, seq: int, *, keep: bool, only: str = ""
) -> list[PlannedFile]:
    """Return the files that have changed since record `seq` and are not as they were. `keep`: put their present content
    into the file history, so that a person can go back to it. `only`: look at one file, and tell its lines."""
    changes = [each for each in points.changed_since(seq) if only in ("", each.path)]
    found = [await _planned(context, points, change, keep, lines=bool(only)) for change in changes]
    return [each for each in found if each is not None]


async def _planned(
    context: ToolContext, points: RewindPoints, change: FileChange, keep: bool, *, lines: bool
) -> PlannedFile | None:
    loop, path = asyncio.get_running_loop(), change.path
    try:
        info, data = await _present(context.host, unspelled(path))
        real = spelled(await loop.run_in_executor(None, context.host.real_path, unspelled(path)))
    except (OSError, NotAFile) as error:
        return PlannedFile(path, ABSENT, change.before, why=str(error))
    now = ABSENT if info is None else digest_of(data)
    if now == change.before:
        return None
    if real != path:
        return PlannedFile(path, now, change.before, why=f"its path leads to {real} now")
    then = b"" if change.before == ABSENT else await loop.run_in_executor(None, context.history.load, change.before)
    if then is None:
        return PlannedFile(path, now, change.before, why=change.lost or _LOST)
    if keep and info is not None:
        await loop.run_in_executor(None, context.history.keep, data)
    old, new = shown(data), shown(then)
    stats = await loop.run_in_executor(None, compared, old, new, 0)
    mode = change.mode or (info.mode if info is not None else 0)
    foreign = now != points.latest.get(path)
    diff = await loop.run_in_executor(None, compared, new, old, PATCH_BYTES) if lines else None
    return PlannedFile(path, now, change.before, mode, stats["added"], stats["removed"], foreign, diff=diff)


async def _present(host: Host, path: str) -> tuple[FileInfo | None, bytes]:
    """Return what is at a path now. Raise OSError or NotAFile."""
    info = await host.stat(path)
    if info is None:
        return None, b""
    if info.kind is not FileKind.FILE:
        raise NotAFile(f"it is a {info.kind.value} now")
    if info.size > MAX_BYTES:
        raise NotAFile(f"it has {info.size:,} bytes now")
    return info, await host.read(path, 0, MAX_BYTES + 1)


async def restore(context: ToolContext, files: Sequence[Json]) -> list[Json]:
    """Restore the files of a `rewind` record. Return those that could not be restored, each with the reason. It may be
    done again after it was cut off: a file that is as it should be is left alone."""
    failed = []
    for each in files:
        path, before, after, mode = each["path"], each["before"], each["after"], each["mode"]
        why = await _restored(context, path, before, after, mode)
        if why:
            failed.append({"path": path, "why": why})
    return failed


async def _restored(context: ToolContext, path: str, before: str, after: str, mode: int) -> str:
    loop, data = asyncio.get_running_loop(), None
    if after != ABSENT:
        data = await loop.run_in_executor(None, context.history.load, after)
        if data is None:
            return _LOST
    try:
        await context.host.restore(unspelled(path), data, before, mode)
    except FileChanged:
        return "it was changed meanwhile"
    except (OSError, NotAFile) as error:
        return str(error)
    return ""
