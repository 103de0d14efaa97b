"""The pieces of the basic work: reading, editing, counting, an interrupt, a question."""

from __future__ import annotations

from tests.faults.work.piece import Json, Piece, bash, say, tool

INTERRUPT_AT = "waiting"
"""The file that says that the tool of the second turn runs."""

QUESTION: Json = {
    "question": "Which end?",
    "header": "End",
    "options": [{"label": label, "description": f"The {label} one"} for label in ("good", "bad")],
}


def _look(home: str) -> list[Json]:
    ticks = "for n in 1 2 3 4 5; do echo tick $n >> count; sleep 0.1; done; echo ticked"
    return [
        {
            "blocks": [
                say("I look at the files and count. " * 8),
                tool("Read", file_path=f"{home}/a.txt"),
                tool("Read", file_path=f"{home}/b.txt"),
                tool("Read", file_path=f"{home}/edit.txt"),
                bash("echo one >> count; echo counted"),
            ],
            "delay": 0.004,
        },
        {
            "blocks": [
                tool("Edit", file_path=f"{home}/edit.txt", old_string="old line", new_string="new line"),
                bash("echo two >> count; echo asked"),
            ]
        },
        {"blocks": [say("Now the long one."), bash(ticks)]},
        {"text": "The first part is done, and this is a longer sentence about it. " * 6, "delay": 0.004},
    ]


def _wait(_: str) -> list[Json]:
    return [{"blocks": [bash(f"touch {INTERRUPT_AT}; sleep 60; echo never >> count")]}]


def _finish(home: str) -> list[Json]:
    return [
        {
            "blocks": [
                tool("AskUserQuestion", questions=[QUESTION]),
                tool("Write", file_path=f"{home}/new.txt", content="written once\n"),
                bash("echo three >> count; echo third"),
            ]
        },
        {"text": "All of it is done.", "delay": 0.01},
    ]


LOOK = Piece("first: look and count", _look, ("one", "two", *(f"tick {n}" for n in range(1, 6))))
WAIT = Piece("second: wait for me", _wait, interrupt_at=INTERRUPT_AT, moments=(INTERRUPT_AT,))
FINISH = Piece("third: finish", _finish, ("three",))
