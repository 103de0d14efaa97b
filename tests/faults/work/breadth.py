"""Pieces of work with sub-agents, a task in the background, a prompt that is queued, and a compaction."""

from __future__ import annotations

from tests.faults.work.piece import SCRIPT, Answers, Json, Piece, bash, say, tool

FULL = 190_000
"""The tokens that an answer reports so that the conversation is compacted."""


def _task(part: str, **more: str) -> Json:
    given = {"description": f"Do {part}", "prompt": f"part {part}: count", **more}
    return tool("Task", subagent_type="general-purpose", **given)


def _part(part: str, until: str = "") -> Answers:
    return lambda _: [{"blocks": [bash(f"sh {SCRIPT} {part} {until}".strip())]}, {"text": f"{part} is done."}]


def _agents(_: str) -> list[Json]:
    return [
        {"blocks": [say("One agent first."), _task("alone")]},
        {"blocks": [_task("left"), _task("right")]},
        {"text": "The agents are done."},
    ]


def _leave(_: str) -> list[Json]:
    answers = [{"blocks": [bash(f"sh {SCRIPT} leaves looks-runs")]}, {"blocks": [bash("echo left >> left.txt")]}]
    return [*answers, {"text": "It is left there."}]


def _trees(_: str) -> list[Json]:
    tasks = [_task(part, isolation="worktree") for part in ("looks", "leaves")]
    return [{"blocks": tasks}, {"text": "They worked apart."}]


def _background(_: str) -> list[Json]:
    return [{"blocks": [bash(f"sh {SCRIPT} task go", run_in_background=True)]}, {"text": "It runs."}]


def _queue(_: str) -> list[Json]:
    return [{"blocks": [bash(f"sh {SCRIPT} busy said")]}, {"text": "Nothing was said."}]


def _fill(_: str) -> list[Json]:
    return [
        {"blocks": [say("It fills up. " * 20), bash(f"sh {SCRIPT} full")], "usage": {"input_tokens": FULL}},
        {"blocks": [bash(f"sh {SCRIPT} emptied")]},
        {"text": "There is room again."},
    ]


AGENTS = Piece(
    "delegate it",
    _agents,
    ("alone", "left", "left-ended", "right", "right-ended"),
    # Each of the two waits for the other: they run at the same time.
    {
        "part alone:": _part("alone"),
        "part left:": _part("left", "right-runs"),
        "part right:": _part("right", "left-runs"),
    },
    moments=("left-runs", "right-runs"),
)
TREES = Piece(
    "do it apart",
    _trees,
    ("looks", "looks-ended", "leaves", "leaves-ended"),
    kept=("leaves",),
    agents={"part looks:": _part("looks", "leaves-runs"), "part leaves:": _leave},
    moments=("looks-runs", "leaves-runs"),
)
BACKGROUND = Piece("start it", _background, ("task", "task-ended"), moments=("task-runs",), ends="go")
QUEUE = Piece(
    "be busy", _queue, ("busy", "busy-ended"), moments=("busy-runs",), says="words meanwhile", says_at="busy-runs",
    says_then="said",
)  # fmt: skip
FILL = Piece("fill the window", _fill, ("full", "emptied"), moments=("summary",))
