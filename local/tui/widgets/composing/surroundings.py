"""What the composer asks of the screen around it."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from ....terminal.image_clipboard import clipboard_image


@dataclass
class Surroundings:
    """`host` is where the agent works. `completes` takes a key for the list of completions first, and returns whether
    it did. `may_take_back` returns whether a prompt waits that Up takes back. `steer_next` lets the next prompt that
    waits steer the agent. `says` shows a short answer to what was done. `clipboard_image` returns the image in the
    clipboard, or raises NoImage."""

    host: str = ""
    completes: Callable[[str], bool] = lambda key: False
    may_take_back: Callable[[], bool] = lambda: False
    steer_next: Callable[[], object] = lambda: None
    says: Callable[[str], None] = lambda text: None
    clipboard_image: Callable[[], Awaitable[bytes]] = lambda: clipboard_image(os.environ)
