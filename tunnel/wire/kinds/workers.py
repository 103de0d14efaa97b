"""The records of the processes around a session: its driver, its workers, and the session it was copied from."""

from __future__ import annotations

from dataclasses import field
from typing import ClassVar

from ..dataclass import dataclass


@dataclass(frozen=True)
class DriverRecord:
    """`driver`: the client named `by` drives now, under `epoch`."""

    kind: ClassVar[str] = "driver"
    by: str
    epoch: int


@dataclass(frozen=True)
class WorkerRecord:
    """`worker`: another worker goes on with the session, in the directory `cwd`. `mark` marks the processes that it
    starts."""

    kind: ClassVar[str] = "worker"
    pid: int
    bundle: str
    mark: str | None
    cwd: str = ""


@dataclass(frozen=True)
class ForkedRecord:
    """`forked`: everything before was copied from the session `source`."""

    kind: ClassVar[str] = "forked"
    source: str = field(metadata={"key": "from"})
