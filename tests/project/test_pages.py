"""What the README and the pages of docs/ promise is what the code has."""

from __future__ import annotations

import itertools
import json
import re
import shlex
from pathlib import Path

import pytest

from ccb.local.command_line.arguments import BY_NAME
from ccb.local.command_line.exit_codes import ExitCode
from ccb.local.config.settings import SETTING_NAMES, Settings
from ccb.local.slash_commands.command_table import COMMANDS
from ccb.local.terminal.keymap import DEFAULT_KEYMAP
from ccb.local.tui.keys import KEYS

ROOT = Path(__file__).resolve().parents[2]
KIT = ROOT / "tests" / "support"
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), KIT / "README.md"])
ABOUT_CODE = [ROOT / "CONTRIBUTING.md", ROOT / "docs/architecture.md", *sorted((ROOT / "docs/design").glob("*.md"))]
GENERATED = {"errors.md"}
MAX_README_LINES = 150
MAX_ARCHITECTURE_LINES = 200
MAX_COLUMNS = 120


def read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def test_the_readme_and_the_architecture_stay_short() -> None:
    assert len(read("README.md").splitlines()) <= MAX_README_LINES
    assert len(read("docs/architecture.md").splitlines()) <= MAX_ARCHITECTURE_LINES


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_prose_is_wrapped_and_files_that_it_names_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    long = [each for each in text.splitlines() if len(each) > MAX_COLUMNS and not each.startswith(("|", "!["))]
    assert not long or page.name in GENERATED
    targets = re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", re.sub(r"```.*?```", "", text, flags=re.DOTALL))
    assert not [each for each in targets if "://" not in each and not (page.parent / each).exists()]
    named = re.findall(r"`((?:local|remote|tunnel|deploy|tests|docs|benchmarks)/[\w./]*)`", text)
    assert not [name for name in named if not (ROOT / name).exists()]


@pytest.fixture(scope="module")
def sources() -> str:
    rooms = (ROOT / room for room in ("local", "remote", "tunnel", "deploy", "tests/support"))
    return "\n".join(path.read_text(encoding="utf-8") for room in rooms for path in room.rglob("*.py"))


@pytest.mark.parametrize("page", [*ABOUT_CODE, KIT / "README.md"], ids=lambda page: page.name)
def test_a_class_that_a_page_about_the_code_names_exists(page: Path, sources: str) -> None:
    named = re.findall(r"`([A-Z][a-z]+(?:[A-Z][a-z]+)+)(?:\([^`]*\))?`", page.read_text(encoding="utf-8"))
    assert not [name for name in named if not re.search(rf"^class {name}\b", sources, re.MULTILINE)]


def test_the_page_of_the_test_kit_names_every_module() -> None:
    page = (KIT / "README.md").read_text(encoding="utf-8")
    assert not [path.stem for path in KIT.glob("*.py") if not re.search(rf"\b{path.stem}\b", page)]


def test_every_page_is_linked_from_another() -> None:
    linked = {
        (page.parent / target).resolve()
        for page in PAGES
        for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8"))
    }
    assert {page for page in PAGES if page.parent != ROOT} <= linked


def command_lines(page: str) -> list[list[str]]:
    """The words of every `ccb …` in blocks of code and in code within sentences, up to a pipe or redirection."""
    blocks = re.findall(r"^```\w*\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    lines = [line.strip().removeprefix("$ ") for block in blocks for line in block.replace("\\\n", " ").splitlines()]
    lines += re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```", "", page, flags=re.MULTILINE | re.DOTALL))
    found = [shlex.split(re.split(r"\s[|<>&]", line)[0], comments=True) for line in lines if line.startswith("ccb ")]
    return [words[1:] for words in found]


@pytest.mark.parametrize(
    "page", [ROOT / "README.md", *sorted((ROOT / "docs" / "guide").glob("*.md"))], ids=lambda p: p.name
)
def test_the_options_that_are_named_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert command_lines(text) or page.name != "README.md"
    for words in command_lines(text):
        for word in itertools.takewhile(lambda word: word != "--", words):
            option = word.strip("[]").partition("=")[0]
            known = option in BY_NAME or option[:2] in BY_NAME
            assert not option.startswith("-") or known, (option, words)


def test_the_table_of_exit_codes_is_the_enum() -> None:
    rows = re.findall(r"^\| `?(\d+)`? \| `?([A-Z_]+)`? \|", read("docs/reference/exit-codes.md"), re.MULTILINE)
    assert [(int(code), name) for code, name in rows] == sorted((int(code), code.name) for code in ExitCode)


def test_the_table_of_settings_is_the_model() -> None:
    named = re.findall(
        r"^\| `(\w+)(?:\.\w+)?` \| [^|]+ \| ([^|]+) \|", read("docs/reference/settings.md"), re.MULTILINE
    )
    assert {name for name, _ in named} == set(SETTING_NAMES)
    for name, shown in named:
        default = getattr(Settings(), name)
        if isinstance(default, bool):
            assert shown == f"`{json.dumps(default)}`"
        elif isinstance(default, int | float):
            assert shown == f"{default:g}"


def test_the_keys_and_commands_that_are_named_exist() -> None:
    page = re.sub(r"`\{.*?\}`", "", read("docs/guide/repl.md"))  # not the examples of the setting `keys`
    keys = " ".join(DEFAULT_KEYMAP.filled(key) for key, _ in KEYS)
    named = set(re.findall(r"\b(?:Ctrl|Alt|Shift)\+\w+", page))
    assert named and {key for key in named if key not in keys} == set()
    assert set(re.findall(r"`/([\w-]+)", page)) <= {command.name for command in COMMANDS}
