"""What the cages allow, as values; and what a cage has stopped, as the model reads it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from tests.remote.tools_kit import plant

from ccb.remote.sandbox import cage_rules
from ccb.remote.sandbox.cage_rules import CageKind, program_directories, read_only_rules, workspace_rules
from ccb.remote.sandbox.outliving import DirectoryGuard
from ccb.remote.sandbox.stops import stopped

_LOGIN = {"PATH": "/usr/bin:/bin"}
_TOOL_CHAINS = (".cargo/bin", ".local/bin", "bin", ".nvm/v22/bin", ".fly/bin")


def _ask(directory: str) -> bytes:
    argv = ["git", "config", "--list", "-z", "--show-origin", "--includes"]
    return subprocess.run(argv, cwd=directory, check=True, capture_output=True).stdout


def _covers(paths: tuple[str, ...], path: str) -> bool:
    return any(path == each or path.startswith(each + "/") for each in paths)


def test_a_command_that_reads_may_write_nothing(tmp_path: Path) -> None:
    rules = read_only_rules([str(tmp_path)], _LOGIN, "/home/somebody")
    assert (rules.kind, rules.write, rules.network) == (CageKind.READ_ONLY, (), False)
    assert str(tmp_path) in rules.read
    assert not _covers((*rules.read, *rules.execute), "/home/somebody/.ssh")
    assert not _covers((*rules.read, *rules.execute), "/etc/shadow")
    assert _covers(rules.execute, "/usr/bin/git")


def test_no_program_below_the_directories_of_the_session_may_run(tmp_path: Path) -> None:
    """Also where they are inside a directory of the system, or a tool chain is inside them."""
    chain = tmp_path / "chains" / "tool"
    plant(chain, "bin/", "lib/", "project/bin/", "other/")
    project = str(chain / "project")
    path = f"{chain}/bin:{project}/bin:relative/bin:/usr/bin"
    execute = program_directories([project], {"PATH": path}, str(tmp_path))
    assert _covers(execute, f"{chain}/bin/program")
    assert _covers(execute, f"{chain}/lib/library")
    assert not _covers(execute, f"{project}/bin/program")
    assert not any(each == str(tmp_path) or "relative" in each for each in execute)


def test_a_session_in_the_root_still_has_programs() -> None:
    assert _covers(program_directories(["/"], _LOGIN, "/root"), "/usr/bin/git")


def test_beside_programs_of_a_home_nothing_else_is_readable(tmp_path: Path) -> None:
    plant(tmp_path, *(f"{name}/" for name in (*_TOOL_CHAINS, ".local/share/keys", ".rustup/toolchains")))
    plant(tmp_path, ".cargo/credentials.toml", ".fly/config.yml")
    path = os.pathsep.join(str(tmp_path / name) for name in _TOOL_CHAINS)
    execute = program_directories((), {"PATH": path}, str(tmp_path))
    for allowed in (".cargo/bin/x", ".rustup/toolchains/x", ".local/bin/x", "bin/x", ".nvm/v22/lib/x"):
        assert _covers(execute, f"{tmp_path}/{allowed}"), allowed
    for kept in (".cargo/credentials.toml", ".fly/config.yml", ".local/share/keys", ".bashrc"):
        assert not _covers(execute, f"{tmp_path}/{kept}"), kept


def test_the_workspace_protects_a_repository_that_git_is_led_to(tmp_path: Path) -> None:
    plant(tmp_path, "kept/one/", "kept/two/", ".git -> kept/one", "sub/.git: gitdir: ../kept/two")
    found = {os.path.relpath(path, tmp_path) for path in DirectoryGuard().begin([str(tmp_path)], True, _ask)[0]}
    assert {".git", "kept/one", "sub/.git", "kept/two"} <= found


def test_the_workspace_protects_what_acts_later(tmp_path: Path) -> None:
    plant(tmp_path, "sub/.git/", "sub/deep/.vscode/", "hooks/", "more")
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    (tmp_path / ".git" / "config").write_text('[core]\n\thooksPath = hooks\n[include]\n\tpath = "../more"\n')
    found = {os.path.relpath(path, tmp_path) for path in DirectoryGuard().begin([str(tmp_path)], True, _ask)[0]}
    assert {".git", ".claude", ".envrc", "CLAUDE.md", "sub/.git", "sub/deep/.vscode", "hooks", "more"} <= found
    assert ".husky" not in found  # it is not there, and nothing would use it
    rules = workspace_rules([str(tmp_path)], _LOGIN, "/home/somebody", network=True)
    assert (rules.kind, rules.write, rules.network) == (CageKind.WORKSPACE, (str(tmp_path),), True)


@pytest.mark.parametrize(
    ("output", "code", "line"),
    [
        ("bash: line 1: a: Permission denied\n", 1, "stopped by the sandbox: bash: line 1: a: Permission denied"),
        ("one\nrm: cannot remove '.git': Device or resource busy\n", 1, "cannot remove '.git'"),
        ("touch: cannot touch 'x': Read-only file system", 1, "Read-only file system"),
        ("curl: (6) Could not resolve host: example.org", 6, "stopped by the sandbox: network: curl"),
        *(("Error: EACCES: permission denied, open '/x'", 1, "EACCES"), ("", -31, "another architecture")),
        ("a: \x1b[31mPermission denied\x07" + "x" * 500, 1, "a: [31mPermission denied".replace("[", " [")),
    ],
)
def test_a_stop_is_told_in_one_line(output: str, code: int, line: str, tmp_path: Path) -> None:
    rules = read_only_rules([str(tmp_path)], _LOGIN, "")
    told = stopped(output, code, rules)
    assert line in told
    assert told.isprintable()
    assert len(told) < 250


@pytest.mark.parametrize("kind", [CageKind.READ_ONLY, CageKind.WORKSPACE])
@pytest.mark.parametrize(
    ("output", "code"),
    [
        *(("cat: unreadable: Permission denied", 1), ("ls: cannot open directory 'closed': Permission denied", 2)),
        *(("find: ‘closed’: Permission denied", 1), ("a:hello\nunreadable: Permission denied (os error 13)", 2)),
        ("PermissionError: [Errno 13] Permission denied: 'unreadable'", 1),
        ("bash: line 1: closed/x: Permission denied", 1),
        *(("ls: cannot access 'nosuch': No such file or directory", 2), ("6886ac2 Fix: Permission denied", 0)),
        *(('a.py:12:    raise OSError("Permission denied")', 0), ("kept: Permission denied again", 0)),
        *(("Jan 1 sshd: Connection from host: Permission denied", 0), ("retry when the Network is unreachable", 0)),
        ("errno.h: EPERM Operation not permitted", 0),
    ],
)
def test_ordinary_failures_and_texts_are_not_taken_for_stops(
    kind: CageKind, output: str, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(tmp_path, "unreadable", "kept", "closed/")

    def access(path: str, mode: int) -> bool:  # root may do everything, so the kernel cannot be asked
        return "unreadable" not in path and "closed" not in path and not (path.endswith("kept") and mode & os.X_OK)

    monkeypatch.setattr(os, "access", access)
    make = read_only_rules if kind is CageKind.READ_ONLY else workspace_rules
    assert stopped(output, code, make([str(tmp_path)], _LOGIN, ""), str(tmp_path)) == ""


_TOUCHED = "touch: cannot touch 'made': Read-only file system"
_DENIED = "bash: line 1: made: Permission denied"


@pytest.mark.parametrize(
    ("command", "output", "code", "stop"),
    [
        *(
            ("", _DENIED, 0, True),
            ("", _TOUCHED, 0, True),
            ("", "rm: cannot remove 'kept': Permission denied", 0, True),
        ),
        *(("", "bash: line 1: kept: Permission denied", 1, True), ("", "cat: {0}/secret: Permission denied", 0, True)),
        ("", "error: could not lock config file .git/config: Read-only file system", 255, True),
        ("", "kill: (1) - Operation not permitted", 1, True),
        *(("echo x >made; true", _DENIED, 0, True), ("touch made; true", _TOUCHED, 0, True)),
        *((f"echo '{_DENIED}'", _DENIED, 0, False), (f"echo '{_DENIED}'; false", _DENIED, 1, False)),
        *(("cat kept", _DENIED, 0, False), ("cat kept", "bash: line 1: kept: Permission denied", 0, False)),
        ("cat kept", "touch: cannot touch 'made': Permission denied", 0, False),
    ],
)
def test_a_stop_at_a_file_is_told_also_where_the_command_went_on_but_not_what_it_prints_of_a_file(
    command: str, output: str, code: int, stop: bool, tmp_path: Path
) -> None:
    plant(tmp_path, "project/kept", "secret")
    project = str(tmp_path / "project")
    told = stopped(output.format(tmp_path), code, read_only_rules([project], _LOGIN, ""), project, command)
    assert told.startswith("stopped by the sandbox: ") if stop else told == ""


def test_where_nothing_was_stopped_nothing_is_told(tmp_path: Path) -> None:
    rules = workspace_rules([str(tmp_path)], _LOGIN, "", network=True)
    assert stopped("3 passed\n", 0, rules) == ""
    assert stopped("curl: (6) Could not resolve host: example.org", 6, rules) == ""


def test_a_failure_at_a_hard_link_says_so(tmp_path: Path) -> None:
    plant(tmp_path, "outside", "project/")
    os.link(tmp_path / "outside", tmp_path / "project" / "linked")
    rules = workspace_rules([str(tmp_path / "project")], _LOGIN, "")
    for line in (
        *("bash: line 1: linked: Read-only file system", "Error: EBUSY: resource busy or locked, unlink 'linked'"),
        "Error: EBUSY: resource busy or locked, rmdir '../project'",
    ):
        told = stopped(line, 1, rules, str(tmp_path / "project"))
        assert "(hard links: the same files have names where no command in the sandbox may write" in told


@pytest.mark.parametrize(
    "name", [".hg", ".pdbrc", ".cargo", "QWEN.md", "lefthook-local.toml", ".RData", "x.code-workspace"]
)
def test_names_that_tools_take_by_themselves_are_protected(name: str) -> None:
    assert cage_rules.acts_later(name) and cage_rules.why_protected(f"sub/{name}")
    assert cage_rules.why_protected("sub/.hg/hgrc") == "it is inside .hg"
