"""The host's end of `ccb doctor`: every check answers, nothing is left, and limits are read from where they are."""

from __future__ import annotations

import contextlib
import errno
import os
import struct
from pathlib import Path

import pytest
from tests.remote.worker_process import WorkerHost

from ccb.remote.host_commands import doctor_checks
from ccb.remote.host_commands.doctor_checks import said_by
from ccb.remote.sandbox.cage_server import Availability, CageServer
from ccb.remote.session_store import session_paths
from ccb.tunnel.wire.frames import Bye, CallData, Credit, Ping, Report, Stop


@pytest.mark.parametrize("gone", [False, True], ids=["stop", "gone"])
async def test_checks_then_measurements_then_goodbye(host: WorkerHost, gone: bool) -> None:
    laptop = await host.connect("", command="doctor")
    checks = []
    while (report := await laptop.next(Report)).kind == "check":
        checks.append(report.body)
    assert report.kind == "ready"
    assert all(check["state"] in ("ok", "warn", "info") and check["found"] for check in checks), checks
    assert all(check["fix"] for check in checks if check["state"] == "warn")
    assert not [check for check in checks if "this check failed" in check["found"]]
    await laptop.send(CallData(0, 0, 0, "x" * 1000))
    await laptop.send(Ping(0, 7))
    clock = await laptop.next(Report)
    assert (clock.kind, clock.body["n"]) == ("clock", 7)
    await laptop.send(Credit(0, 0, 100_000))
    await laptop.send(Ping(0, 8))
    size = 0
    while (bulk := await laptop.next(Report)).kind == "bulk":
        size += len(bulk.body["x"])
    assert (size, bulk.body["n"]) == (100_000, 8)
    if gone:
        assert laptop.process.stdin is not None
        laptop.process.stdin.close()
    else:
        await laptop.send(Stop(0))
    await laptop.next(Bye)


def test_a_file_or_a_link_where_a_directory_should_be_is_a_warning(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x", encoding="ascii")
    (tmp_path / "link").symlink_to(tmp_path)
    for place, said in (("file/below", "is not a directory"), ("link", "it is a link")):
        found = doctor_checks._directory("state", str(tmp_path / place))
        assert found.state == "warn" and said in found.found and found.fix


def test_a_model_key_on_the_host_is_a_warning_that_does_not_show_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-should-not-be-here")
    (found,) = doctor_checks.secrets()
    assert found.state == "warn" and "ANTHROPIC_API_KEY" in found.found
    assert "should-not" not in found.found + found.fix


def test_a_program_that_does_not_run_is_told_from_one_that_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = tmp_path / "git"
    broken.write_text("#!/bin/sh\nexit 3\n", encoding="ascii")
    broken.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    found = {each.name: each for each in doctor_checks.tools()}
    assert found["git"].state == "warn" and "does not run" in found["git"].found
    assert found["rg"].state == "info" and "not there" in found["rg"].found


def test_what_the_doctor_asks_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with contextlib.closing(CageServer()) as server:
        if not server.availability().mechanism:
            pytest.skip(server.availability().why)
    program = tmp_path / "git"
    program.write_text(f"#!/bin/sh\ntouch {tmp_path}/made\necho git version 9\n", encoding="ascii")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert said_by([str(program)]) == "git version 9"
    assert not (tmp_path / "made").exists()


def test_the_cages_of_the_host_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    landlock, forbidden = "Landlock", "it is forbidden"
    for available, state, said in (
        (Availability(landlock, 4, True), "ok", "read-only and workspace cage (Landlock ABI 4)"),
        (Availability(landlock, 4, False, forbidden), "info", f"no workspace cage: {forbidden}"),
        (Availability("", 0, False, "no Landlock"), "warn", "no cage: no Landlock"),
    ):
        monkeypatch.setattr(CageServer, "availability", lambda self, told=available: told)
        (found,) = doctor_checks.sandbox()
        assert found.state == state and said in found.found and bool(found.fix) is (state == "warn")


def test_a_quota_is_read_as_the_kernel_gives_it(tmp_path: Path) -> None:
    raw = struct.pack("=8QI", 2048, 1024, 900 * 1024, 100, 0, 99, 0, 0, 0) + bytes(56)
    limits = doctor_checks.parse_quota(raw)
    assert limits is not None
    assert limits == (900 * 1024, 1024 * 1024, 99, 100), "the lower limit counts, and limits are in kilobytes"
    assert str(limits) == "quota 900K of 1M, 99 of 100 files"
    assert doctor_checks.parse_quota(bytes(128)) is None
    assert doctor_checks.of_path(str(tmp_path), "") is None


def test_each_reason_for_not_writing_has_its_own_way_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert doctor_checks._problem(str(tmp_path)) == doctor_checks._problem(str(tmp_path / "missing")) == ("", "")
    assert not list(tmp_path.iterdir())
    for number, way_out in ((errno.EROFS, "Mount"), (errno.ENOSPC, "Remove"), (errno.EACCES, "Make it writable")):

        def refuse(directory: str, size: int, number: int = number) -> None:
            raise OSError(number, os.strerror(number), directory)

        monkeypatch.setattr(session_paths, "try_to_write", refuse)
        problem, fix = doctor_checks._problem(str(tmp_path))
        assert os.strerror(number) in problem and fix.startswith(way_out)


def test_one_cause_is_one_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "file"))
    for name in ("XDG_STATE_HOME", "XDG_CACHE_HOME", "XDG_RUNTIME_DIR"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "file").write_text("x", encoding="ascii")
    found = {each.name: each for each in doctor_checks.directories()}
    assert [name for name, each in found.items() if each.state == "warn"] == ["home"]
    assert "as home; sessions are kept in" in found["state"].found
