"""Prompts and drafts of earlier runs."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from .settings_file import replace_file

log = logging.getLogger(__name__)

MAX_PROMPTS = 1_000
_MAX_BYTES = 2 << 20
_MAX_PROMPT = 100_000  # characters: a longer one is not kept
_MAX_RECALLED = 2_000


def _without_key(text: str) -> str:
    """Return a prompt without what follows /login: some people give the key there."""
    return "/login" if re.match(r"\s*/login\s", text) else text


class PromptStore:
    """The prompts for `place`. All methods block; where a file cannot be used, nothing is kept."""

    def __init__(self, state: Path, place: str) -> None:
        self._directory = state / "prompts"
        name = hashlib.sha256(place.encode("utf-8", "replace")).hexdigest()[:32]
        self._sent = self._directory / f"{name}.jsonl"
        self._draft = self._directory / f"{name}.draft"

    def load(self) -> tuple[list[str], str]:
        """Return the prompts, the newest last, and what was not sent. A file that has become long is shortened."""
        lines = self._read(self._sent).rstrip("\n").split("\n")
        prompts = []
        for line in lines[-MAX_PROMPTS:]:
            with suppress(ValueError):
                text = json.loads(line)
                if text and isinstance(text, str):
                    prompts.append(text)
        if len(lines) > 2 * MAX_PROMPTS or sum(map(len, lines)) > _MAX_BYTES:
            kept = [json.dumps(each) for each in prompts]
            while sum(map(len, kept)) > _MAX_BYTES // 2:
                del kept[: 1 + len(kept) // 2]
            self._replace(self._sent, "".join(f"{each}\n" for each in kept))
        return prompts, self._read(self._draft)

    def add(self, prompt: str) -> None:
        if len(prompt) > _MAX_PROMPT:
            return
        try:
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            file = os.open(self._sent, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
            with os.fdopen(file, "w", encoding="utf-8") as writer:
                writer.write(json.dumps(prompt) + "\n")
        except OSError as error:
            log.warning("a prompt cannot be kept: %s", error)

    def keep_draft(self, text: str) -> None:
        """Keep what the person has typed and not sent; "" for nothing."""
        if text or self._draft.exists():
            self._replace(self._draft, _without_key(text)[:_MAX_PROMPT])

    def _read(self, path: Path) -> str:
        try:
            with path.open("rb") as file:
                file.seek(max(0, path.stat().st_size - 2 * _MAX_BYTES))
                return file.read(2 * _MAX_BYTES).decode("utf-8", "replace")
        except FileNotFoundError:
            return ""
        except OSError as error:
            log.warning("%s: %s", path, error)
            return ""

    def _replace(self, path: Path, text: str) -> None:
        try:
            replace_file(path, text)
        except OSError as error:
            log.warning("%s cannot be written: %s", path, error)


class PromptRecall:
    """Goes through `sent`, oldest first. After the newest prompt comes the draft."""

    def __init__(self) -> None:
        self.sent: list[str] = []
        self.before: tuple[str, ...] = ()  # the waiting prompts that the one goes before which is edited now
        self._keeper: PromptStore | None = None
        self._index = 0
        self._draft = ""

    def continue_from(self, keeper: PromptStore, prompts: Sequence[str]) -> None:
        """Put the prompts of earlier runs before those of this one, which `keeper` keeps from now on."""
        for prompt in self.sent:
            keeper.add(prompt)
        self._keeper = keeper
        self.sent[:0] = prompts
        self._index += len(prompts)

    def add(self, prompt: str, kept: str = "") -> None:
        """Note that a prompt was sent. `kept` is what later runs are to find in its place."""
        prompt = _without_key(prompt)
        if not self.sent or self.sent[-1] != prompt:
            self.sent.append(prompt)
            if self._keeper is not None:
                self._keeper.add(_without_key(kept or prompt))
            del self.sent[:-_MAX_RECALLED]
        self._index = len(self.sent)

    def keep_draft(self, text: str) -> None:
        """Keep what the person has begun to write, for the next run."""
        if self._keeper is not None:
            self._keeper.keep_draft(text)

    def step(self, by: int, text: str) -> str | None:
        """Return the previous (`by` is -1) or the next prompt (1), or None. `text` is what is shown now."""
        index = self._index + by
        if not 0 <= index <= len(self.sent):
            return None
        if self._index == len(self.sent):
            self._draft = text
        self._index = index
        return self._draft if index == len(self.sent) else self.sent[index]
