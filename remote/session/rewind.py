"""Back to an earlier prompt."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial

from ccb.tunnel.wire import client_requests as requests
from ccb.tunnel.wire import journal_records
from ccb.tunnel.wire.control_protocol import RequestRefused
from ccb.tunnel.wire.dataclass import dataclass
from ccb.tunnel.wire.frames import Json
from ccb.tunnel.wire.journal_records import MAIN_AGENT, Record
from ccb.tunnel.wire.messages import UserMessage
from ccb.tunnel.wire.spelling import spelled, unspelled

from ..agent.conversation import Conversation, close_open_tool_uses
from ..session_store.file_history import Point, RewindPoints
from ..system.deadline import in_thread
from ..system.regular_files import ABSENT, FileChanged, NotAFile, digest_of
from ..system.text_encoding import shown
from ..tools.file_access import MAX_BYTES
from ..tools.text_changes import MAX_BYTES as PATCH_BYTES
from ..tools.text_changes import compared
from ..tools.tool_contract import ToolContext
from .session import Session

_LOST = "its earlier content is not kept any more"
_BUSY = "The agent is working: interrupt it first, then go back."
_CUT = "The conversation was taken back to before this tool ended. What it had done until then stays done."
_MAX_TEXT = 200
_MAX_NAMED = 50  # files in the note to the model


@dataclass(frozen=True)
class PlannedFile:
    """A file that is not as it was. `before`, `after`: digests now and then; `foreign`: last changed by something else;
    `why` it cannot be restored; `diff`: the changed lines, if asked for."""

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
        does = "remove" if self.after == ABSENT else "create" if self.before == ABSENT else "change"
        more = {"changedElsewhere": self.foreign, "why": self.why}
        diff = {name: self.diff[name] for name in ("patch", "complete")} if self.diff is not None else {}
        told = {"path": self.path, "insertions": self.added, "deletions": self.removed, "does": does, **diff}
        return told | {name: value for name, value in more.items() if value}


async def _planned(
    context: ToolContext, points: RewindPoints, change: journal_records.FileChangeRecord, keep: bool, *, lines: bool
) -> PlannedFile | None:
    path = change.path
    try:
        info = await context.host.stat(unspelled(path))
        data = await context.host.read(unspelled(path), 0, MAX_BYTES + 1) if info is not None else b""
        if len(data) > MAX_BYTES:
            raise NotAFile(f"it has more than {MAX_BYTES:,} bytes now")
        real = spelled(await in_thread(context.host.real_path, unspelled(path)))
    except (OSError, NotAFile) as error:
        return PlannedFile(path, ABSENT, change.before, why=str(error))
    now = ABSENT if info is None else digest_of(data)
    if now == change.before:
        return None
    if real != path:
        return PlannedFile(path, now, change.before, why=f"its path leads to {real} now")
    then = b"" if change.before == ABSENT else await in_thread(context.history.load, change.before)
    if then is None:
        return PlannedFile(path, now, change.before, why=change.lost or _LOST)
    if keep and info is not None:
        await in_thread(context.history.keep, data)
    old, new = shown(data), shown(then)
    stats = await in_thread(compared, old, new, 0)
    mode = change.mode or (info.mode if info is not None else 0)
    foreign = now != points.latest.get(path)
    diff = await in_thread(compared, new, old, PATCH_BYTES) if lines else None
    return PlannedFile(path, now, change.before, mode, stats["added"], stats["removed"], foreign, diff=diff)


def register_rewinds(session: Session) -> None:
    session.broker.register(requests.REWIND_FILES, partial(_rewind_files, session))
    session.broker.register(requests.REWIND_CONVERSATION, partial(_rewind_conversation, session))
    session.broker.register(requests.REWIND_POINTS, lambda _: _points(session))


async def finish_rewind(session: Session) -> None:
    unfinished = session.log.points.unfinished
    if unfinished is not None:
        await _restore(session, unfinished.files)


async def _points(session: Session) -> Json:
    points, listed = session.log.points, []
    for point in reversed(points.points):
        told = {"id": point.id, "text": point.text[:_MAX_TEXT], "prompt": point.text, "time": point.time}
        listed.append({**told, "files": len(points.changed_since(point.seq))})
    return {"points": listed, "files_kept": bool(session.agent.config.context.history.directory), "summaries": True}


def _point(session: Session, message: str) -> Point:
    for point in session.log.points.points:
        if message and point.id == message:
            return point
    raise RequestRefused(f"No prompt with the id {message[:80]} can be gone back to.", "unknown_message")


async def _rewind_files(session: Session, rewind: requests.FileRewind) -> Json:
    point = _point(session, rewind.user_message_id)
    if rewind.dry_run:
        return _described(await _plan(session, point.seq, keep=False, only=rewind.path))
    async with session.turns.idle() as idle:
        if not idle:
            raise RequestRefused(_BUSY, "busy")
        files = await _plan(session, point.seq, keep=True)
        if all(each.why for each in files):
            return _described(files)
        return await _carry_out(session, point.id, 0, files)


async def _rewind_conversation(session: Session, rewind: requests.ConversationRewind) -> Json:
    if session.agent.program is not None:
        raise RequestRefused(f"{session.agent.program.name} cannot go back in its conversation.", "unknown_message")
    async with session.turns.idle() as idle:
        if not idle:
            raise RequestRefused(_BUSY, "busy")
        if rewind.after:
            to, message, text = await _end_of(session, rewind.after) + 1, rewind.after, ""
            if rewind.drops:
                rewound = list(session.log.journal.rewound)
                await session.log.journal.examined(lambda records: _check_drops(records, to, rewind.drops, rewound))
        else:
            point = _point(session, rewind.user_message_id)
            to, message, text = point.seq, point.id, point.text
        files = await _plan(session, to - 1, keep=True) if rewind.files else []
        return {**await _carry_out(session, message, to, files, text), "prompt": text}


async def _carry_out(session: Session, message: str, to: int, files: Sequence[PlannedFile], text: str = "") -> Json:
    """Record the rewind, durably, before anything changes; then restore the files."""
    log, agent = session.log, session.agent
    named = ("path", "before", "after", "mode")
    wanted: list[Json] = [{name: getattr(each, name) for name in named} for each in files if not each.why]
    log.emit(journal_records.RewindRecord(message, to, wanted, text[:_MAX_TEXT]))
    await log.commit()
    if to:
        rewound, context = list(log.journal.rewound), agent.config.context
        conversation = await log.journal.examined(partial(Conversation.from_records, rewound=rewound))
        for closed in close_open_tool_uses(conversation, _CUT):
            log.emit(journal_records.MessageRecord(closed.body))
        agent.rewind(conversation)
        context.files.forget()
        context.todos.use(log.snapshot.todos)
    return {**_described(files), "failed": await _restore(session, wanted) if wanted else []}


async def _restore(session: Session, files: Sequence[Json]) -> list[Json]:
    """Restore files, and tell the model. Return failures. May be done again after it was cut off."""
    context, failed, restored = session.agent.config.context, [], []
    for each in files:
        path, after, data, why = each["path"], each["after"], None, ""
        if after != ABSENT:
            data = await in_thread(context.history.load, after)
            why = _LOST if data is None else ""
        if not why:
            try:
                await context.host.restore(unspelled(path), data, each["before"], each["mode"])
            except FileChanged:
                why = "it was changed meanwhile"
            except (OSError, NotAFile) as error:
                why = str(error)
        if why:
            failed.append({"path": path, "why": why})
        else:
            restored.append(path)
    session.log.emit(journal_records.RewoundRecord(failed))
    await session.log.commit()
    if restored:
        told = "The user has put these files back to an earlier version. Read them again before use:"
        session.agent.reminders.add("rewind", "\n".join([told, *restored[:_MAX_NAMED]]))
    return failed


async def _end_of(session: Session, message: str) -> int:
    def end(records: Iterable[Record]) -> int | None:
        of_main = (
            each for each in records if each.kind == journal_records.MessageRecord.kind and each.agent_id == MAIN_AGENT
        )
        return next((record.seq for record in of_main if record.body.get("uuid") == message), None)

    found = await session.log.journal.examined(end)
    if found is None:
        raise RequestRefused(f"The session has no message with the id {message[:80]}.", "unknown_message")
    return found


def _check_drops(records: Iterable[Record], to: int, prompt: str, rewound: Sequence[tuple[int, int]]) -> None:
    """Raise RequestRefused if the conversation from `to` on holds more than the turn of one prompt."""
    uuids: dict[str, str] = {}  # of the prompts, by the ids of their inputs
    begun = False
    for record in records:
        content = record.content
        if isinstance(content, journal_records.InputRecord) and isinstance(content.public, UserMessage):
            uuids[content.id] = str(content.body.get("uuid"))
        if record.seq < to or record.agent_id != MAIN_AGENT:
            continue
        if any(start <= record.seq <= end for start, end in rewound):
            continue
        if isinstance(content, journal_records.PromptRecord):
            begun = True
            if any(uuids.get(each) != prompt for each in content.input_ids):
                why = "another prompt, or a notice of a task, would be left out too"
                raise RequestRefused(f"{requests.DROPS_MORE} {why}")
        elif not begun and record.kind == "message" and record.body.get("type") in ("assistant", "user"):
            raise RequestRefused(f"{requests.DROPS_MORE} that message is not the last one of its turn")


async def _plan(session: Session, seq: int, *, keep: bool, only: str = "") -> list[PlannedFile]:
    """Return the files that are not as they were at `seq`. `keep` their content; `only`: one file, with its lines."""
    context, points = session.agent.config.context, session.log.points
    if seq < points.complete_since:
        text = "So many files were changed since then that not all changes are known any more."
        raise RequestRefused(text, "too_old")
    changes = [each for each in points.changed_since(seq) if only in ("", each.path)]
    found = [await _planned(context, points, change, keep, lines=bool(only)) for change in changes]
    return [each for each in found if each is not None]


def _described(files: Sequence[PlannedFile]) -> Json:
    possible = [each for each in files if not each.why]
    return {
        "canRewind": True,
        "filesChanged": [each.path for each in possible],
        "insertions": sum(each.added for each in possible),
        "deletions": sum(each.removed for each in possible),
        "files": [each.public() for each in files],
    }
