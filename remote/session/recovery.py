"""What a worker that starts again reads out of its journal, besides the conversation."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from ccb.tunnel.wire import SessionOptions
from ccb.tunnel.wire.records import Record

from ..model.models import count
from ..permissions.rules.ruleset import COMMAND_LINE
from ..sessions.registry import prompt_text
from .inputs import Inputs
from .snapshot import Picture

Json = dict[str, Any]


class Recovered:
    """The projection of a journal, record by record.

    `waiting` are the user messages that no turn has taken, by input id. `doubtful` are prompts of which the journal no longer
    says whether a turn took them: a damaged record may have said so; `unanswered` are those of them that have no result, as far
    as can be told. `open_asks` are the ids of questions without an
    answer. `turn_open` tells that a turn was running, `result_due` that it never had its result. `mark` is that of the last
    worker's processes; every worker ends those of the one before. `updates` are the permission updates that were granted
    for the session (the mode is in `options`). `launches` are the command lines of its newest client processes. `damage`
    holds what was told of damage before.
    """

    def __init__(self) -> None:
        self.options = SessionOptions()
        self.launches: deque[SessionOptions] = deque(maxlen=100)
        self.waiting: OrderedDict[str, Json] = OrderedDict()
        self.open_asks: OrderedDict[str, None] = OrderedDict()
        self.turn_open = False
        self.result_due = False
        self.last_result: Json = {}
        self.context_tokens = 0
        self.mark = ""
        self.updates: list[Json] = []
        self.doubtful: OrderedDict[str, str] = OrderedDict()
        self.unanswered: OrderedDict[str, None] = OrderedDict()
        self._taken = False  # a prompt is known that the next result answers
        self.damage: set[str] = set()
        self.prompt = ""
        self.prompts = 0
        self.created = 0.0

    def apply(self, record: Record, inputs: Inputs) -> None:
        """Take the next record; `inputs` learns what was applied."""
        body = record.body
        if record.kind == "message":
            self._message(body)
        elif record.kind == "input":
            self._input(str(body.get("id")), body.get("body"), inputs)
        elif record.kind == "prompt":
            for item in body.get("items") or ():
                self._taken = True
                for each in (self.waiting, self.doubtful, self.unanswered):
                    each.pop(str(item.get("input", "")), None)
        elif record.kind == "turn_start":
            self.turn_open = self.result_due = True
            self._taken = False
        elif record.kind == "turn_end":
            self.turn_open = self.result_due = False
        elif record.kind == "model_end":
            self.context_tokens = tokens_of(body.get("usage"))
        elif record.kind == "options":
            self.created = self.created or record.time
            self.updates = [each for each in self.updates if _outlives_a_launch(each)]
            options = body.get("options")
            if isinstance(options, dict):
                self.options = SessionOptions.from_json(options)
                self.launches.append(self.options)
            self._mark(body)
        elif record.kind == "worker":
            self._mark(body)
        elif record.kind == "damaged":
            self._damaged(str(body.get("what") or ""))
        elif record.kind == "forked":
            self._forked(record.time)

    def _damaged(self, what: str) -> None:
        """Told by a worker, or, without words, a record that cannot be read."""
        if what:
            self.damage.add(what)
            return
        self.doubtful.update((input_id, prompt_text(body)) for input_id, body in self.waiting.items())
        self.unanswered.update(dict.fromkeys(self.waiting))
        self.waiting.clear()

    def answered(self) -> None:
        """A turn has its result: of a prompt that is known to have been taken, else of the first of which it is not known."""
        if not self._taken and self.unanswered:
            self.unanswered.popitem(last=False)
        self._taken = False

    def _forked(self, when: float) -> None:
        """What the original still had to do is not the copy's: its prompts, its running turn, its processes."""
        self.created = when
        self.waiting.clear()
        self.doubtful.clear()
        self.unanswered.clear()
        self._taken = False
        self.updates.clear()
        self.result_due = False
        self.mark = ""

    def _mark(self, body: Json) -> None:
        if isinstance(body.get("mark"), str):
            self.mark = body["mark"]

    def _message(self, body: Json) -> None:
        kind = body.get("type")
        if kind == "result":
            self.result_due = False
            self.last_result = body
            self.answered()
        elif kind == "control_request":
            self.open_asks[str(body.get("request_id"))] = None
        elif kind == "control_cancel_request":
            self.open_asks.pop(str(body.get("request_id")), None)
        elif kind == "system" and isinstance(body.get("permissionMode"), str):
            self.options = replace(self.options, permission_mode=body["permissionMode"])

    def _input(self, input_id: str, body: object, inputs: Inputs) -> None:
        repeated = isinstance(body, dict) and inputs.knows_message(body)
        inputs.remember(input_id, body)
        if not isinstance(body, dict):
            return
        if body.get("type") == "user":
            inputs.any_prompt = True
            self.prompt = prompt_text(body)
            self.prompts += not repeated
            if not repeated:
                self.waiting[input_id] = body
        elif body.get("type") == "control_response":
            response = body.get("response")
            if isinstance(response, dict):
                self._answered(response)

    def _answered(self, response: Json) -> None:
        request_id = str(response.get("request_id"))
        if request_id not in self.open_asks:
            return
        del self.open_asks[request_id]
        word = response.get("response")
        if response.get("subtype") == "success" and isinstance(word, dict) and word.get("behavior") == "allow":
            updates = word.get("updatedPermissions")
            granted = [each for each in updates if isinstance(each, dict)] if isinstance(updates, list) else []
            self.updates += [each for each in granted if each.get("type") != "setMode"]


def _outlives_a_launch(update: Json) -> bool:
    """What a new command line does not replace."""
    return str(update.get("type")).endswith("Rules") and update.get("destination") != COMMAND_LINE


def tokens_of(usage: object) -> int:
    """Tokens of the conversation after the model call that used these."""
    known = usage if isinstance(usage, dict) else {}
    names = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens", "output_tokens")
    return sum(count(known, name) for name in names)


def recover(records: Iterable[Record], inputs: Inputs, picture: Picture) -> Recovered:
    """Read a journal, one record at a time."""
    recovered = Recovered()
    for record in records:
        recovered.apply(record, inputs)
        picture.take(record.seq, record.kind, record.body)
    return recovered
