"""The list of models that a provider gives: read from the JSON of each dialect, with whatever it says of a model."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from typing import Any
from urllib.parse import quote, urlsplit

from ....wire.dataclass import dataclass
from ..dialect.effort import LEVELS
from .cloud_items import cloud_item

Json = dict[str, Any]
Facts = Mapping[str, object]
"""What is known of a model: fields of `ModelTraits`, by name."""

MAX_LIST_BYTES = 16 * 1024 * 1024
MAX_LISTED = 5_000

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@+\[\]-]{0,199}")
_NO_AGENTS = re.compile(
    r"embed|whisper|\btts\b|dall-e|moderation|realtime|transcribe|sora|babbage|davinci|audio|-image|imagen|veo-|aqa\b"
)
_LISTS = ("data", "models", "modelSummaries", "inferenceProfileSummaries", "publisherModels", "value")
_NEXT = {"nextToken": "nextToken", "nextPageToken": "pageToken"}
_NUM_CTX = re.compile(r"^num_ctx\s+([1-9]\d{2,8})\s*$", re.MULTILINE)
_PER_MILLION = 1_000_000


@dataclass(frozen=True)
class ListedModel:
    """One model of a list. `facts` are those that the list states. `created` is a date or a number that grows with
    time, "" if the list does not say it."""

    id: str
    title: str = ""
    created: str = ""
    facts: Facts = field(default_factory=dict)


def read_page(data: bytes) -> tuple[list[ListedModel], str]:
    """Return the models of a part of a list that can work as an agent, as far as their names tell, and the parameters
    that a request for the next part has, too, "" if this is the last. Raise ValueError for what is not a list of
    models."""
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        raise ValueError("it is not JSON") from None
    items = next((found[name] for name in _LISTS if isinstance(found.get(name), list)), None) \
        if isinstance(found, dict) else found  # fmt: skip
    if not isinstance(items, list):
        raise ValueError("it has no list in it")
    made: dict[str, ListedModel] = {}
    for item in items:
        model = _read(item) if isinstance(item, dict) else None
        if model is not None and len(made) < MAX_LISTED:
            made.setdefault(model.id, model)
    return list(made.values()), _next(found) if isinstance(found, dict) else ""


def _next(found: Json) -> str:
    for name, parameter in _NEXT.items():
        token = found.get(name)
        if isinstance(token, str) and token:
            return f"{parameter}={quote(token, safe='')}"
    link = found.get("nextLink")
    return urlsplit(link).query if isinstance(link, str) else ""  # a list does not say where it goes on


def _read(item: Json) -> ListedModel | None:
    cloud = cloud_item(item)
    if cloud is not None:
        good = _ID.fullmatch(cloud.name)
        return ListedModel(cloud.name, cloud.title[:200], cloud.created[:40], cloud.facts) if good else None
    name = item.get("id") or item.get("name")
    name = name.removeprefix("models/") if isinstance(name, str) else ""
    methods = item.get("supportedGenerationMethods")
    if not _ID.fullmatch(name) or _NO_AGENTS.search(name.lower()):
        return None
    if (isinstance(methods, list) and "generateContent" not in methods) or item.get("lifecycle") == "retired":
        return None
    title = item.get("display_name") or item.get("displayName") or ""
    created = item.get("created_at") or item.get("created") or ""
    facts = {**_sizes(item), **_abilities(item), **_anthropic(item), **_prices(item)}
    return ListedModel(name, title[:200] if isinstance(title, str) else "", str(created)[:40], facts)


def read_details(data: bytes) -> Json:
    """Return what Ollama says of one model. Its window is known only where the model's file sets it: what the model
    could take is not what the server gives it."""
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        return {}
    can = found.get("capabilities") if isinstance(found, dict) else None
    if not isinstance(can, list):
        return {}
    made: Json = {"tools": "tools" in can, "images": "vision" in can, "thinking": "thinking" in can}
    window = _NUM_CTX.search(str(found.get("parameters") or ""))
    return made | ({"window": int(window[1])} if window else {})


def _sizes(item: Json) -> Json:
    top, meta = _object(item, "top_provider"), _object(item, "meta")
    windows = (
        *(item.get(name) for name in ("max_input_tokens", "inputTokenLimit", "max_model_len", "context_length")),
        *(item.get("context_window"), top.get("context_length"), meta.get("n_ctx"), meta.get("n_ctx_train")),
    )
    outputs = (
        *(item.get(name) for name in ("max_tokens", "outputTokenLimit", "max_completion_tokens")),
        top.get("max_completion_tokens"),
    )
    made = {"window": _first_size(windows), "max_output": _first_size(outputs)}
    return {name: value for name, value in made.items() if value}


def _abilities(item: Json) -> Json:
    """OpenRouter's words, and Gemini's."""
    made: Json = {}
    takes = item.get("supported_parameters")
    if isinstance(takes, list):
        made |= {"tools": "tools" in takes, "thinking": "reasoning" in takes or "include_reasoning" in takes}
    media = _object(item, "architecture").get("input_modalities")
    if isinstance(media, list):
        made |= {"images": "image" in media, "documents": "file" in media}
    if isinstance(item.get("thinking"), bool):
        made["thinking"] = item["thinking"]
    return made


def _anthropic(item: Json) -> Json:
    can = _object(item, "capabilities")
    names = {"images": "image_input", "documents": "pdf_input", "thinking": "thinking"}
    made: Json = {}
    for ours, theirs in names.items():
        supported = _object(can, theirs).get("supported")
        if isinstance(supported, bool):
            made[ours] = supported
    effort = _object(can, "effort")
    levels = [level for level in LEVELS if _object(effort, level).get("supported") is True]
    return made | ({"efforts": levels} if levels else {})


def _prices(item: Json) -> Json:
    """OpenRouter's prices: dollars for a token, as text. A negative one says that it depends."""
    given = _object(item, "pricing")
    names = {"input_price": "prompt", "output_price": "completion", "cache_read_price": "input_cache_read"}
    made: Json = {}
    for ours, theirs in names.items():
        try:
            price = float(given[theirs])
        except (KeyError, TypeError, ValueError, OverflowError):
            continue
        if 0 <= price < 1:
            made[ours] = round(price * _PER_MILLION, 6)
    return made if "input_price" in made and "output_price" in made else {}


def _object(item: Json, name: str) -> Json:
    found = item.get(name)
    return found if isinstance(found, dict) else {}


def _first_size(values: Iterable[object]) -> int:
    return next((each for each in values if type(each) is int and 0 < each < 1_000_000_000), 0)


def known_as(model: str, models: Sequence[ListedModel]) -> ListedModel | None:
    """Return the model of a list that a name stands for. A name may leave out the date or the tag at the end
    (`claude-sonnet-4-5` for `claude-sonnet-4-5-20250929`, `qwen3` for `qwen3:latest`), or add a variant of OpenRouter
    (`:free`)."""
    by_id = {each.id: each for each in models}
    model = model.removesuffix("@default")  # Vertex's word for the newest version
    if model in by_id:
        return by_id[model]
    dated = re.compile(re.escape(model) + r"(-\d{8}|-\d{4}-\d{2}-\d{2}|@\d{8}|:latest)")
    found = max((name for name in by_id if dated.fullmatch(name)), default=None)
    if found is not None:
        return by_id[found]
    base, colon, _ = model.rpartition(":")
    return by_id.get(base) if colon and "/" in base else None
