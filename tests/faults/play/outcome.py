"""What came of a session, and what its journal says of it: a client that comes back is not told what it missed."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.model.model_script import Json


@dataclass
class Outcome:
    """`near` was counted on the laptop, `hooked` noted by hooks. `trees` are the worktrees that stay, with their files.
    `left` should be gone, `kept` are the files of ccb that stay, without ids. `first_code` is of a ccb that another
    took over from, `recovered_s` how long each reconnect took, `evidence` for a person."""

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
    seconds: float = 0.0
    evidence: str = ""


def text_of(path: Path) -> str:
    try:
        return path.read_text()
    except FileNotFoundError:
        return ""


def lines_of(path: Path) -> list[str]:
    return text_of(path).splitlines()


@dataclass(frozen=True)
class Progress:
    """`results` counts turns that are over. `idle`: no turn runs, and none is due. `untaken` are ids of `inputs` that
    no turn has taken. `begun` and `ended` count tasks. `told` are inputs and results of all tool calls."""

    results: int
    idle: bool
    inputs: list[str]
    untaken: list[str]
    begun: int
    ended: int
    twice: list[str]
    told: list[tuple[Json, str]]


def progress(path: Path) -> Progress:
    """Read a journal. A line that is being written does not count yet."""
    records = [json.loads(line) for line in text_of(path).split("\n")[:-1]]
    of = {kind: [each["body"] for each in records if each["kind"] == kind] for kind in _KINDS}
    main = {kind: [body for body in bodies if not body.get("agent_id")] for kind, bodies in of.items()}
    prompts = {body["id"]: body["body"] for body in main["input"] if body["body"].get("type") == "user"}
    notices = [body["id"] for body in main["queued"] if body.get("wakes")]
    taken = [item["input"] for body in main["prompt"] for item in body["items"] if "input" in item]
    gone = {*taken, *(body["id"] for body in main["unqueued"])}
    gone |= {body["input_id"] for body in main["taken"]}
    untaken = [each for each in [*prompts, *notices] if each not in gone]
    ids = {
        "input": [body["id"] for body in main["input"]],
        "taken": taken,
        "tool_start": [body["tool_use_id"] for body in of["tool_start"]],
        "queued": [body["id"] for body in main["queued"]],
    }
    told = _told(of["message"])
    return Progress(
        sum(body.get("type") == "result" for body in of["message"]),
        not untaken and len(main["turn_start"]) <= len(main["turn_end"]),
        [json.dumps(body["message"]["content"]) for body in prompts.values()],
        untaken,
        sum("run_in_background" in given and "running in background" in result for given, result in told),
        sum(each.startswith("task:") for each in ids["queued"]),
        [f"{kind} {each}" for kind, found in ids.items() for each, times in Counter(found).items() if times > 1],
        told,
    )


def _told(messages: list[Json]) -> list[tuple[Json, str]]:
    contents = [each["message"]["content"] for each in messages if each.get("type") in ("assistant", "user")]
    blocks = [block for content in contents if isinstance(content, list) for block in content]
    inputs = {block["id"]: block["input"] for block in blocks if block["type"] == "tool_use"}
    results = [block for block in blocks if block["type"] == "tool_result"]
    return [(inputs.get(block["tool_use_id"], {}), str(block["content"])) for block in results]


_KINDS = (
    "input", "queued", "unqueued", "prompt", "taken", "turn_start", "turn_end", "tool_start", "message",
)  # fmt: skip
