"""Which text may be a hyperlink of the terminal (OSC 8): an address that is shown as it is, or the part of it that is
in this row. Whoever clicks on it has read where it leads."""

from __future__ import annotations

import re

from rich.segment import Segment

_ADDRESS = re.compile(r"https?://[!-~]{1,2000}")


def is_shown_address(text: str, target: str) -> bool:
    """Return whether `text` is all or a part of a plain web address `target`."""
    return bool(text) and text in target and _ADDRESS.fullmatch(target) is not None


def without_hidden_link(segment: Segment) -> Segment:
    """Return a segment without its hyperlink, unless that leads to the address that the segment shows."""
    text, style, _ = segment
    if style is None or not style.link or is_shown_address(text, style.link):
        return segment
    return Segment(text, style.update_link(None))
