"""What a fleet is to do, and what came of each of its tasks: files in the state directory, so that ccb may die."""

from __future__ import annotations

import asyncio
import json
import os
import re
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, Field, ValidationError

from ccb.tunnel.errors import ConfigError, ExitCode, UsageError

from ..command_line.option_values import shortened
from ..config.log import state_dir
from ..config.settings_file import locked, replace_file

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_LOOKS_S = 0.2
_MOST_NAMED = 10
JobPlace = tuple[int, int]
"""The number of a job, counted from 1 on, and the place of a task in it."""


class FleetTask(BaseModel, frozen=True):
    """One session. `host` is how its host is called, `place` is `HOST:/PATH` as the command line takes it. `options`
    are words of the command line for this task alone. The session has its ID before it begins, so it begins once."""

    index: int
    host: str
    place: str
    prompt: str
    session: str = Field(default_factory=lambda: str(uuid.uuid4()))
    options: tuple[str, ...] = ()

    def input_id(self, attempt: int) -> str:
        """Return the ID of the prompt of an attempt. A session applies an input once, however often it is sent."""
        return str(uuid.uuid5(uuid.UUID(self.session), f"prompt {attempt}"))


class Manifest(BaseModel, frozen=True):
    """`id` names the fleet in the ledger. `options` are words of the command line for each task. `budget_usd` is for
    all tasks together, `host_usd` for those of each host. `engine` runs the tasks: "" is this laptop; `site` is what
    another engine keeps, and `submissions` are the tasks that were handed to it together, as one job."""

    id: str = Field(default_factory=lambda: str(uuid.uuid4()))
    name: str
    options: tuple[str, ...] = ()
    tasks: tuple[FleetTask, ...]
    jobs: int
    budget_usd: float | None = None
    host_usd: float | None = None
    engine: str = ""
    site: dict[str, Any] = {}
    submissions: tuple[tuple[int, ...], ...] = ()

    @property
    def places(self) -> dict[int, JobPlace]:
        """Return where each task is that was handed in: its last job counts."""
        jobs = enumerate(self.submissions, start=1)
        return {index: (number, place) for number, tasks in jobs for place, index in enumerate(tasks)}


class TaskResult(BaseModel, frozen=True):
    """What came of the last attempt of a task. `answered`: its turn is over on the host, so the next attempt is another
    prompt; otherwise the same prompt is waited for again. `text` and `errors` may be words of the host."""

    index: int
    attempt: int = 1
    answered: bool = False
    exit_code: ExitCode
    text: str = ""
    data: Any = None
    errors: tuple[str, ...] = ()
    usd: float = 0.0
    turns: int = 0
    duration_s: float = 0.0
    ended: float = Field(default_factory=time.time)

    @property
    def ok(self) -> bool:
        return self.exit_code == ExitCode.OK


def task_result(**facts: object) -> TaskResult:
    """Return a result as it will be read again. What a host says may have no form in UTF-8. Raise ValueError and
    RecursionError for what cannot be kept."""
    return TaskResult.model_validate_json(json.dumps(facts, ensure_ascii=False).encode("utf-8", "replace"))


M = TypeVar("M", bound=BaseModel)


class FleetFolder:
    """The files of one fleet: `manifest.json`, and `results/INDEX.json` for each task that has ended. The mark tells
    the ccb that runs this fleet to stop: it may drive others."""

    def __init__(self, path: Path) -> None:
        self.path, self.name, self.stop_mark = path, path.name, path / "stopped"
        self._manifest, self._lock = path / "manifest.json", path / "lock"

    def manifest(self) -> Manifest:
        """Raises ConfigError."""
        return _read(Manifest, self._manifest)

    def write_manifest(self, manifest: Manifest) -> None:
        """Raises ConfigError."""
        _write(self._manifest, manifest)

    def hand_in(self, manifest: Manifest, indexes: Iterable[int]) -> Manifest:
        """Write that tasks are handed to the site, before they are: a ccb that dies then does not do it twice."""
        manifest = manifest.model_copy(update={"submissions": (*manifest.submissions, tuple(indexes))})
        self.write_manifest(manifest)
        return manifest

    def results(self) -> dict[int, TaskResult]:
        """Return the results by their index. Raises ConfigError."""
        found = [_read(TaskResult, path) for path in (self.path / "results").glob("[0-9]*.json")]
        return {each.index: each for each in found}

    def write_result(self, result: TaskResult) -> None:
        """Raises ConfigError."""
        _write(self.path / "results" / f"{result.index}.json", result)

    @contextmanager
    def driven(self) -> Iterator[None]:
        """Be the only ccb that runs or collects this fleet. Raises UsageError."""
        try:
            with locked(self._lock, wait=False):
                self._lock.write_text(str(os.getpid()), encoding="ascii")
                yield
        except BlockingIOError:
            do = f"`ccb fleet stop {self.name}` ends it, `ccb fleet status {self.name}` shows it."
            raise UsageError(f"another ccb runs the fleet {self.name}", do=do) from None

    def driver(self) -> int:
        """Return the process that runs this fleet, 0 for none."""
        try:
            with locked(self._lock, wait=False):
                return 0
        except BlockingIOError:
            return int(self._lock.read_text(encoding="ascii") or 0)

    async def until_left(self) -> None:
        while self.driver():  # noqa: ASYNC110 - another process leaves it
            await asyncio.sleep(_LOOKS_S)


def new_fleet(environ: Mapping[str, str], manifest: Manifest) -> FleetFolder:
    """Make the folder of a fleet. Raises UsageError for a name that is used, and ConfigError."""
    name = manifest.name
    if not _NAME.fullmatch(name):
        raise UsageError(f"{shortened(name)!r} is no name of a fleet", do="Take letters, digits, - _ and dots.")
    folder = FleetFolder(state_dir(environ) / "fleets" / name)
    try:
        folder.path.mkdir(mode=0o700, parents=True)
    except FileExistsError:
        raise UsageError(f"there is a fleet {name} already", do="Choose another name with --name.") from None
    except OSError as error:
        raise _unwritable(folder.path, error) from None
    try:
        folder.write_manifest(manifest)
    except ConfigError:
        folder.path.rmdir()  # the name stays free
        raise
    return folder


def fleets(environ: Mapping[str, str]) -> list[FleetFolder]:
    """Return the fleets, the newest first."""
    found = [path.parent for path in state_dir(environ).glob("fleets/*/manifest.json")]
    return [FleetFolder(each) for each in sorted(found, key=lambda path: path.stat().st_mtime, reverse=True)]


def the_fleet(environ: Mapping[str, str], name: str | None) -> FleetFolder:
    """Return the fleet of that name, or the newest one. Raises UsageError."""
    found = fleets(environ)
    if not found:
        raise UsageError("there is no fleet yet", do='Start one: ccb fleet run -p "…" HOST HOST')
    for each in found:
        if name is None or each.name == name:
            return each
    newest = ", ".join(each.name for each in found[:_MOST_NAMED])
    raise UsageError(f"there is no fleet {shortened(name or '')!r}", do=f"The newest ones are {newest}.")


def _read(kind: type[M], path: Path) -> M:
    try:
        return kind.model_validate_json(path.read_bytes())
    except (OSError, ValidationError) as error:
        why = str(error.strerror) if isinstance(error, OSError) else str(error)
        raise ConfigError(f"{path} cannot be read", evidence=why, do="Move the file away.") from None


def _write(path: Path, content: BaseModel) -> None:
    try:
        replace_file(path, json.dumps(content.model_dump(mode="json"), ensure_ascii=False))
    except OSError as error:
        raise _unwritable(path, error) from None


def _unwritable(path: Path, error: OSError) -> ConfigError:
    return ConfigError(f"{path} cannot be written", evidence=str(error.strerror), do="Make room there.")
