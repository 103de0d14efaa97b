"""A small tree and a permission engine over it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from tests.support.worker.cages import sandbox

from ccb.remote.permissions.engine import LaunchRules, PermissionEngine
from ccb.remote.permissions.paths import PathScope
from ccb.remote.permissions.rules import Behavior, Decision
from ccb.tunnel.wire.tool_traits import traits_of


class Named:
    """A tool of which only the name is known, and perhaps that it reads."""

    def __init__(self, name: str, reads: bool = False) -> None:
        self.traits = traits_of(name)
        self._reads = reads

    def is_read_only(self, tool_input: dict[str, Any]) -> bool:
        return self._reads


class Desk:
    """`project/` is the session's directory; `home/` and `other/` are outside."""

    def __init__(self, root: Path) -> None:
        self.root = Path(os.path.realpath(root))
        self.cwd = self.root / "project"
        self.home = self.root / "home"
        for directory in (self.cwd / "src", self.cwd / "sub", self.home / ".ssh", self.root / "other"):
            directory.mkdir(parents=True)
        for file in (self.cwd / "a.txt", self.cwd / "src/b.py", self.home / ".ssh/id", self.root / "other/c"):
            file.write_text("x")

    def places(self) -> PathScope:
        return PathScope.of(str(self.cwd), str(self.home))

    def engine(self, mode: str = "default", allowed: str = "", disallowed: str = "", **more: Any) -> PermissionEngine:
        caged = more.pop("sandbox", None) or sandbox(home=str(self.home))
        own = {name: more.pop(name) for name in ("add_dirs", "allow_bypass") if name in more}
        launch = LaunchRules(caged, mode, [allowed], [disallowed], **own)
        return PermissionEngine(launch, cwd=str(self.cwd), home=str(self.home), is_root=False, **more)


def bash(engine: PermissionEngine, command: str, **more: Any) -> Decision:
    return engine.decide(Named("Bash"), {"command": command}, **more)


def on_file(engine: PermissionEngine, tool: str, path: object, **more: Any) -> Decision:
    return engine.decide(Named(tool), {"file_path": str(path)}, **more)


def differing(engine: PermissionEngine, expected: Behavior, *calls: str) -> list[str]:
    """Return the calls, each `Tool path` or `$ command line`, that are not decided as expected."""
    found = []
    for call in calls:
        tool, _, rest = call.partition(" ")
        decision = bash(engine, rest) if tool == "$" else on_file(engine, tool, rest)
        found += [call] if decision.behavior is not expected else []
    return found
