"""What a session that faults happen to does. The model is a function of the history it is given, so a repeated request
gets the same answer, and after one that broke off between its tool calls it goes on with the next."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tests.faults.work import pieces
from tests.faults.work.pieces import SCRIPT, Json, Piece
from tests.support.model.model_script import Recorded

SUMMARY = "summary"  # the moment at which the model is asked for one

_FILES = {
    "a.txt": "alpha\n" * 40,
    "b.txt": "beta\n" * 40,
    "edit.txt": "old line\nkept line\n",
    SCRIPT: pieces.SCRIPT_TEXT,
}

_ALLOWED = (
    *("Bash(echo one*)", "Bash(echo left*)", "Bash(for *)", "Bash(touch *)", f"Bash(sh {SCRIPT} *)"),
    *("Edit", "Write"),
)
_DID = "What was called:"
_ENDED = "<task-notification>"
_HOOK = """grep -o '"command": *"[^"]*' | head -n 1 | sed 's/^/%s /' >> ~/hooked; sleep 0.1"""
_HOOKS = {
    event: [{"matcher": "Bash", "hooks": [{"type": "command", "command": _HOOK % event}]}]
    for event in ("PreToolUse", "PostToolUse")
}


@dataclass(frozen=True)
class Work:
    """The turns of a session, and how often they ask the model. `hooked`: hooks note each command. `served`: the
    project has an MCP server, and so has the laptop."""

    pieces: tuple[Piece, ...]
    requests: int
    hooked: bool = False
    served: bool = False

    @property
    def flags(self) -> list[str]:
        allowed = ["--allowedTools", ",".join((*_ALLOWED, pieces.ALLOWED))]
        allowed += ["--trust"] if self.served else []
        return [*allowed, "--settings", json.dumps({"hooks": _HOOKS})] if self.hooked else allowed

    @property
    def files(self) -> dict[str, str]:
        served = {".mcp.json": pieces.MCP_JSON} if self.served else {}
        return {**_FILES, **served}

    @property
    def counts(self) -> list[str]:
        """The lines of `count` after an undisturbed session, but for the order of what runs at the same time."""
        return [line for piece in self.pieces for line in piece.counts]

    @property
    def near(self) -> list[str]:
        """The lines of `count` on the laptop after an undisturbed session."""
        return [line for piece in self.pieces for line in piece.near]

    @property
    def kept(self) -> list[str]:
        """The agents whose worktrees stay, because they have changed something."""
        return [agent for piece in self.pieces for agent in piece.kept]

    @property
    def parallel(self) -> bool:
        return any(piece.agents for piece in self.pieces)

    @property
    def at_once(self) -> int:
        """How many answers of the model the laptop may be reading when it is killed: one for each agent at work."""
        return max(len(piece.agents) or 1 for piece in self.pieces)

    @property
    def moments(self) -> list[str]:
        return [moment for piece in self.pieces for moment in piece.moments]

    @property
    def asked_again(self) -> int:
        """How many more requests there may be when a worker has died: a summary that died with it is made again."""
        return sum(SUMMARY in piece.moments for piece in self.pieces)


_EVERYTHING = (
    pieces.FILL, pieces.BACKGROUND, pieces.AGENTS, pieces.TREES, pieces.WAIT, pieces.SERVE, pieces.QUEUE, pieces.SPEND,
)  # fmt: skip
WORKS = {
    "basics": Work((pieces.LOOK, pieces.WAIT, pieces.FINISH), 7),
    "agents": Work((pieces.AGENTS, pieces.TREES, pieces.FINISH), 18, hooked=True),
    "background": Work((pieces.BACKGROUND, pieces.QUEUE, pieces.SERVE, pieces.SPEND), 11, served=True),
    "compaction": Work((pieces.LOOK, pieces.FILL, pieces.FINISH), 10),
    "everything": Work(_EVERYTHING, 32, hooked=True, served=True),
}


def permission(tool_input: Json) -> Json:
    """What the client says about a call: it allows all but one word on the laptop. A question gets its answer."""
    if tool_input.get("word") == pieces.REFUSED:
        return {"behavior": "deny", "message": "Not this word."}
    answers = {"answers": {"Which end?": "good"}} if "questions" in tool_input else {}
    return {"behavior": "allow", "updatedInput": {**tool_input, **answers}}


class WorkModel:
    """The scripted model of a session. `asked_for_summary`: it has been."""

    def __init__(self, work: Work) -> None:
        self.asked_for_summary = False
        self._agents = [entry for piece in work.pieces for entry in piece.agents.items()]
        self._turns = list(_turns(work))

    def __call__(self, request: Recorded) -> Mapping[str, Any] | None:
        first = str(request.messages[0].get("content"))
        agent = next((answers for word, answers in self._agents if word in first and _DID not in first), None)
        if agent is not None:
            answers, called = agent, _calls(request.messages)
        else:
            answers, called = self._turn(request.messages)
        if "Answer with the summary alone" in request.last_user_text:
            self.asked_for_summary = True
            return {"text": f"{_DID} {json.dumps(called)}", "first_delay": 0.3, "delay": 0.02}
        for step in answers:
            blocks = step.get("blocks", [])
            left = [block for block in blocks if block["type"] == "tool_use" and not _is_among(block, called)]
            if left or not blocks:
                broke_off = len(left) < sum(block["type"] == "tool_use" for block in blocks)
                return {**step, "blocks": left} if broke_off else step
        return {"text": "Nothing is left to do."}

    def _turn(self, messages: list[Json]) -> tuple[pieces.Answers, list[Json]]:
        """The answers of the newest turn, and the tool calls that were made in it."""
        answers: pieces.Answers = ()
        start, called = 0, list[Json]()
        for place, message in enumerate(messages):
            text = str(message.get("content")) if message["role"] == "user" else ""
            for words, its_answers in self._turns:
                if words in text:
                    answers, start, called = its_answers, place, _told(message)
        return answers, [*called, *_calls(messages[start:])]


def _turns(work: Work) -> Iterator[tuple[str, pieces.Answers]]:
    """The words that begin a turn, and its answers. Where a message has several of them, the last one counts."""
    yield _ENDED, ({"text": "It has ended."},)
    for piece in work.pieces:
        yield piece.prompt, piece.answers
        if piece.says:
            yield piece.says, ({"text": "Heard."},)


def _calls(messages: list[Json]) -> list[Json]:
    said = [message["content"] for message in messages if message["role"] == "assistant"]
    return [block for content in said for block in content if block["type"] == "tool_use"]


def _told(message: Json) -> list[Json]:
    content = message["content"] if isinstance(message["content"], list) else []
    texts = [block["text"] for block in content if block["type"] == "text" and _DID in block["text"]]
    told: list[Json] = json.JSONDecoder().raw_decode(texts[0].partition(_DID)[2].lstrip())[0] if texts else []
    return told


def _is_among(block: Json, called: list[Json]) -> bool:
    return any((block["name"], block["input"]) == (other["name"], other["input"]) for other in called)
