"""Command lines that a shell reads in another way than it seems: each did something here before it was asked about."""

from __future__ import annotations

import os
import subprocess

import pytest
from tests.remote.permissions.corpus.rows import cases
from tests.support.worker.permission_desk import Desk, bash

from ccb.remote.permissions.rules import Behavior

ALLOW, ASK, DENY = Behavior.ALLOW, Behavior.ASK, Behavior.DENY


@pytest.mark.parametrize(
    "command",
    cases("what would write is asked about"),
)
def test_what_would_write_is_asked_about(desk: Desk, command: str) -> None:
    (desk.cwd / "+").write_text("")
    (desk.cwd / "run").write_text("#!/bin/sh\ntouch made\n")
    (desk.cwd / "run").chmod(0o755)
    subprocess.run(["bash", "-c", command], cwd=desk.cwd, capture_output=True, check=False, timeout=30)
    assert (desk.cwd / "made").exists() or list(desk.cwd.glob("*made*")), "the line is harmless: it proves nothing"
    for mode in ("default", "acceptEdits"):
        assert bash(desk.engine(mode), command).behavior is ASK
    for allowed in ("Bash(xargs *) Bash(echo *) Bash(ls *)", "Bash(find *) Bash(printf *)"):
        assert bash(desk.engine(allowed=allowed), command).behavior is ASK


@pytest.mark.parametrize(
    "command",
    cases("reading elsewhere by a detour asks"),
)
def test_reading_elsewhere_by_a_detour_asks(desk: Desk, command: str) -> None:
    assert bash(desk.engine(), command).behavior is ASK


def test_what_is_harmless_is_still_not_asked_about(desk: Desk) -> None:
    for command in cases("what is harmless is still not asked about"):
        assert bash(desk.engine(), command).behavior is ALLOW, command


def test_git_is_not_run_where_a_directory_could_configure_it(desk: Desk) -> None:
    bare = desk.cwd / "sub"
    for name in ("objects", "refs", "below/deep"):
        (bare / name).mkdir(parents=True)
    (bare / "HEAD").write_text("ref: refs/heads/main\n")
    inside = str(bare / "below" / "deep")
    assert bash(desk.engine(), "git status", shell_cwd=inside).behavior is ASK
    (bare / "below" / ".git").mkdir()  # git looks on when that is no repository
    assert bash(desk.engine(), "git status", shell_cwd=inside).behavior is ASK
    (bare / "below" / ".git").rmdir()
    (bare / "below" / ".git").write_text("gitdir: ../../.git\n")
    assert bash(desk.engine(), "git status", shell_cwd=inside).behavior is ALLOW
    for command in ("cd sub && find . -type f -exec git status \\;", "cd src; find . -type f -exec git log {} \\;"):
        assert bash(desk.engine(), command).behavior is ASK, command


def test_a_link_is_seen_in_a_directory_whose_name_looks_like_a_pattern(desk: Desk) -> None:
    odd = desk.cwd / "[id]"
    odd.mkdir()
    os.symlink(desk.root / "other" / "c", odd / "link")
    assert bash(desk.engine(), "cat l*", shell_cwd=str(odd)).behavior is ASK
