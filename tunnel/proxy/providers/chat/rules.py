"""In what the servers of Chat Completions differ."""

from __future__ import annotations

from typing import Literal

from ....wire.dataclass import dataclass


@dataclass(frozen=True)
class ChatRules:
    """One server's own ways.

    `limit_field` carries the output limit. `reasoning` says how effort is asked for. `thoughts_back` is the field of an
    assistant message that takes its thinking back, "" for none; with `thoughts_always` each message with tool calls
    needs it. `system_inside`: a system message may stand in the middle. `stop`: stop sequences are taken. `files`: PDF
    files are. `openai_fields`: store, prompt_cache_key and safety_identifier are known. `user_field` carries who asks.
    `parallel`: parallel_tool_calls is known. `gemini`: schemas and signatures are Gemini's. `details`: reasoning comes
    and goes as reasoning_details. `cuts_silently`: a conversation that is too long loses its start without a word.
    """

    limit_field: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    reasoning: Literal["", "effort", "deepseek", "openrouter", "gemini"] = ""
    thoughts_back: str = ""
    thoughts_always: bool = False
    system_inside: bool = False
    stop: bool = True
    files: bool = False
    openai_fields: bool = False
    user_field: str = ""
    parallel: bool = True
    gemini: bool = False
    details: bool = False
    cuts_silently: bool = False
