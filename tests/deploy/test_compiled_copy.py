"""The compiled copy of the bundle: used when it is a good and private file, and silently left alone when it is not."""

from __future__ import annotations

import asyncio
import hashlib
import json
import marshal
import os
import re
import secrets
import stat
import subprocess
import sys
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.remote.agent_kit import content, says
from tests.remote.bundle_in_memory import imports_from
from tests.remote.worker_process import Laptop, WorkerHost, until, worker_host
from tests.support.worker.compiled import files_of, packed

from ccb.deploy.bootstrap_command import bootstrap_command
from ccb.deploy.bundle import Bundle, load
from ccb.remote.daemon import compiled_copy
from ccb.remote.daemon.copy_writer import CopyWriter, write_copy

NOBODY = 65534


class Visited:
    """A host that sessions are started on through the real command line."""

    def __init__(self, host: WorkerHost, bundle: Bundle) -> None:
        self.host = host
        self.bundle = bundle
        self.cache = host.home / ".cache/ccb/worker"
        self.path = Path(compiled_copy.copy_path(str(self.cache / f"{bundle.sha256}.bundle")))
        self.log = ""
        self.notes: list[str] = []

    async def visit(self, python: str = sys.executable) -> str:
        """Run a session of one turn, and wait for the end of its daemon. Return the version that the worker names."""
        laptop, session = await self.login(python), ""
        try:
            hello = await laptop.attach()
            session, self.notes = hello.session, hello.notes
            await laptop.say("hi")
            opened, _ = await laptop.call()
            await laptop.answer(opened, content(says("ok")))
            await laptop.message("result")
            await laptop.stop()
        finally:
            if laptop.process.returncode is None:
                await laptop.drop()
        lock = self.host.runtime / "ccb" / f"{session}.lock"
        await until(lambda: not lock.exists(), "the daemon has ended")
        self.log = (self.host.state(session) / "daemon.log").read_text(encoding="utf-8")
        return opened.headers["user-agent"].partition("/")[2]

    async def login(self, python: str = sys.executable) -> Laptop:
        """Start a session."""
        marker = secrets.token_hex(16)
        params = {"session": str(uuid.uuid4()), "cwd": "~/project", "create": True}
        process = await asyncio.create_subprocess_exec(
            "sh", "-c", bootstrap_command(marker, self.bundle, params, python=python),
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL,
            env=self.host.env, limit=1024 * 1024,
        )  # fmt: skip
        assert process.stdin is not None and process.stdout is not None
        await process.stdout.readuntil(marker.encode() + b" ")
        if b'"need": ' in await process.stdout.readline():
            process.stdin.write(b"r%09d" % len(self.bundle.data) + self.bundle.data)
        return Laptop(process)

    @property
    def codes(self) -> dict[str, bytes]:
        """What the copy holds. Raises for one that a start would not use."""
        codes, why = compiled_copy.load(str(self.cache / f"{self.bundle.sha256}.bundle"), self.bundle.sha256)
        assert not why, why
        return codes

    def plant(self, version: str, *, digest: str = "") -> bytes:
        """Put a copy in place that a start would use, whose worker names another version. Return its bytes."""
        file = "ccb/remote/model/model_request.py"
        source = files_of(self.bundle.data)[file]
        told = re.sub(r'f"ccb/\{\w+\}"', f'"ccb/{version}"', source)
        assert told != source
        code = marshal.dumps(compile(told, "<ccb>/" + file, "exec", dont_inherit=True))
        data = packed({file: code}, digest or self.bundle.sha256)
        self.path.write_bytes(data)
        self.path.chmod(0o600)
        return data


@pytest.fixture(scope="module")
def bundle() -> Bundle:
    return load()


async def test_the_first_session_leaves_a_copy_and_the_next_uses_it(tmp_path: Path, bundle: Bundle) -> None:
    async with worker_host(tmp_path / "home") as host:
        visited = Visited(host, bundle)
        version = await visited.visit()
        assert stat.S_IMODE(visited.path.stat().st_mode) == 0o600
        assert {"ccb/remote/main.py", "ccb/remote/daemon/daemon.py", "ccb/__init__.py"} <= set(visited.codes)
        assert sorted(os.listdir(visited.cache)) == sorted([visited.path.name, f"{bundle.sha256}.bundle"])
        visited.plant("of-the-copy")
        assert version and await visited.visit() == "of-the-copy"
        assert "compiled copy" not in visited.log


def peak_mb(pid: int) -> float:
    """Return the most memory that a process ever had, in MB. What it frees may stay with it or not."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found is not None
    return int(found[1]) / 1024


async def test_the_worker_that_writes_the_copy_stays_small(tmp_path: Path, bundle: Bundle) -> None:
    async with worker_host(tmp_path / "home") as host:
        visited = Visited(host, bundle)
        laptop = await visited.login()
        hello = await laptop.attach()
        await laptop.say("hi")
        opened, _ = await laptop.call()
        await laptop.answer(opened, content(says("ok")))
        await laptop.message("result")
        before = peak_mb(hello.pid)
        await until(visited.path.exists, "the copy is written")
        after = peak_mb(hello.pid)
        assert after < 35 and after - before < 5, f"{before:.1f} MB became {after:.1f}"
        await laptop.stop()


@pytest.mark.thorough
async def test_a_host_with_an_old_python_has_a_copy_of_its_own(tmp_path: Path, bundle: Bundle) -> None:
    old = next(iter(sorted(Path("~/.pyenv/versions").expanduser().glob("3.9.*/bin/python3.9"))), None)
    if old is None:
        pytest.skip("no Python 3.9 is installed here")
    async with worker_host(tmp_path / "home") as host:
        visited = Visited(host, bundle)
        visited.cache.mkdir(parents=True, mode=0o700)
        visited.plant("of-another-python")
        version = await visited.visit(str(old))
        assert version != "of-another-python"
        theirs = visited.path.with_name(f"{bundle.sha256}.cpython-39.code")
        assert theirs.stat().st_size > 500_000 and visited.path.exists()
        theirs.write_bytes(visited.path.read_bytes())  # what 3.11 has compiled would crash 3.9
        assert await visited.visit(str(old)) == version
        assert "it is of another version" in visited.log


def _damaged(visited: Visited, data: bytes) -> None:
    visited.path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))


def _truncated(visited: Visited, data: bytes) -> None:
    visited.path.write_bytes(data[: len(data) // 2])


def _empty(visited: Visited, data: bytes) -> None:
    visited.path.write_bytes(b"")


def _not_marshalled(visited: Visited, data: bytes) -> None:
    header = compiled_copy.header_of(visited.bundle.sha256)
    visited.path.write_bytes(hashlib.sha256(header + b"?").digest() + header + b"?")


def _of_another_bundle(visited: Visited, data: bytes) -> None:
    visited.plant("bad", digest="e" * 64)


def _too_large(visited: Visited, data: bytes) -> None:
    with visited.path.open("ab") as file:
        file.truncate(64 * 1024 * 1024)


def _link(visited: Visited, data: bytes) -> None:
    visited.path.rename(visited.host.home / "elsewhere")
    visited.path.symlink_to(visited.host.home / "elsewhere")


def _second_name(visited: Visited, data: bytes) -> None:
    (visited.host.home / "elsewhere").hardlink_to(visited.path)


def _open_to_others(visited: Visited, data: bytes) -> None:
    visited.path.chmod(0o604)


def _pipe(visited: Visited, data: bytes) -> None:
    visited.path.unlink()
    os.mkfifo(visited.path, 0o600)


def _of_another_user(visited: Visited, data: bytes) -> None:
    if os.getuid():
        pytest.skip("only root can give a file away")
    os.chown(visited.path, NOBODY, -1)


BAD = {
    "it is damaged": (_damaged, _truncated, _empty, _not_marshalled),
    "it is of another version": (_of_another_bundle,),
    "it is too large": (_too_large,),
    "Too many levels of symbolic links": (_link,),
    "it is not a private file": (_second_name, _open_to_others, _pipe, _of_another_user),
}
_STATES = [(make, why) for why, states in BAD.items() for make in states]


@pytest.mark.parametrize(("make", "why"), _STATES, ids=[make.__name__ for make, _ in _STATES])
def test_an_odd_copy_is_not_read(
    make: Callable[[Visited, bytes], None], why: str, tmp_path: Path, bundle: Bundle
) -> None:
    host = WorkerHost(tmp_path / "home")
    try:
        visited = Visited(host, bundle)
        visited.cache.mkdir(parents=True, mode=0o700)
        data = visited.plant("bad")
        assert visited.codes
        make(visited, data)
        zip_path = str(visited.cache / f"{bundle.sha256}.bundle")
        assert compiled_copy.load(zip_path, bundle.sha256) == ({}, why)
    finally:
        host.runtime.rmdir()


@pytest.mark.parametrize("make", [_damaged, _link, _of_another_bundle], ids=lambda make: str(make.__name__))
@pytest.mark.quick_rows(1)
async def test_a_session_starts_beside_an_odd_copy_and_replaces_it(
    make: Callable[[Visited, bytes], None], tmp_path: Path, bundle: Bundle
) -> None:
    """The person hears nothing of it, the log does."""
    why = next(reason for reason, states in BAD.items() if make in states)
    async with worker_host(tmp_path / "home") as host:
        visited = Visited(host, bundle)
        visited.cache.mkdir(parents=True, mode=0o700)
        data = visited.plant("bad")
        make(visited, data)
        assert await visited.visit() != "bad"
        assert f"was not used: {why}" in visited.log and visited.notes == []
        assert "ccb/remote/main.py" in visited.codes
        assert make is not _link or (host.home / "elsewhere").read_bytes() == data


@pytest.mark.thorough
async def test_two_first_sessions_at_once_leave_one_good_copy(tmp_path: Path, bundle: Bundle) -> None:
    async with worker_host(tmp_path / "home") as host:
        first, second = Visited(host, bundle), Visited(host, bundle)
        await asyncio.gather(first.visit(), second.visit())
        assert "ccb/remote/main.py" in first.codes
        assert sorted(os.listdir(first.cache)) == sorted([first.path.name, f"{bundle.sha256}.bundle"])


@pytest.mark.skipif(os.getuid() != 0, reason="only root can run a program as another user")
def test_a_copy_that_cannot_be_opened_and_a_directory_of_others_are_left_alone(tmp_path: Path, bundle: Bundle) -> None:
    """As a user who does not own what is there."""
    program = """
import json, os, sys
from ccb.remote.daemon import compiled_copy as copy
os.setuid(65534)
print(json.dumps([copy.load(path, "d" * 64)[1] for path in sys.argv[1:]]))
"""
    for path in [tmp_path, *list(tmp_path.parents)[:-1]]:
        if path.stat().st_uid == 0 and path != Path("/tmp"):
            path.chmod(path.stat().st_mode | 0o011)
    theirs, open_to_all, own = tmp_path / "theirs", tmp_path / "open", tmp_path / "own"
    for directory, owner, mode in ((theirs, 0, 0o755), (open_to_all, NOBODY, 0o777), (own, NOBODY, 0o700)):
        directory.mkdir()
        file = Path(compiled_copy.copy_path(str(directory / f"{'d' * 64}.bundle")))
        file.write_bytes(packed({}, "d" * 64))
        file.chmod(0o600)
        os.chown(directory, owner, -1)
        directory.chmod(mode)
    argv = [sys.executable, "-c", program, *(f"{each}/{'d' * 64}.bundle" for each in (theirs, open_to_all, own))]
    source = Path(__file__).resolve().parents[2] / "src"
    done = subprocess.run(argv, env={"PYTHONPATH": str(source)}, capture_output=True, check=True, text=True)
    assert json.loads(done.stdout) == ["its directory is not private"] * 2 + ["Permission denied"]


async def test_nothing_is_written_for_a_worker_that_runs_from_memory(tmp_path: Path) -> None:
    for path, no_copy in (("", compiled_copy.MISSING), (str(tmp_path / "b.bundle"), "")):
        writer = CopyWriter(path, "d" * 64, no_copy)
        writer.session_is(working=True)
        writer.session_is(working=False)
        await writer.close()
    assert not list(tmp_path.iterdir())


def test_a_traceback_from_the_copy_shows_the_line_of_the_source(tmp_path: Path, bundle: Bundle) -> None:
    (tmp_path / "worker.bundle").write_bytes(bundle.data)
    program = f"""
{imports_from(tmp_path / "worker.bundle")}
importer = sys.meta_path[0]
importer.compiled = {{file: marshal.dumps(importer.compile(file)) for file in importer.entries if file[-3:] == ".py"}}
importer.compile = None
from ccb.tunnel.wire import ndjson
try:
    ndjson.dump(object())
except TypeError:
    import traceback
    traceback.print_exc()
"""
    done = subprocess.run([sys.executable, "-I", "-S", "-c", program], capture_output=True, text=True, check=True)
    assert 'File "<ccb>/ccb/tunnel/wire/ndjson.py", line' in done.stderr
    assert ".encode(" in done.stderr


def test_what_a_first_start_has_compiled_is_not_compiled_again_for_the_copy(tmp_path: Path, bundle: Bundle) -> None:
    (tmp_path / "worker.bundle").write_bytes(bundle.data)
    program = f"""
{imports_from(tmp_path / "worker.bundle")}
importer, files, really = sys.meta_path[0], [], compiled
def compiled(source, file):
    files.append(file)
    return really(source, file)
import ccb.remote.main
assert "ccb/remote/main.py" in files
for file in importer.entries:
    importer.compile(file)
assert len(files) == len(set(files)) == len(importer.entries), files
"""
    subprocess.run([sys.executable, "-I", "-S", "-c", program], check=True)


def test_a_worker_that_is_killed_while_it_compiles_leaves_no_file(
    tmp_path: Path, bundle: Bundle, monkeypatch: pytest.MonkeyPatch
) -> None:
    sources = {file: source.encode() for file, source in files_of(bundle.data).items()}
    path = tmp_path / f"{bundle.sha256}.bundle"
    path.touch()
    seen: list[list[str]] = []
    run = subprocess.run

    def watched(*given: Any, **more: Any) -> Any:
        seen.append(sorted(os.listdir(tmp_path)))
        return run(*given, **more)

    monkeypatch.setattr(subprocess, "run", watched)
    tmp_path.chmod(0o700)
    write_copy(str(path), bundle.sha256, sources)
    assert seen == [[path.name]] and Path(compiled_copy.copy_path(str(path))).is_file()
