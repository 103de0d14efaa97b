"""The lists of models that providers have given: a session starts without asking, and without a network. There is one
file for each provider, by its name; a list counts only for the address that it came from."""

from __future__ import annotations

import json
import logging
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ccb.tunnel.providers.model_lists import MAX_LISTED, ListedModel
from ccb.tunnel.wire.dataclass import dataclass

from ..config.settings import xdg_dir
from ..config.settings_file import replace_file

log = logging.getLogger(__name__)

FRESH_S = 24 * 3600  # a list that is older is asked for again, in the background of a session
NEW_S = 60  # a model may have come since: it is refused only by a list that is newer than this
_FORMAT = 1
_MAX_BYTES = 16 * 1024 * 1024


@dataclass(frozen=True)
class ModelList:
    """The models of a provider, as it listed them at the Unix time `at`."""

    at: float
    models: Sequence[ListedModel]

    @property
    def date(self) -> str:
        return time.strftime("%Y-%m-%d", time.localtime(self.at))

    def find(self, model: str) -> ListedModel | None:
        """Return the model that a name stands for, which may lack a date or a tag, or have a variant (`:free`)."""
        by_id = {each.id: each for each in self.models}
        model = model.removesuffix("@default")  # Vertex's word for the newest version
        if model in by_id:
            return by_id[model]
        dated = re.compile(re.escape(model) + r"(-\d{8}|-\d{4}-\d{2}-\d{2}|@\d{8}|:latest)")
        found = max((name for name in by_id if dated.fullmatch(name)), default=None)
        if found is not None:
            return by_id[found]
        base, colon, _ = model.rpartition(":")
        return by_id.get(base) if colon and "/" in base else None

    def is_fresh(self, fresh_s: float) -> bool:
        return 0 <= time.time() - self.at < fresh_s


def _path(environ: Mapping[str, str], provider: str) -> Path:
    return xdg_dir(environ, "XDG_CACHE_HOME", ".cache") / "models" / f"{provider}.json"


def read_list(environ: Mapping[str, str], provider: str, address: str) -> ModelList | None:
    """Return the kept list of a provider at `address`, however old. Return None if no list is kept, or its file cannot
    be read."""
    try:
        with _path(environ, provider).open("rb") as file:
            data = json.loads(file.read(_MAX_BYTES))
        if data["format"] != _FORMAT or data["address"] != address:
            return None
        return ModelList(float(data["at"]), [_model(each) for each in data["models"][:MAX_LISTED]])
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError, KeyError, TypeError) as error:
        log.info("the kept list of models of %s cannot be read: %r", provider, error)
        return None


def keep_list(environ: Mapping[str, str], provider: str, address: str, models: Sequence[ListedModel]) -> ModelList:
    """Keep a list that a provider has just given, and return it. A file that cannot be written is left out."""
    made = ModelList(time.time(), models)
    data = {"format": _FORMAT, "address": address, "at": made.at, "models": [asdict(each) for each in models]}
    path = _path(environ, provider)
    try:
        replace_file(path, json.dumps(data))
    except OSError as error:
        log.warning("%s cannot be written: %s", path, error)
    return made


def _model(data: Mapping[str, Any]) -> ListedModel:
    facts = data["facts"]
    if not isinstance(facts, dict) or not isinstance(data["id"], str):
        raise TypeError("not a model")
    return ListedModel(data["id"], str(data["title"]), str(data["created"]), facts)
