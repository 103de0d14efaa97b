"""The lists of models that providers give."""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import field, replace
from importlib import import_module
from urllib.parse import quote, urlsplit

from ..wire.dataclass import dataclass
from ..wire.model_facts import LEVELS, claude_facts
from .http_client import ProviderClient, Sign, signed_request
from .json_fields import Json, dump, list_in, object_in, objects_in, text_in
from .provider import ProviderError

log = logging.getLogger(__name__)

_DATE = re.compile(r"\d{8}")
_CLAUDE = "foundation-model/anthropic."


Facts = Mapping[str, object]  # what is known of a model: fields of `ModelTraits`, by name


@dataclass(frozen=True)
class ListedModel:
    """One model of a list. `id` is what it is asked for by, "" if it cannot be. `facts` are those that the list states.
    `created` is a date or a number that grows with time, "" if the list does not say it."""

    id: str
    title: str = ""
    created: str = ""
    facts: Facts = field(default_factory=dict)


def _bedrock_model(item: Json) -> ListedModel:
    """Most models are asked for by an inference profile, so only those count that can be asked for by themselves."""
    name = str(item["modelId"])
    made = "TEXT" in list_in(item, "outputModalities") and "ON_DEMAND" in list_in(item, "inferenceTypesSupported")
    images = {"images": "IMAGE" in list_in(item, "inputModalities")} if item.get("inputModalities") else {}
    claude = name.startswith("anthropic.") and made
    return ListedModel(name if claude else "", text_in(item, "modelName"), facts=images)


def _bedrock_profile(item: Json) -> ListedModel:
    """A profile of a person is asked for by its ARN, which says nothing of the model behind it."""
    arns = [str(each.get("modelArn")) for each in objects_in(item, "models")]
    behind = next((arn.partition("foundation-model/")[2] for arn in arns if _CLAUDE in arn), "")
    own = item.get("type") == "APPLICATION"
    name = text_in(item, "inferenceProfileArn") if own else str(item["inferenceProfileId"])
    title, created = text_in(item, "inferenceProfileName"), text_in(item, "createdAt")
    return ListedModel(name if behind else "", title, created, _known(behind) if own else {})


def _deployment(item: Json) -> ListedModel:
    """The person has named the deployment; what it can do is that of its model."""
    can = item.get("capabilities")
    chats = not isinstance(can, dict) or str(can.get("chat_completion", "true")).lower() == "true"
    model = text_in(item, "modelName")
    title = f"{model} {text_in(item, 'modelVersion')}".strip()
    return ListedModel(text_in(item, "name") if chats else "", title, facts=_known(model))


def _known(model: str) -> Json:
    """Return what ccb knows of a Claude model, for a name that does not say which it is."""
    known = claude_facts(model)
    if not known.input_price:
        return {}
    return {
        "window": known.context_window,
        "max_output": known.max_output,
        "input_price": known.input_price,
        "output_price": known.output_price,
        "cache_read_price": known.input_price * known.read_share,
    }


_CLOUDS: dict[str, Callable[[Json], ListedModel]] = {
    "modelId": _bedrock_model,
    "inferenceProfileId": _bedrock_profile,
    "modelPublisher": _deployment,
}
"""The readers of the items of clouds, by a member that only these have."""


_MAX_DETAILED = 100  # models of which more is asked: servers on a laptop have few
_MAX_PARTS = 20


@dataclass(frozen=True)
class ListCall:
    """How a provider is asked for its list. `path` is appended to the base URL, without `strips` at its end; "" leaves
    it to the client of the `sdk`. `more` are the paths of further lists. `key_header` carries the key where model calls
    have another one. `details` is the path that says more of one model. With `of_project`, the path has a place for the
    name of a project, and is appended to the host."""

    path: str = ""
    strips: str = ""
    key_header: str = ""
    details: str = ""
    more: tuple[str, ...] = ()
    of_project: bool = False
    sdk: str = "openai"


@dataclass(frozen=True)
class ModelSource:
    """A provider that is asked for its list, with the headers of `sign`."""

    client: ProviderClient
    sign: Sign
    call: ListCall

    async def load(self) -> None:
        if not self.call.path:
            for module in ("ccb.tunnel.providers.sdk_clients", self.call.sdk):
                await asyncio.to_thread(import_module, module)

    async def fetch(self) -> list[ListedModel]:
        """Return the models. Raise ProviderError, which says why there is no list, CredentialError, ConfigError."""
        await self.load()
        models: dict[str, ListedModel] = {}
        async with self.client:
            for path in (self.call.path, *self.call.more):
                for model in await self._listed(path):
                    if len(models) < MAX_LISTED:
                        models.setdefault(model.id, model)
            found = list(models.values())
            if not self.call.details:
                return found
            detailed = [await self._with_details(each) for each in found[:_MAX_DETAILED]]
            return detailed + found[_MAX_DETAILED:]

    async def ask(self, path: str) -> tuple[int, bytes]:
        """Return the status and the body of an answer. Without a path, the SDK asks for its list. See `fetch`."""
        if not path:
            from .sdk_clients import list_models

            return await list_models(self.call.sdk, self.client, self.sign)
        status, _, body = await signed_request(self.client, self.sign, "GET", path)
        return status, body

    async def _listed(self, path: str) -> list[ListedModel]:
        models: list[ListedModel] = []
        asked = path
        for _ in range(_MAX_PARTS):
            status, body = await self.ask(asked)
            if status != 200:
                raise ProviderError(f"it answered its list of models with HTTP {status}")
            try:
                part, more = read_page(body)
            except ValueError as error:
                raise ProviderError(f"its list of models cannot be read: {error}", permanent=True) from None
            models += part
            if not more:
                break
            asked = path.partition("?")[0] + "?" + "&".join(_parameters(path, more))
        return models

    async def _with_details(self, model: ListedModel) -> ListedModel:
        question = dump({"model": model.id}).encode("utf-8", "replace")
        try:
            status, _, body = await signed_request(self.client, self.sign, "POST", self.call.details, question)
        except ProviderError as error:  # the list is good without what would be said of one model
            log.info("no details of the model %s: %s", model.id, error)
            return model
        return replace(model, facts={**model.facts, **(read_details(body) if status == 200 else {})})


def _parameters(path: str, more: str) -> list[str]:
    """Return the parameters of a path, and those of the next part, which outrank them."""
    given = more.split("&")
    names = {each.partition("=")[0] for each in given}
    return [each for each in path.partition("?")[2].split("&") if each and each.partition("=")[0] not in names] + given


MAX_LISTED = 5_000

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@+\[\]-]{0,199}")
_NO_AGENTS = re.compile(
    r"embed|whisper|\btts\b|dall-e|moderation|realtime|transcribe|sora|babbage|davinci|audio|-image|imagen|veo-|aqa\b"
)
_LISTS = ("data", "models", "modelSummaries", "inferenceProfileSummaries", "publisherModels", "value")
_OUTPUTS = ("max_tokens", "outputTokenLimit", "max_completion_tokens")
_NEXT = {"nextToken": "nextToken", "nextPageToken": "pageToken"}
_NUM_CTX = re.compile(r"^num_ctx\s+([1-9]\d{2,8})\s*$", re.MULTILINE)
_PER_MILLION = 1_000_000


def read_page(data: bytes) -> tuple[list[ListedModel], str]:
    """Return the models of a part of a list that can work as an agent, as far as their names tell, and the further
    parameters of a request for the next part, "" if this is the last. Raise ValueError for what is no list."""
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
        if token := text_in(found, name):
            return f"{parameter}={quote(token, safe='')}"
    return urlsplit(text_in(found, "nextLink")).query  # a list does not say where it goes on


def _read(item: Json) -> ListedModel | None:
    reader = next((read for mark, read in _CLOUDS.items() if isinstance(item.get(mark), str)), _listed_model)
    found = reader(item)
    if not _ID.fullmatch(found.id):
        return None
    return replace(found, title=found.title[:200], created=found.created[:40])


def _listed_model(item: Json) -> ListedModel:
    name = (text_in(item, "id") or text_in(item, "name")).removeprefix("models/")
    if name.startswith("publishers/"):  # Vertex
        model, version = name.rpartition("/")[2], text_in(item, "versionId")
        claude = name.startswith("publishers/anthropic/")
        return ListedModel((f"{model}@{version}" if _DATE.fullmatch(version) else model) if claude else "")
    methods = item.get("supportedGenerationMethods")
    silent = isinstance(methods, list) and "generateContent" not in methods
    if _NO_AGENTS.search(name.lower()) or silent or item.get("lifecycle") == "retired":
        return ListedModel("")
    title = text_in(item, "display_name") or text_in(item, "displayName")
    created = item.get("created_at") or item.get("created") or ""
    return ListedModel(name, title, str(created), {**_sizes(item), **_abilities(item), **_prices(item)})


def read_details(data: bytes) -> Json:
    """Return what Ollama says of one model. Its window is known only where its file sets it, which the server obeys."""
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
    top, meta = object_in(item, "top_provider"), object_in(item, "meta")
    windows = (
        *(item.get(name) for name in ("max_input_tokens", "inputTokenLimit", "max_model_len", "context_length")),
        *(item.get("context_window"), top.get("context_length"), meta.get("n_ctx"), meta.get("n_ctx_train")),
    )
    outputs = *(item.get(name) for name in _OUTPUTS), top.get("max_completion_tokens")
    made = {"window": _first_size(windows), "max_output": _first_size(outputs)}
    return {name: value for name, value in made.items() if value}


def _abilities(item: Json) -> Json:
    """OpenRouter's words, Gemini's and Anthropic's."""
    made: Json = {}
    takes = item.get("supported_parameters")
    if isinstance(takes, list):
        made |= {"tools": "tools" in takes, "thinking": "reasoning" in takes or "include_reasoning" in takes}
    media = object_in(item, "architecture").get("input_modalities")
    if isinstance(media, list):
        made |= {"images": "image" in media, "documents": "file" in media}
    can = object_in(item, "capabilities")
    told = {"images": "image_input", "documents": "pdf_input", "thinking": "thinking"}
    said = {ours: object_in(can, theirs).get("supported") for ours, theirs in told.items()}
    said["thinking"] = item["thinking"] if isinstance(item.get("thinking"), bool) else said["thinking"]
    made |= {name: value for name, value in said.items() if isinstance(value, bool)}
    effort = object_in(can, "effort")
    levels = [level for level in LEVELS if object_in(effort, level).get("supported") is True]
    return made | ({"efforts": levels} if levels else {})


def _prices(item: Json) -> Json:
    """OpenRouter's prices: dollars for a token, as text. A negative one says that it depends."""
    given = object_in(item, "pricing")
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


def _first_size(values: Iterable[object]) -> int:
    return next((each for each in values if type(each) is int and 0 < each < 1_000_000_000), 0)
