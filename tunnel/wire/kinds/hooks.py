"""The record of hooks."""

from __future__ import annotations

from typing import ClassVar

from ..dataclass import dataclass


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
