"""The layout tells the story: links, import rules and file sizes hold."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

pytestmark = pytest.mark.sources

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ("local", "remote", "tunnel", "deploy")
MODULES = sorted(path for room in ROOMS for path in (ROOT / room).rglob("*.py"))
MAX_LINES = 700


def test_the_package_sees_each_room_through_a_relative_link() -> None:
    assert [str((ROOT / "src" / "ccb" / room).readlink()) for room in ROOMS] == [f"../../{room}" for room in ROOMS]


def _imports(path: Path) -> list[tuple[int, str]]:
    """(level, module) of every import statement."""
    found = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found += [(0, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            found.append((node.level, node.module or ""))
    return found


def _relative(path: Path) -> str:
    return str(path.relative_to(ROOT))


def test_imports_are_relative_inside_a_room_and_absolute_across() -> None:
    wrong = []
    for path in MODULES:
        room, *folders = path.relative_to(ROOT).parts
        for level, module in _imports(path):
            if level > len(folders):
                wrong.append(f"{_relative(path)}: a relative import leaves {room}/: {module}")
            elif not level and module.split(".")[0] in ROOMS:
                wrong.append(f"{_relative(path)}: import ccb.{module}, not {module}")
            elif not level and room != "remote" and module.startswith(f"ccb.{room}."):
                wrong.append(f"{_relative(path)}: {module} is in the same room: import it relatively")
    assert not wrong


def test_no_module_outgrows_one_subject() -> None:
    lines = {_relative(path): len(path.read_text(encoding="utf-8").splitlines()) for path in MODULES}
    assert not {name: count for name, count in lines.items() if count > MAX_LINES}, "split them by subject"


def test_the_worker_imports_the_standard_library_and_the_wire_only() -> None:
    foreign = {
        f"{_relative(path)}: {module}"
        for path in MODULES
        if path.relative_to(ROOT).parts[0] == "remote" or path.is_relative_to(ROOT / "tunnel" / "wire")
        for level, module in _imports(path)
        if level == 0
        and module.split(".")[0] not in sys.stdlib_module_names
        and not module.startswith(("ccb.tunnel.wire", "ccb.remote"))
        and module != "ccb"  # its __init__ holds the version and nothing else
    }
    assert not foreign


def test_every_package_that_is_imported_is_declared() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    declared = [*project["project"]["dependencies"], *project["build-system"]["requires"]]
    declared += [each for extra in project["project"]["optional-dependencies"].values() for each in extra]
    names = {re.split(r"[\[<>=]", each)[0].lower() for each in declared}
    of_packages = packages_distributions()
    used = {module.split(".")[0] for path in MODULES for level, module in _imports(path) if not level}
    foreign = used - set(sys.stdlib_module_names) - {"ccb"} - {path.stem for path in MODULES}
    assert not [each for each in foreign if not names & {name.lower() for name in of_packages.get(each, ())}]


def test_the_worker_defines_its_dataclasses_with_the_cheap_decorator() -> None:
    wire, remote = ROOT / "tunnel" / "wire", ROOT / "remote"
    costly = [
        f"{_relative(path)}: use ccb.tunnel.wire.dataclass"
        for path in MODULES
        if (path.is_relative_to(wire) or path.is_relative_to(remote)) and path != wire / "dataclass.py"
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom)
        and node.module == "dataclasses"
        and any(alias.name == "dataclass" for alias in node.names)
    ]
    assert not costly


FORBIDDEN = [
    ("tunnel/wire/ndjson.py", "from ..errors import CcbError"),
    ("tunnel/wire/journal_records.py", "from ccb.tunnel.secret import Secret"),
    ("remote/system/deadline.py", "from ccb.tunnel import errors"),
    ("remote/agent/agent_histories.py", "from ccb.tunnel.proxy.policy import Policy"),
    ("tunnel/errors.py", "from ccb.local import results"),
    ("local/headless/output_formats.py", "from ccb.remote import threads"),
]


@pytest.mark.slow
def test_an_import_across_the_rooms_is_found(tmp_path: Path) -> None:
    package = tmp_path / "ccb"
    package.mkdir()
    for room in ROOMS:
        shutil.copytree(ROOT / room, package / room, ignore=shutil.ignore_patterns("__pycache__"))
    for path in (ROOT / "src" / "ccb").glob("*.py"):
        shutil.copy(path, package)
    for module, line in FORBIDDEN:
        with (package / module).open("a", encoding="utf-8") as file:
            file.write(f"{line}\n")
    command = [sys.executable, "-c", "from importlinter.cli import lint_imports_command; lint_imports_command()"]
    found = subprocess.run(
        [*command, "--config", str(ROOT / "pyproject.toml"), "--no-cache"],
        cwd=tmp_path, env={"PYTHONPATH": str(tmp_path)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert found.returncode == 1
    for module, _ in FORBIDDEN:
        assert f"ccb.{module.removesuffix('.py').replace('/', '.')} -> ccb." in found.stdout, found.stdout
