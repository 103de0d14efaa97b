"""What the REPL shows of the session beside what the session says itself."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ReplInfo:
    """`host` is how the person called it ("local" without SSH), `path` the directory there, `resume` the command that
    comes back to the session."""

    host: str
    path: str
    model: str
    mode: str
    version: str
    resume: str = ""
