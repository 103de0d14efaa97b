"""What an agent of others may ask, in each API: every request whose price can be told, and nothing else.

The members of a request are a closed list. One that is not in it could start work that nobody meters (several answers,
batches, work in the background), let the provider run something, or name what the account keeps there (files, earlier
answers, cached prompts): such a request is refused by the name of the member."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import field
from urllib.parse import unquote

from ..providers.api_errors import NO_RETRY, Refusal
from ..providers.costs import BilledRequest, longest_answer
from ..providers.foreign_api import CHAT, GEMINI, RESPONSES, ForeignApi, ForeignCall
from ..providers.json_fields import Json, object_in, objects_in, text_in
from ..wire.dataclass import dataclass
from .gemini_messages import said
from .policy import NOT_ALLOWED

_GEMINI_PATH = re.compile(
    r"(?:/instead/([^/]+))?/v1beta/models/([A-Za-z0-9][A-Za-z0-9._-]{0,99}):(generateContent|streamGenerateContent|countTokens)"
)
_COUNT = "countTokens"


def foreign_call(method: str, path: str, query: str) -> ForeignCall | None:
    """Return the call that a method, a path and a query ask for; None if no API has such a one."""
    if method != "POST":
        return None
    if not query and path == "/v1/chat/completions":
        return ForeignCall(CHAT, "/chat/completions")
    if not query and path == "/v1/responses":
        return ForeignCall(RESPONSES, "/responses")
    found = _GEMINI_PATH.fullmatch(path)
    if found is None:
        return None
    instead, model, operation = found.groups()
    if query != ("alt=sse" if operation.startswith("stream") else ""):
        return None  # a stream without it is an array that grows: its usage could be read at its end only
    path = f"/models/{{model}}:{operation}" + (f"?{query}" if query else "")
    return ForeignCall(GEMINI, path, operation != _COUNT, model, unquote(instead or ""))


@dataclass(frozen=True)
class Members:
    """The members that an object may have: any value of `passed`, and one of a few of `only`. Null is no value."""

    passed: frozenset[str]
    only: Mapping[str, tuple[object, ...]] = field(default_factory=dict)

    def check(self, given: Json, where: str) -> None:
        """Raise Refusal for another member."""
        for name, value in given.items():
            if value is None or name in self.passed:
                continue
            if name not in self.only:
                raise _refused(f"{where} with the member {name[:100]!r}")
            if not any(type(value) is type(each) and value == each for each in self.only[name]):
                raise _refused(f"{where} with another {name} than {' or '.join(map(repr, self.only[name]))}")


def _refused(what: str) -> Refusal:
    text = f"the laptop does not pass on {what}: it cannot tell what that costs, or whose it is"
    return Refusal(400, text, kind=NOT_ALLOWED, headers=NO_RETRY)  # agents try again after 403


def _members(names: str, **only: tuple[object, ...]) -> Members:
    return Members(frozenset(names.split()), only)


_TIERS = ("auto", "default", "flex")  # others cost more
_CHAT = _members(
    """model messages tools tool_choice parallel_tool_calls functions function_call stream_options
    max_tokens max_completion_tokens temperature top_p top_k min_p seed stop presence_penalty frequency_penalty
    repetition_penalty logit_bias logprobs top_logprobs response_format verbosity reasoning reasoning_effort thinking
    enable_thinking thinking_budget preserve_thinking chat_template_kwargs user user_id metadata safety_identifier
    prompt_cache_key prompt_cache_retention vl_high_resolution_images""",
    stream=(True, False),
    n=(1,),
    best_of=(1,),
    store=(False,),
    modalities=(["text"],),
    usage=({"include": True},),
    service_tier=_TIERS,
)
_RESPONSES = _members(
    """model input instructions tools tool_choice parallel_tool_calls max_tool_calls stream_options
    max_output_tokens temperature top_p top_logprobs text reasoning include truncation user metadata client_metadata
    safety_identifier prompt_cache_key prompt_cache_retention""",
    stream=(True, False),
    store=(False,),
    background=(False,),
    service_tier=_TIERS,
)
_GEMINI = _members("contents systemInstruction tools toolConfig generationConfig safetySettings")
_GENERATION = _members(
    """temperature topP topK maxOutputTokens stopSequences responseMimeType responseSchema responseJsonSchema seed
    presencePenalty frequencyPenalty responseLogprobs logprobs thinkingConfig mediaResolution""",
    candidateCount=(1,),
    responseModalities=(["TEXT"], ["Text"]),
)
_GEMINI_PART = _members(
    "text thought thoughtSignature functionCall functionResponse inlineData partMetadata videoMetadata"
)
_FUNCTION_RESPONSE = _members("id name response parts willContinue scheduling")
_INLINE = re.compile(r"(image|text)/[a-z0-9.+-]{1,60}|application/(pdf|json)")
_FUNCTIONS, _GROUP = ("function", "custom"), "namespace"
_RESPONSES_TOOLS = (*_FUNCTIONS, _GROUP, "local_shell", "web_search")
_MORE_TOOLS = "additional_tools"  # the item with which an agent gives its tools as a part of the conversation
_TEXTS = frozenset(("text", "input_text", "output_text", "summary_text", "reasoning_text", "refusal", "thinking"))
_ITEMS = frozenset(
    (
        *("message", "reasoning", "function_call", "function_call_output", "custom_tool_call"),
        *("custom_tool_call_output", "local_shell_call", "local_shell_call_output", "web_search_call"),
        _MORE_TOOLS,
    )
)
_MEDIA = {"image_url": "image_url", "input_image": "image_url", "file": "file_data", "input_file": "file_data"}
"""The parts that hold a picture or a file, with the member that has it. As data only: a provider fetches what a URL
names, and an id names what the account keeps."""


@dataclass(frozen=True)
class ForeignRequest:
    """A request that is allowed. `sent` goes to the provider. `longest` is what it says of the length of its answer.
    The others are as in `BilledRequest`."""

    sent: Json
    longest: object
    longer: bool
    streams: bool
    own_tools: bool = True

    def billed(self, model: str, size: int) -> BilledRequest:
        longest = longest_answer(self.longest)
        return BilledRequest(model, size, longest, self.own_tools, longer=self.longer, streams=self.streams)


def _chat(call: ForeignCall, asked: Json) -> ForeignRequest:
    _CHAT.check(asked, "Chat Completions")
    parts = [part for each in _objects(asked, "messages") for part in _parts(each, "content")]
    media = [_is_media(part, "file") for part in parts]
    if any(each.get("audio") for each in objects_in(asked, "messages")):
        raise _refused("a message with audio")
    _check_tools(asked, _FUNCTIONS)
    sent = dict(asked)
    if asked.get("stream"):  # the last chunk has the usage
        sent["stream_options"] = {**object_in(asked, "stream_options"), "include_usage": True}
    lengths = [each for name in ("max_tokens", "max_completion_tokens") if (each := asked.get(name)) is not None]
    longest = max(lengths) if lengths and all(type(each) is int and each >= 0 for each in lengths) else None
    marked = [*_objects(asked, "messages"), *parts, *_objects(asked, "tools")]
    if any(object_in(each, "cache_control").get("ttl") not in (None, "5m") for each in marked):
        raise _refused("a mark to cache something for longer than 5 minutes")  # the answer does not tell for how long
    return ForeignRequest(sent, longest, any(media), bool(asked.get("stream")))


def _responses(call: ForeignCall, asked: Json) -> ForeignRequest:
    _RESPONSES.check(asked, "Responses")
    items = [] if isinstance(asked.get("input"), str) else _objects(asked, "input")
    tools = _check_tools(asked, _RESPONSES_TOOLS)
    media = []
    for item in items:
        kind = item.get("type", "message")
        if kind not in _ITEMS:
            raise _refused(f"an item of the type {str(kind)[:100]!r}")
        if kind == _MORE_TOOLS:
            tools += _check_tools(item, _RESPONSES_TOOLS)
        media += [_is_media(part, "") for name in ("content", "output", "summary") for part in _parts(item, name)]
    own_tools = "web_search" not in tools  # each search has a price of its own
    sent, streams = {**asked, "store": False}, bool(asked.get("stream"))
    return ForeignRequest(sent, asked.get("max_output_tokens"), any(media), streams, own_tools)


def _gemini(call: ForeignCall, asked: Json) -> ForeignRequest:
    _GEMINI.check(asked, call.api.title)
    config = asked.get("generationConfig") or {}
    if not isinstance(config, dict):
        raise _refused("a generationConfig that is no object")
    _GENERATION.check(config, "a generationConfig")
    for tool in _objects(asked, "tools") if asked.get("tools") else ():
        _members("functionDeclarations").check(tool, "a tool")
    contents = [*_objects(asked, "contents"), object_in(asked, "systemInstruction")]
    if not isinstance(asked.get("systemInstruction"), (dict, type(None))):
        raise _refused("a systemInstruction that is no object")
    media = [_is_gemini_media(part) for each in contents for part in _objects(each, "parts")]
    return ForeignRequest(asked, config.get("maxOutputTokens"), any(media), streams=":stream" in call.path)


def checked(call: ForeignCall, asked: Json) -> ForeignRequest:
    """Return a request as it goes to the provider of the model. Raise Refusal for what is not in the lists."""
    check = {CHAT.name: _chat, RESPONSES.name: _responses, GEMINI.name: _gemini}[call.api.name]
    return check(call, asked)


def _objects(asked: Json, name: str) -> list[Json]:
    """Return a list of objects. Raise Refusal for anything else: nobody knows how the provider reads it."""
    found = asked.get(name)
    if found is None:
        return []
    if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
        raise _refused(f"{name} that is no list of objects")
    return found


def _parts(holder: Json, name: str) -> list[Json]:
    return [] if isinstance(holder.get(name), str) else _objects(holder, name)


def _check_tools(asked: Json, allowed: tuple[str, ...]) -> list[str]:
    """Return the types of the tools. Raise Refusal for one that the provider would run."""
    kinds = []
    for tool in _objects(asked, "tools"):
        kind = str(tool.get("type"))
        if kind not in allowed:
            raise _refused(f"the tool {kind[:100]!r} of the provider")
        kinds += [kind, *_check_tools(tool, _FUNCTIONS)] if kind == _GROUP else [kind]
    return kinds


def _is_media(part: Json, wrapped: str) -> bool:
    """Return whether a part is more than text. Raise Refusal for what is not in the request itself."""
    kind = str(part.get("type"))
    if kind in _TEXTS:
        return False
    member = _MEDIA.get(kind, "")
    holder = object_in(part, wrapped) if kind == wrapped else part
    found = holder.get(member)
    data = text_in(found, "url") if isinstance(found, dict) else found
    inside = isinstance(data, str) and (member == "file_data" or data.startswith("data:"))
    if not inside or holder.get("file_id") or holder.get("file_url"):
        raise _refused(f"a part {kind[:100]!r} whose content is not in the request")
    return True


def _is_gemini_media(part: Json) -> bool:
    _GEMINI_PART.check(part, "a part")
    answered = object_in(part, "functionResponse")
    _FUNCTION_RESPONSE.check(answered, "a functionResponse")
    inner = [_is_gemini_media(each) for each in _objects(answered, "parts")]
    if (data := part.get("inlineData")) is None:
        return any(inner)
    if not _INLINE.fullmatch(text_in(data, "mimeType")):
        raise _refused("inlineData of another type than pictures, texts and PDF")
    return True


# The same requests in the shape of the Messages API, for the audit.


_SAID = ("messages", "input", "instructions", "contents", "systemInstruction")


def as_messages(api: ForeignApi, asked: Json) -> Json:
    """Return what a request says in the shape of a request of the Messages API."""
    beside = {name: value for name, value in asked.items() if name not in _SAID}
    if api is GEMINI:
        return {**beside, **said(asked)}
    name = "messages" if api is CHAT else "input"
    found = asked.get(name)
    items = [{"role": "user", "content": found}] if isinstance(found, str) else objects_in(asked, name)
    return {**beside, "system": asked.get("instructions"), "messages": [_message(api, each) for each in items]}


def _message(api: ForeignApi, item: Json) -> Json:
    kind = str(item.get("type", "message")) if api is RESPONSES else "message"
    is_output = kind.endswith("_output")
    content = _blocks(item.get("output" if is_output else "content"))
    if is_output or (api is CHAT and item.get("role") == "tool"):
        call_id = item.get("tool_call_id") or item.get("call_id")
        return {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call_id, "content": content}]}
    if kind not in ("message", _MORE_TOOLS):
        return {"role": "assistant", "content": [{"type": "tool_use"}]}
    return {"role": item.get("role"), "content": content}


def _blocks(content: object) -> list[Json]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return [_block(part) for part in objects_in({"content": content}, "content")]


def _block(part: Json) -> Json:
    kind = part.get("type")
    if "text" in part and (kind is None or kind in _TEXTS):
        return {"type": "text", "text": part["text"]}
    return {"type": "part", **part}
