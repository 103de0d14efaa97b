"""Which command lines only look."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.remote.permissions.corpus.rows import cases
from tests.remote.tools_kit import plant
from tests.support.machine.programs import shell_script

from ccb.remote.permissions.shell.read_only import changes_directory, is_read_only_command

READ_ONLY = cases("read only")

NOT_READ_ONLY = [*cases("not read only"), "", "ls \xa0x"]


@pytest.mark.parametrize("command", READ_ONLY)
def test_commands_that_only_look(command: str) -> None:
    assert is_read_only_command(command)


@pytest.mark.parametrize("command", NOT_READ_ONLY, ids=ascii)
def test_commands_that_may_do_more(command: str) -> None:
    assert not is_read_only_command(command)


def test_a_version_is_asked_of_programs_that_obey_no_file_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A shim asks the project which program to run: those of pyenv and asdf lie in `shims`, others are links."""
    plant(tmp_path, "bin/python3 -> python3.11", "bin/node -> volta-shim", "root/shims/")
    for program in ("bin/python3.11", "bin/volta-shim", "bin/ruby", "root/shims/python3"):
        shell_script(tmp_path / program, "")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    assert is_read_only_command("python3 --version; python3 -V; ruby --version")
    assert not is_read_only_command("node --version")
    assert not is_read_only_command("cargo --version")
    monkeypatch.setenv("PATH", str(tmp_path / "root/shims"))
    assert not is_read_only_command("python3 --version")
    assert is_read_only_command("ruby --version"), "it is not there"


@given(
    st.lists(st.sampled_from(READ_ONLY[:60] + NOT_READ_ONLY[:60]), min_size=1, max_size=4),
    st.sampled_from(["; ", " && ", "\n", " | ", " & "]),
)
def test_a_line_only_looks_when_every_part_does(parts: list[str], separator: str) -> None:
    if is_read_only_command(separator.join(parts)):
        assert all(is_read_only_command(part) for part in parts)


def test_a_line_that_moves_the_shell_is_known() -> None:
    assert all(map(changes_directory, ("cd a", "ls; pushd b", "(cd a)", "command cd a", "if x")))
    assert not any(map(changes_directory, ("ls", "git -C a log", "echo cd")))


def test_sed_scripts_are_judged_as_sed_reads_them(tmp_path: Path) -> None:
    """No accepted script writes a file, with the sed that is here."""
    (tmp_path / "in").write_text("a\n/\n[\n")
    before = sorted(path.name for path in tmp_path.iterdir())
    for script in cases("sed scripts are judged as sed reads them"):
        if is_read_only_command(f"sed -n '{script}' in"):
            subprocess.run(["sed", "-n", script, "in"], cwd=tmp_path, capture_output=True, check=False)
    assert sorted(path.name for path in tmp_path.iterdir()) == before
