"""What came of a session."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Json = dict[str, Any]


@dataclass
class Outcome:
    """`near` is what was counted on the laptop. `hooked` are the commands that hooks have noted. `trees` are the
    worktrees that stay, with what was left there; `told` are the inputs and results of tool calls. `twice` and
    `untaken` say what the journal tells of things that happened twice and of words that no turn has taken. `left` are
    processes and runtime files that should be gone, `kept` the files of ccb that stay on the host, with ids and hashes
    replaced. `first_code` is the exit code of a ccb that another one took over from, `recovered_s` how long each
    reconnect took from the moment the loss was known, `replayed` the bytes of the journal that were sent again (known
    with `debug`), `evidence` the ends of the journal and of the logs."""

    home: str = ""
    messages: list[Json] = field(default_factory=list)
    code: int = -1
    first_code: int = 0
    stderr: str = ""
    requests: int = 0
    counts: list[str] = field(default_factory=list)
    near: list[str] = field(default_factory=list)
    hooked: list[str] = field(default_factory=list)
    trees: dict[str, str] = field(default_factory=dict)
    told: list[tuple[Json, str]] = field(default_factory=list)
    files: dict[str, str] = field(default_factory=dict)
    twice: list[str] = field(default_factory=list)
    untaken: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    kept: set[str] = field(default_factory=set)
    happened: list[str] = field(default_factory=list)
    connections: int = 0
    recovered_s: list[float] = field(default_factory=list)
    replayed: int = 0
    seconds: float = 0.0
    evidence: str = ""


def text_of(path: Path) -> str:
    """The text of a file, "" without one."""
    try:
        return path.read_text()
    except FileNotFoundError:
        return ""


def lines_of(path: Path) -> list[str]:
    return text_of(path).splitlines()
