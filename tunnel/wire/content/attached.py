"""Text files of the laptop that go along with a prompt: a block each, behind what the person has typed."""

from __future__ import annotations

from ..frames import Json

_START = '<attached-file name="'
_END = "</attached-file>"


def attached_file(name: str, text: str) -> Json:
    """Return the block of a text file. `name` must not hold a quote or a line break."""
    return {"type": "text", "text": f'{_START}{name}">\n{text}\n{_END}'}


def is_attached_file(block: Json) -> bool:
    """Return whether a block is such a file: its text was not typed, so no names of files are looked for in it."""
    text = block.get("text")
    return isinstance(text, str) and text.startswith(_START) and text.endswith(_END)
