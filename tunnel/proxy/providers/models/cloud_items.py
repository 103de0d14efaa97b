"""What the lists of clouds say of one model: Bedrock's models and inference profiles, Vertex's publisher models, and
the deployments of a Foundry project."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import field
from typing import Any

from ....wire.dataclass import dataclass
from ....wire.models import claude_facts

Json = dict[str, Any]

_DATE = re.compile(r"\d{8}")
_CLAUDE = "foundation-model/anthropic."


@dataclass(frozen=True)
class CloudItem:
    """The name under which a model is asked for, "" if it cannot be, and what is known of it."""

    name: str
    title: str = ""
    created: str = ""
    facts: Json = field(default_factory=dict)


def cloud_item(item: Json) -> CloudItem | None:
    """Return what an item of a cloud's list says, None for an item of another list."""
    for mark, read in _READERS.items():
        if isinstance(item.get(mark), str):
            return read(item)
    name = item.get("name")
    return _vertex(item, name) if isinstance(name, str) and name.startswith("publishers/") else None


def _bedrock_model(item: Json) -> CloudItem:
    """Most models are asked for by an inference profile, so only those count that can be asked for by themselves."""
    name, how = str(item["modelId"]), item.get("inferenceTypesSupported")
    made = "TEXT" in _list(item, "outputModalities") and "ON_DEMAND" in (how if isinstance(how, list) else ())
    claude = name.startswith("anthropic.") and made
    images = {"images": "IMAGE" in _list(item, "inputModalities")} if item.get("inputModalities") else {}
    return CloudItem(name if claude else "", _text(item, "modelName"), facts=images)


def _bedrock_profile(item: Json) -> CloudItem:
    """A profile of a person is asked for by its ARN, which says nothing of the model behind it."""
    arns = [str(each.get("modelArn")) for each in _list(item, "models") if isinstance(each, dict)]
    behind = next((arn.partition("foundation-model/")[2] for arn in arns if _CLAUDE in arn), "")
    if not behind:
        return CloudItem("")
    own = item.get("type") == "APPLICATION"
    name = _text(item, "inferenceProfileArn") if own else str(item["inferenceProfileId"])
    return CloudItem(name, _text(item, "inferenceProfileName"), _text(item, "createdAt"), _known(behind) if own else {})


def _vertex(item: Json, name: str) -> CloudItem:
    model, version = name.rpartition("/")[2], _text(item, "versionId")
    if not name.startswith("publishers/anthropic/"):
        return CloudItem("")
    return CloudItem(f"{model}@{version}" if _DATE.fullmatch(version) else model)


def _deployment(item: Json) -> CloudItem:
    """The person has named the deployment; what it can do is that of its model."""
    can = item.get("capabilities")
    chats = not isinstance(can, dict) or str(can.get("chat_completion", "true")).lower() == "true"
    model = _text(item, "modelName")
    return CloudItem(
        _text(item, "name") if chats else "", f"{model} {_text(item, 'modelVersion')}".strip(), "", _known(model)
    )


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


def _list(item: Json, name: str) -> list[Any]:
    found = item.get(name)
    return found if isinstance(found, list) else []


def _text(item: Json, name: str) -> str:
    found = item.get(name)
    return found if isinstance(found, str) else ""


_READERS: dict[str, Callable[[Json], CloudItem]] = {
    "modelId": _bedrock_model,
    "inferenceProfileId": _bedrock_profile,
    "modelPublisher": _deployment,
}
