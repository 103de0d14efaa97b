"""What the composer asks of the screen around it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass
class Surroundings:
    """`completes` takes a key for the list of completions first, and returns whether it did. `may_take_back` returns
    whether a prompt waits that Up takes back. `steer_next` lets the next prompt that waits steer the agent. `says`
    shows a short answer to what was done."""

    completes: Callable[[str], bool] = lambda key: False
    may_take_back: Callable[[], bool] = lambda: False
    steer_next: Callable[[], object] = lambda: None
    says: Callable[[str], None] = lambda text: None
