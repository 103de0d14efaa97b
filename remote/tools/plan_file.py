"""The plan of a session: a file in the session's own directory, which the model and the person may edit."""

from __future__ import annotations

import os

from ccb.tunnel.wire.dataclass import dataclass

from ..sessions.paths import PLAN

MAX_CHARS = 100_000
"""The longest plan that the person is asked about."""


@dataclass(frozen=True)
class PlanFile:
    """`path` is "" for a session in memory, which has no directory."""

    path: str = ""

    @staticmethod
    def beside(outputs: str) -> PlanFile:
        """Return the plan of the session whose outputs are in the directory `outputs`, "" for none."""
        return PlanFile(os.path.join(os.path.dirname(outputs), PLAN) if outputs else "")

    def read(self) -> str:
        """Return the plan, or "". A link in its place is not followed."""
        try:
            fd = os.open(self.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
            with open(fd, encoding="utf-8", errors="replace", newline="") as file:
                return file.read(MAX_CHARS + 1).strip()
        except OSError:
            return ""

    def write(self, text: str) -> None:
        """Replace the plan. Raise OSError."""
        new = self.path + ".new"
        fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
        with open(fd, "w", encoding="utf-8", errors="replace", newline="") as file:
            file.write(text + "\n")
        os.replace(new, self.path)
