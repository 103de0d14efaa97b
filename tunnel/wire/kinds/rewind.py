"""File history and rewinding: the records in the journal, and the requests of clients."""

from __future__ import annotations

from typing import ClassVar

from ..dataclass import dataclass
from ..frames import Json
from ..messages import as_text
from ..requests import RequestKind, RequestRefused, client_kind

DROPS_MORE = "Resume rejected by --resume-drops-turn:"
"""How the refusal begins when more than one turn would be left out. SDK clients compare it."""


@dataclass(frozen=True)
class FileChangeRecord:
    """`file_change`: a tool is about to change the file `path` (with every link resolved). `before` and `after` are the
    digests of its content, "" where there is no file; `mode` are its permission bits before. The content before is in
    the session's file history, unless `lost` says why it is not."""

    kind: ClassVar[str] = "file_change"
    tool_use_id: str
    path: str
    before: str
    after: str
    mode: int = 0
    lost: str = ""


@dataclass(frozen=True)
class RewindRecord:
    """`rewind`: the person goes back to before the message `message`. The records from number `to` on, up to this one,
    no longer belong to the conversation; with 0 the conversation stays as it is. `files` are about to be restored, each
    as {"path", "before", "after", "mode"}, with the digests of its content now and then."""

    kind: ClassVar[str] = "rewind"
    message: str
    to: int
    files: list[Json]
    text: str = ""


@dataclass(frozen=True)
class RewoundRecord:
    """`rewound`: the files of the last `rewind` are restored, but for those in `failed`: {"path", "why"}."""

    kind: ClassVar[str] = "rewound"
    failed: list[Json]


@dataclass(frozen=True)
class FileRewind:
    """Restore the files that were changed since the message. With `dry_run`, only say what would change; with `path`,
    of that file alone, with the lines."""

    user_message_id: str
    dry_run: bool = False
    path: str = ""


@dataclass(frozen=True)
class ConversationRewind:
    """Take the conversation back to before the prompt `user_message_id`, or to after the message `after`. With
    `files`, restore the files as well. `drops`: refuse if more than the turn of this prompt would be left out."""

    user_message_id: str = ""
    after: str = ""
    files: bool = False
    drops: str = ""


def _read_files(fields: Json) -> FileRewind:
    if not as_text(fields.get("user_message_id")):
        raise RequestRefused("rewind_files needs a user_message_id")
    dry_run = fields.get("dry_run") is True
    return FileRewind(as_text(fields["user_message_id"]), dry_run, as_text(fields.get("path")) if dry_run else "")


def _read_conversation(fields: Json) -> ConversationRewind:
    message, after = as_text(fields.get("user_message_id")), as_text(fields.get("after"))
    if bool(message) == bool(after):
        raise RequestRefused("rewind_conversation needs a user_message_id or the message to go back to in `after`")
    return ConversationRewind(message, after, fields.get("files") is True, as_text(fields.get("drops")))


def _write_files(rewind: FileRewind) -> Json:
    path = {"path": rewind.path} if rewind.path else {}
    return {"user_message_id": rewind.user_message_id, "dry_run": rewind.dry_run, **path}


def _write_conversation(rewind: ConversationRewind) -> Json:
    given = {
        "user_message_id": rewind.user_message_id,
        "after": rewind.after,
        "files": rewind.files,
        "drops": rewind.drops,
    }
    return {name: value for name, value in given.items() if value}


REWIND_FILES: RequestKind[FileRewind, Json] = client_kind("rewind_files", _read_files, _write_files)
REWIND_CONVERSATION: RequestKind[ConversationRewind, Json] = client_kind(
    "rewind_conversation", _read_conversation, _write_conversation
)
REWIND_POINTS: RequestKind[None, Json] = client_kind("rewind_points", lambda fields: None)
