"""The pieces of work of a session that faults happen to, a turn each."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

Json = dict[str, Any]

Answers = tuple[Json, ...]  # of a model, in order; paths are those of the session's directory

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
    """One turn. `agents` are the answers of sub-agents by a word in their prompts. `counts` are lines for the file
    `count`, `near` those on the laptop, `kept` agents that leave a changed worktree, `moments` files, or "summary",
    that say that it is in the midst of something. The client interrupts at the file `interrupt_at`; says `says` at
    `says_at` and makes `says_then` when that is in the journal; makes `ends` after the turn, which ends a task, and
    waits for the turn about that."""

    prompt: str
    answers: Answers
    counts: tuple[str, ...] = ()
    agents: Mapping[str, Answers] = field(default_factory=dict)
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


INTERRUPT_AT = "waiting"  # the file that says that the tool of the second turn runs

QUESTION: Json = {
    "question": "Which end?",
    "header": "End",
    "options": [{"label": label, "description": f"The {label} one"} for label in ("good", "bad")],
}


def uses(*blocks: Json, **more: object) -> Json:
    return {"blocks": list(blocks), **more}


_TICKS = "for n in 1 2 3 4 5; do echo tick $n >> count; sleep 0.1; done; echo ticked"
_READS = [tool("Read", file_path=name) for name in ("a.txt", "b.txt", "edit.txt")]
_LOOKED = (*_READS, bash("echo one >> count; echo counted"))
LOOK = Piece(
    "first: look and count",
    (
        uses(say("I look at the files and count. " * 8), *_LOOKED, delay=0.004),
        uses(
            tool("Edit", file_path="edit.txt", old_string="old line", new_string="new line"),
            bash("echo two >> count; echo asked"),
        ),
        uses(say("Now the long one."), bash(_TICKS)),
        {"text": "The first part is done, and this is a longer sentence about it. " * 6, "delay": 0.004},
    ),
    ("one", "two", *(f"tick {n}" for n in range(1, 6))),
)
WAIT = Piece(
    "second: wait for me", (uses(bash(f"touch {INTERRUPT_AT}; sleep 60; echo never >> count")),),
    interrupt_at=INTERRUPT_AT, moments=(INTERRUPT_AT,),
)  # fmt: skip
_FINISHED = [tool("Write", file_path="new.txt", content="written once\n"), bash("echo three >> count; echo third")]
FINISH = Piece(
    "third: finish",
    (uses(tool("AskUserQuestion", questions=[QUESTION]), *_FINISHED), {"text": "All of it is done.", "delay": 0.01}),
    ("three",),
)

FULL = 190_000  # the tokens that an answer reports so that the conversation is compacted


def _task(part: str, **more: str) -> Json:
    given = {"description": f"Do {part}", "prompt": f"part {part}: count", **more}
    return tool("Task", subagent_type="general-purpose", **given)


def _part(part: str, until: str = "") -> Answers:
    return uses(bash(f"sh {SCRIPT} {part} {until}".strip())), {"text": f"{part} is done."}


AGENTS = Piece(
    "delegate it",
    (
        uses(say("One agent first."), _task("alone")),
        uses(_task("left"), _task("right")),
        {"text": "The agents are done."},
    ),
    ("alone", "left", "left-ended", "right", "right-ended"),
    # Each of the two waits for the other: they run at the same time.
    {
        "part alone:": _part("alone"),
        "part left:": _part("left", "right-runs"),
        "part right:": _part("right", "left-runs"),
    },
    moments=("left-runs", "right-runs"),
)
_LEAVE = (
    uses(bash(f"sh {SCRIPT} leaves looks-runs")), uses(bash("echo left >> left.txt")), {"text": "It is left there."},
)  # fmt: skip
TREES = Piece(
    "do it apart",
    (uses(*(_task(part, isolation="worktree") for part in ("looks", "leaves"))), {"text": "They worked apart."}),
    ("looks", "looks-ended", "leaves", "leaves-ended"),
    kept=("leaves",),
    agents={"part looks:": _part("looks", "leaves-runs"), "part leaves:": _LEAVE},
    moments=("looks-runs", "leaves-runs"),
)
BACKGROUND = Piece(
    "start it", (uses(bash(f"sh {SCRIPT} task go", run_in_background=True)), {"text": "It runs."}),
    ("task", "task-ended"), moments=("task-runs",), ends="go",
)  # fmt: skip
QUEUE = Piece(
    "be busy", (uses(bash(f"sh {SCRIPT} busy said")), {"text": "Nothing was said."}), ("busy", "busy-ended"),
    moments=("busy-runs",), says="words meanwhile", says_at="busy-runs", says_then="said",
)  # fmt: skip
FILL = Piece(
    "fill the window",
    (
        uses(say("It fills up. " * 20), bash(f"sh {SCRIPT} full"), usage={"input_tokens": FULL}),
        uses(bash(f"sh {SCRIPT} emptied")),
        {"text": "There is room again."},
    ),
    ("full", "emptied"),
    moments=("summary",),
)


NAME, NEAR_NAME = "tally", "purse"
ALLOWED = f"mcp__{NAME}"

REFUSED = "refused"  # the word that the person does not let the server on the laptop count

SERVER = """
import json, os, sys, time
tool = {"name": "count", "inputSchema": {"type": "object"}}
for line in sys.stdin:
    asked = json.loads(line)
    result = {"capabilities": {"tools": {}}, "tools": [tool]}
    if asked["method"] == "initialize":
        result |= {"protocolVersion": "2025-06-18", "serverInfo": {"name": "counter", "version": "1"}}
    if asked["method"] == "tools/call":
        given = asked["params"]["arguments"]
        word, until = given["word"], given.get("until", ".")
        open("count", "a").write(word + "\\n")
        open(word + "-runs", "w").close()
        time.sleep(given.get("seconds", 0.3))
        while not os.path.exists(until):
            time.sleep(0.05)
        open("count", "a").write(word + "-ended\\n")
        result = {"content": [{"type": "text", "text": "counted " + word}]}
    if "id" in asked:
        print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result}), flush=True)
"""
"""Counts words. A call lasts for some `seconds`, so that a disturbance can come in its middle. With `until`, it ends
when that file exists."""

COMMAND = {"command": "python3", "args": ["-I", "-S", "-c", SERVER]}
MCP_JSON = json.dumps({"mcpServers": {NAME: COMMAND}})


def count(word: str, *, server: str = NAME, **more: object) -> Json:
    return tool(f"mcp__{server}__count", word=word, **more)


SERVE = Piece(
    "use the server", (uses(count("served")), uses(count("again")), {"text": "It has counted."}),
    ("served", "served-ended", "again", "again-ended"), moments=("served-runs", "again-runs"),
)  # fmt: skip
_SPENT = [uses(count(word, server=NEAR_NAME, seconds=1)) for word in ("spent", REFUSED)]
SPEND = Piece(
    "use mine", (*_SPENT, {"text": "It has counted on the laptop."}),
    near=("spent", "spent-ended"), moments=("spent-runs",),
)  # fmt: skip
