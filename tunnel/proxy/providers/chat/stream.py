"""The stream of Chat Completions as Anthropic events."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from ..answers.answer import MAX_ANSWER, MAX_CALLS, WRONG, Answer, AnswerError
from ..answers.usage import read_usage
from ..dialect.dialect import ModelTarget
from ..dialect.errors import error_in_stream
from ..dialect.names import ToolNames
from ..dialect.state import sealed
from .details import ReasoningDetails
from .rules import ChatRules

Json = dict[str, Any]

_REASONS = {
    "stop": "end_turn",
    "eos": "end_turn",
    "end_turn": "end_turn",
    "tool_calls": "tool_use",
    "function_call": "tool_use",
    "length": "max_tokens",
    "max_tokens": "max_tokens",
    "content_filter": "refusal",
    "model_context_window_exceeded": "model_context_window_exceeded",
}
_FAILURES = {  # reasons of an answer that is not whole, although the stream has ended well
    "error": "api_error",
    "abort": "api_error",
    "insufficient_system_resource": "overloaded_error",  # DeepSeek's word
    "function_call_filter": "api_error",  # Gemini's, for a call that it has made wrong
}
_SILENT_CUT = 16_000  # characters from which on a conversation may have lost its start
_MOST_IDS = 100  # of one call that are remembered
_MAX_CHARACTERS = 6  # of one token, on average; JSON and code have fewer


@dataclass
class _Fragments:
    """A tool call as far as it has come. Once its input has begun (`has_input`), its name is complete. `again`: its
    input is whole, and its name has come again: what else comes is another call of the same tool."""

    index: int | None
    name: str = ""
    ids: set[str] = field(default_factory=set)
    has_input: bool = False
    again: bool = False


class ChatReader:
    """Reads one answer. `characters` are those of the conversation that was sent, 0 if they say nothing of tokens."""

    def __init__(
        self,
        rules: ChatRules,
        target: ModelTarget,
        names: ToolNames,
        stops: tuple[str, ...] = (),
        *,
        characters: int = 0,
        fallback_id: str = "",
    ) -> None:
        from uuid import uuid4

        self.answer = Answer(target.shown, fallback_id or f"msg_{uuid4().hex}", stops)
        self.answer.unsigned = sealed(target.provider, target.model, {})
        self._rules = rules
        self._target = target
        self._names = names
        self._characters = characters
        self._details = ReasoningDetails()
        self._calls: list[_Fragments] = []
        self._done = False

    def feed(self, data: bytes) -> None:
        """See StreamReader."""
        if data == b"[DONE]":
            self._done = True
            return
        try:
            chunk = json.loads(data)
        except (ValueError, RecursionError):
            raise AnswerError(WRONG, f"{self._target.provider} sent an event that is not JSON") from None
        if not isinstance(chunk, dict) or chunk.get("error"):
            failure = error_in_stream(chunk, self._target.provider)
            raise AnswerError(failure.kind, failure.message)
        self.answer.begin(chunk.get("id"))
        self._usage(chunk)
        choices = chunk.get("choices")
        for choice in choices if isinstance(choices, list) else ():
            if isinstance(choice, dict) and choice.get("index") in (None, 0, "0"):  # one answer was asked for
                self._choice(choice)

    def _usage(self, told: Json) -> None:
        usage = told.get("usage")
        if isinstance(usage, dict):
            self.answer.usage = read_usage(usage, self.answer.usage)

    def _choice(self, choice: Json) -> None:
        self._usage(choice)  # where Moonshot has it
        delta = choice.get("delta")
        if not isinstance(delta, dict):
            delta = choice.get("message")  # an answer in one piece
        if isinstance(delta, dict):
            self._delta(delta)
        reason = choice.get("finish_reason")
        if isinstance(reason, str) and reason:
            self._stop(reason)

    def end(self) -> None:
        """See StreamReader."""
        if not self.answer.stop_reason and self._done and not self._calls and self.answer.begun:
            raise AnswerError("api_error", f"{self._target.provider} ended its answer without a reason")
        used = self.answer.usage.prompt
        if self._rules.cuts_silently and used and self._characters > max(_SILENT_CUT, used * _MAX_CHARACTERS):
            least = self._characters // _MAX_CHARACTERS
            raise AnswerError(
                "invalid_request_error",
                f"prompt is too long: {least} tokens > {used} maximum ({self._target.provider} has cut the "
                "conversation without a word; give the model a larger window, such as OLLAMA_CONTEXT_LENGTH)",
            )
        self.answer.finish()

    def _stop(self, reason: str) -> None:
        reason = reason.partition(":")[0]  # Gemini says behind it why
        if kind := _FAILURES.get(reason):
            raise AnswerError(kind, f"{self._target.provider} broke off its answer ({reason})")
        self._flush_details()
        for call in self._calls:
            if not call.name:
                raise AnswerError(WRONG, f"{self._target.provider} sent a tool call without a name")
            self.answer.call(id(call), "", self._names.known(call.name))
        self.answer.stop(_REASONS.get(reason, "end_turn"))

    def _delta(self, delta: Json) -> None:
        answer = self.answer
        thought = delta.get("reasoning_content") or delta.get("reasoning")
        if isinstance(thought, str) and thought:
            answer.thinking(thought)
        details = delta.get("reasoning_details")
        if details and self._rules.details:
            self._details.add(details)
            if self._details.size > MAX_ANSWER:
                raise AnswerError(WRONG, f"{self._target.provider} reasons in more than {MAX_ANSWER} characters")
        content = delta.get("content")
        if isinstance(content, list):
            content = "".join(str(part.get("text") or "") for part in content if isinstance(part, dict))
        if isinstance(content, str) and content:
            if _google(delta).get("thought") is True:
                answer.thinking(content)
            else:
                self._flush_details()
                answer.text(content)
        refusal = delta.get("refusal")
        if isinstance(refusal, str) and refusal:
            answer.text(refusal)
        calls = delta.get("tool_calls")
        calls = [each for each in calls if isinstance(each, dict)] if isinstance(calls, list) else []
        function = delta.get("function_call")
        if isinstance(function, dict):
            calls.append({"index": 0, "function": function})
        if calls:
            self._flush_details()
        touched: list[_Fragments] = []  # in this event
        for position, call in enumerate(calls):
            touched.append(self._call(call, position if len(calls) > 1 else -1, touched))

    def _call(self, call: Json, position: int, touched: list[_Fragments]) -> _Fragments:
        """Take a fragment of a call. `position` is its place among those of its event, -1 if it is the only one."""
        function = call.get("function")
        function = function if isinstance(function, dict) else {}
        call_id, name, arguments = call.get("id"), function.get("name"), function.get("arguments")
        call_id = call_id if isinstance(call_id, str) else ""
        name = name.strip() if isinstance(name, str) else ""
        if isinstance(arguments, dict):
            arguments = json.dumps(arguments)
        arguments = arguments if isinstance(arguments, str) else ""
        index = call.get("index")
        index = index if isinstance(index, int) else None
        found = self._found(index, call_id, name, arguments, position, touched)
        if found is None or (found.again and arguments.strip()):
            found = _Fragments(index, "" if found is None else found.name)
            self._calls.append(found)
        key = id(found)
        if call_id and len(found.ids) < _MOST_IDS:
            found.ids.add(call_id[:MAX_CALLS])
        if name and not found.has_input:
            found.name = self._names.joined(found.name, name)[:MAX_CALLS]
        signature = _google(call).get("thought_signature")
        state = ""
        if isinstance(signature, str) and signature:
            state = sealed(self._target.provider, self._target.model, {"thought_signature": signature})
        found.has_input = found.has_input or bool(arguments.strip() and found.name)
        self.answer.call(key, call_id, self._names.known(found.name) if found.has_input else "", state=state)
        if arguments:
            self.answer.arguments(key, arguments)
        return found

    def _found(
        self, index: int | None, call_id: str, name: str, arguments: str, position: int, touched: list[_Fragments]
    ) -> _Fragments | None:
        """Return the call that a fragment goes on with, None for a new one. Some servers send no index or the same one
        for each call, no id or a new one with each fragment, and a name in pieces or with each fragment."""
        known = [each for each in self._calls if each.index == index]
        if not known and (index is None or all(each.index is None for each in self._calls)):
            known = self._calls
        if not known:
            return None
        if call_id and (same := [each for each in known if call_id in each.ids]):
            return same[-1]
        last = known[-1]
        if not name:
            return known[min(position, len(known) - 1)] if index is None and position >= 0 and not call_id else last
        if last in touched and (index is None or (call_id and last.ids)):
            return None
        if name == last.name:
            begins = arguments.lstrip()[:1] in ("", "{")  # else there is no need to look at all of the input
            if not (begins and last.has_input and self.answer.is_whole(id(last))):
                return last
            last.again = True
            is_new = arguments.strip() or (call_id and len(last.ids) == 1)  # else each piece has a new id
            return None if is_new else last
        if last.has_input and not last.again:
            return None
        if call_id and last.ids and self._names.is_known(last.name) and self._names.is_known(name):
            return None
        return last if self._names.is_known(self._names.joined(last.name, name), begins=True) else None

    def _flush_details(self) -> None:
        """What OpenRouter has sent of its reasoning so far goes into the signature of the thinking before this."""
        details = self._details.take()
        if details:
            state = {"reasoning_details": details}
            self.answer.reasoning_state(sealed(self._target.provider, self._target.model, state))


def _google(part: Json) -> Json:
    extra = part.get("extra_content")
    google = extra.get("google") if isinstance(extra, dict) else None
    return google if isinstance(google, dict) else {}
