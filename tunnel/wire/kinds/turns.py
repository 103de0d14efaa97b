"""The records of what a turn does beside its messages: hooks and compactions."""

from __future__ import annotations

from typing import ClassVar

from ..dataclass import dataclass


@dataclass(frozen=True)
class CompactStartRecord:
    """`compact_start`: the model is about to be asked for a summary of the conversation, by `trigger` (manual or auto).
    `hint` is what the person wants it to keep. A `compact_boundary` message or a `compact_end` follows, unless the
    worker dies before."""

    kind: ClassVar[str] = "compact_start"
    trigger: str
    hint: str = ""


@dataclass(frozen=True)
class CompactEndRecord:
    """`compact_end`: there is no summary. `outcome` is `failed` or `interrupted`."""

    kind: ClassVar[str] = "compact_end"
    outcome: str


@dataclass(frozen=True)
class HookRecord:
    """`hook`: `count` hooks are about to run. It is durable before they run. `match` is what their matchers were
    compared with, `about` the id of a tool call. `once` are the keys of those among them that never run again, with
    blanks between."""

    kind: ClassVar[str] = "hook"
    event: str
    match: str = ""
    about: str = ""
    count: int = 0
    once: str = ""
