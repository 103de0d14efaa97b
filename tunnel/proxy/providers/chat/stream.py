"""The stream of Chat Completions as Anthropic events."""

from __future__ import annotations

import json
from typing import Any

from ..answers.answer import MAX_ANSWER, Answer, AnswerError
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
_MAX_CHARACTERS = 6  # of one token, on average; JSON and code have fewer


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
        self._keys: list[object] = []
        self._done = False

    def feed(self, data: bytes) -> None:
        """See StreamReader."""
        if data == b"[DONE]":
            self._done = True
            return
        try:
            chunk = json.loads(data)
        except (ValueError, RecursionError):
            raise AnswerError("api_error", f"{self._target.provider} sent an event that is not JSON") from None
        if not isinstance(chunk, dict) or chunk.get("error"):
            failure = error_in_stream(chunk, self._target.provider)
            raise AnswerError(failure.kind, failure.message)
        self.answer.begin(chunk.get("id"))
        usage = chunk.get("usage")
        if isinstance(usage, dict):
            self.answer.usage = read_usage(usage)
        choices = chunk.get("choices")
        choice = choices[0] if isinstance(choices, list) and choices else None
        if not isinstance(choice, dict):
            return
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
        if not self.answer.stop_reason and self._done and self._keys == [] and self.answer.begun:
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
                raise AnswerError("api_error", f"{self._target.provider} reasons in more than {MAX_ANSWER} characters")
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
        if isinstance(calls, list) and calls:
            self._flush_details()
            for position, call in enumerate(calls):
                if isinstance(call, dict):
                    self._call(call, position)
        function = delta.get("function_call")
        if isinstance(function, dict):
            self._call({"index": 0, "function": function}, 0)

    def _call(self, call: Json, position: int) -> None:
        function = call.get("function")
        function = function if isinstance(function, dict) else {}
        call_id, name = call.get("id"), function.get("name")
        call_id = call_id if isinstance(call_id, str) else ""
        name = self._names.known(name) if isinstance(name, str) and name else ""
        key = self._key(call.get("index"), call_id, name, position)
        signature = _google(call).get("thought_signature")
        state = ""
        if isinstance(signature, str) and signature:
            state = sealed(self._target.provider, self._target.model, {"thought_signature": signature})
        arguments = function.get("arguments")
        self.answer.call(key, call_id, name, state=state)
        if isinstance(arguments, dict):
            arguments = json.dumps(arguments)
        if isinstance(arguments, str) and arguments:
            self.answer.arguments(key, arguments)

    def _key(self, index: object, call_id: str, name: str, position: int) -> object:
        """Return which call a fragment belongs to. Some servers send no index, and some the same one for each call."""
        if isinstance(index, int):
            known = [key for key in self._keys if isinstance(key, tuple) and key[0] == index]
            if known and not (call_id and self.answer.knows_call(known[-1]) not in ("", call_id)):
                return known[-1]
            key: object = (index, len(known))
        else:
            same = [key for key in self._keys if call_id and self.answer.knows_call(key) == call_id]
            if same:
                return same[-1]
            if not call_id and not name and self._keys:
                return self._keys[min(position, len(self._keys) - 1)] if position else self._keys[-1]
            key = ("no index", len(self._keys))
        self._keys.append(key)
        return key

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
