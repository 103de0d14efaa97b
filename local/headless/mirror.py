"""A copy of the transcript on stdout (`--session-mirror`), from which the official SDKs fill the session stores of
their users. The lines have the form of a transcript file of the family, and name such a file, which is not written."""

from __future__ import annotations

import json
import os
import re
import unicodedata
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from ccb.tunnel.wire.messages import AssistantLine, PublicLine, UserLine
from ccb.tunnel.wire.options import CLAUDE_CODE_VERSION
from ccb.tunnel.wire.requests import new_uuid

from .output import HeadlessOutput

if TYPE_CHECKING:
    from ..session.client import Json

_MAX_NAME = 200


class TranscriptMirror:
    """`environ` is the environment of the client's process, which looks for the transcript in the same directories."""

    def __init__(self, output: HeadlessOutput, environ: Mapping[str, str], cwd: Path) -> None:
        home = environ.get("CLAUDE_CONFIG_DIR") or str(Path(environ.get("HOME") or Path.home()) / ".claude")
        self._output = output
        self._cwd = unicodedata.normalize("NFC", os.path.realpath(cwd))
        self._folder = Path(unicodedata.normalize("NFC", home)) / "projects" / _folder_name(self._cwd)
        self._session = ""
        self._last: str | None = None
        self._prompts: dict[str, Json] = {}

    def begin(self, session_id: str) -> None:
        """The session has this id. A transcript of it that the client has written is continued."""
        self._session = session_id
        try:
            *_, last = self._path.read_text(encoding="utf-8").rstrip("\n").split("\n")
            self._last = str(json.loads(last)["uuid"])
        except (OSError, ValueError, KeyError, TypeError):
            self._last = None

    def sent(self, input_id: str, body: Json) -> None:
        """A prompt was sent."""
        self._prompts[input_id] = body

    async def taken(self, input_id: str) -> None:
        """A turn has taken a prompt."""
        body = self._prompts.pop(input_id, None)
        if body is not None:
            await self._print({**body, "uuid": body.get("uuid") or input_id})

    async def message(self, public: PublicLine, body: Json) -> None:
        """A message of the session was printed."""
        of_main = not body.get("parent_tool_use_id")
        if of_main and (isinstance(public, AssistantLine) or (isinstance(public, UserLine) and not public.is_replay)):
            await self._print(body)

    async def _print(self, body: Json) -> None:
        identity = str(body.get("uuid") or new_uuid())
        entry = {
            "type": body["type"],
            "uuid": identity,
            "parentUuid": self._last,
            "sessionId": self._session,
            "timestamp": body.get("timestamp") or datetime.now(UTC).isoformat(timespec="milliseconds")[:23] + "Z",
            "cwd": self._cwd,
            "version": CLAUDE_CODE_VERSION,
            "isSidechain": False,
            "userType": "external",
            "message": body["message"],
            **({"isMeta": True} if body.get("isSynthetic") else {}),
            **({"toolUseResult": body["tool_use_result"]} if "tool_use_result" in body else {}),
        }
        self._last = identity
        await self._output.message({"type": "transcript_mirror", "filePath": str(self._path), "entries": [entry]})

    @property
    def _path(self) -> Path:
        return self._folder / f"{self._session}.jsonl"


def _folder_name(directory: str) -> str:
    """Return the name under which the official SDKs look for the sessions of a directory."""
    name = re.sub(r"[^a-zA-Z0-9]", "-", directory)
    if len(name) <= _MAX_NAME:
        return name
    value = 0
    for char in directory:
        value = (value * 31 + ord(char)) & 0xFFFFFFFF
    value = abs(value - 0x100000000 if value & 0x80000000 else value)
    digits = ""
    while value or not digits:
        value, digit = divmod(value, 36)
        digits = "0123456789abcdefghijklmnopqrstuvwxyz"[digit] + digits
    return f"{name[:_MAX_NAME]}-{digits}"
