"""A piece of work: one turn of a session that faults happen to."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

Json = dict[str, Any]
Answers = Callable[[str], list[Json]]
"""The answers of a model in a home directory, in order."""

SCRIPT = "work.sh"
SCRIPT_TEXT = """\
# LINE [FILE]: add a line to `count`; with FILE, say that it runs, and end when FILE exists. All that is in the home.
cd
echo "$1" >> count
[ -z "$2" ] || {
    touch "$1-runs"
    while [ ! -e "$2" ]; do sleep 0.05; done
    sleep 0.2
    echo "$1-ended" >> count
}
echo "$1-done"
"""


@dataclass(frozen=True)
class Piece:
    """One turn. `agents` are the answers of sub-agents by a word in their prompts, `systems` those of agents of the
    project by words in their system prompts. `counts` are the lines that it adds to the file `count`, `near` those that
    it adds on the laptop. `kept` are the agents that leave a changed worktree. `moments` say that it is in the midst of
    something: names of files, or "summary".

    What the client does in it: interrupts when the file `interrupt_at` exists; says `says` when the file `says_at`
    exists, and makes `says_then` when that is in the journal; makes `ends` when the turn is over, which ends a task in
    the background, and a turn about that follows."""

    prompt: str
    answers: Answers
    counts: tuple[str, ...] = ()
    agents: Mapping[str, Answers] = field(default_factory=dict)
    systems: Mapping[str, Answers] = field(default_factory=dict)
    near: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    moments: tuple[str, ...] = ()
    interrupt_at: str = ""
    says: str = ""
    says_at: str = ""
    says_then: str = ""
    ends: str = ""


def bash(command: str, **more: object) -> Json:
    return tool("Bash", command=command, **more)


def tool(name: str, **given: object) -> Json:
    return {"type": "tool_use", "name": name, "input": given}


def say(text: str) -> Json:
    return {"type": "text", "text": text}
