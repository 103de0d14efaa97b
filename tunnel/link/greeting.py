"""What of a worker's hello is taken over: a hostile worker must not fill the screen or the memory with it."""

from __future__ import annotations

import re
from dataclasses import fields, replace

from ..errors import ProtocolError
from ..plain_text import HostText
from ..wire import Hello
from ..wire.structure import is_too_deep

MAX_NOTES = 20
MAX_NOTE = 1_000
"""Characters of a note."""

MAX_TEXT = 16 * 1024
"""Characters of any other text. A directory on Linux has at most 4,096 bytes."""

_MAX_CAPABILITIES = 100
_SESSION_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")


def is_session_id(text: str) -> bool:
    """Whether a text of the host can stand for a session in a line or a command: it has no room for words."""
    return _SESSION_ID.fullmatch(text) is not None


def limited_hello(hello: Hello, host: str) -> Hello:
    """Return `hello` with at most MAX_NOTES notes; the last one says how many are left out.

    Last records that are nested too deeply are left out. Raise ProtocolError if a text in it is longer than any that a
    worker sends, or its session is no ID."""
    for each in fields(hello):
        value = getattr(hello, each.name)
        if isinstance(value, str) and len(value) > MAX_TEXT:
            raise ProtocolError(f"{host} sent a hello with {len(value)} characters in {each.name!r}")
    if not is_session_id(hello.session):
        raise ProtocolError(f"{host} sent a hello of the session {HostText(hello.session)}, which is no ID")
    last = {} if is_too_deep(hello.last) else hello.last
    notes = [note if len(note) <= MAX_NOTE else f"{note[:MAX_NOTE]}…" for note in hello.notes[:MAX_NOTES]]
    more = len(hello.notes) - len(notes)
    if more > 0:
        notes.append(f"… and {more} more notes")
    return replace(hello, notes=notes, capabilities=hello.capabilities[:_MAX_CAPABILITIES], last=last)
