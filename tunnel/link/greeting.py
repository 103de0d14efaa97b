"""What of a worker's hello is taken over: a hostile worker must not fill the screen or the memory with it."""

from __future__ import annotations

import re
from dataclasses import field, fields

from ..errors import ProtocolError
from ..plain_text import HostText
from ..wire import Hello
from ..wire.dataclass import dataclass
from ..wire.structure import is_too_deep

MAX_NOTES = 20
MAX_NOTE = 1_000
"""Characters of a note."""

MAX_TEXT = 16 * 1024
"""Characters of any other text. A directory on Linux has at most 4,096 bytes."""

_MAX_CAPABILITIES = 100
SESSION_ID = r"^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$"


@dataclass(frozen=True)
class Greeting(Hello):
    """A hello as the laptop reads it: what the worker says in words has the type that marks it."""

    cwd: HostText  # type: ignore[assignment]
    python: HostText  # type: ignore[assignment]
    platform: HostText  # type: ignore[assignment]
    sandbox: HostText = HostText("")  # type: ignore[assignment]
    notes: list[HostText] = field(default_factory=list)  # type: ignore[assignment]


def is_session_id(text: str) -> bool:
    """Whether a text of the host can stand for a session in a line or a command: it has no room for words."""
    return re.fullmatch(SESSION_ID, text) is not None


def limited_hello(hello: Hello, host: str) -> Greeting:
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
    limited = {"capabilities": hello.capabilities[:_MAX_CAPABILITIES], "last": last, "notes": [*map(HostText, notes)]}
    words = {name: HostText(getattr(hello, name)) for name in ("cwd", "python", "platform", "sandbox")}
    return Greeting(**{**hello.__dict__, **limited, **words})
