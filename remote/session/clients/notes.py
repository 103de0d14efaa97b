"""Notes of the person for every agent that works in the project: lines in its CLAUDE.md."""

from __future__ import annotations

import os
from typing import Any

from ccb.tunnel.wire.kinds.commands import REMEMBER
from ccb.tunnel.wire.requests import RequestRefused

from ...system.host import is_under
from ...system.regular_files import ABSENT, FileChanged, NotAFile, digest_of
from ...system.text_encoding import text_of
from ..session import Session

Json = dict[str, Any]

_MAX_FILE = 1 << 20
_MAX_NOTE = 2_000


def register_notes(session: Session) -> None:
    """Register the handler."""
    session.broker.register_slow(REMEMBER, lambda note: _remember(session, note))


async def _remember(session: Session, note: str) -> Json:
    """Add the note to the instruction file of the session's directory, and tell the model."""
    text = " ".join(note.split())[:_MAX_NOTE]
    if not text:
        raise RequestRefused("the note is empty")
    context = session.agent.config.context
    host = context.host
    paths = [os.path.join(context.cwd, name) for name in ("CLAUDE.md", "AGENTS.md")]
    path = next((each for each in paths if os.path.lexists(each)), paths[0])
    real = host.real_path(path)
    if not is_under(real, host.real_path(context.cwd)):
        raise RequestRefused(f"{path} leads out of the project, to {real}: nothing was written")
    try:
        found = await host.stat(real)
        data = await host.read(real, 0, _MAX_FILE + 1) if found is not None else b""
        if len(data) > _MAX_FILE:
            raise RequestRefused(f"{path} is too large")
        file = text_of(data)
        if file is None or not file.codec:
            raise RequestRefused(f"{path} is not in UTF-8: add the note with an editor that knows its encoding")
        ending = "\r\n" if "\r\n" in file.text else "\n"
        separator = ending if file.text and not file.text.endswith("\n") else ""
        note = f"- {text}{ending}".encode("utf-8", "replace").decode()
        whole = file.encoded(f"{file.text}{separator}{note}")
        await host.replace(real, whole, digest_of(data) if found is not None else ABSENT)
    except (OSError, FileChanged, NotAFile) as error:
        raise RequestRefused(f"{path} was not written: {error or 'it has just changed'}") from None
    session.agent.reminders.add(f"note:{text}", f"The user has added this to {path}: {text}")
    return {"path": path}
