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
from pathlib import Path

import pytest
from tests.remote.agent_kit import content, says
from tests.remote.bundle_in_memory import imports_from
from tests.remote.worker_process import Laptop, WorkerHost, until, worker_host
from tests.support.machine.processes import peak_mb
from tests.support.worker.compiled import files_of, packed

from ccb.deploy.bootstrap_command import bootstrap_command
from ccb.deploy.bundle import Bundle, load
from ccb.remote.daemon import compiled_copy
from ccb.remote.daemon.copy_writer import CopyWriter

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


BAD = {
    "damaged": "it is damaged",
    "truncated": "it is damaged",
    "empty": "it is damaged",
    "not marshalled": "it is damaged",
    "of another bundle": "it is of another version",
    "too large": "it is too large",
    "a link": "Too many levels of symbolic links",
    "with a second name": "it is not a private file",
    "open to others": "it is not a private file",
    "a pipe": "it is not a private file",
}


def spoil(visited: Visited, how: str) -> bytes:
    data, path, elsewhere = visited.plant("bad"), visited.path, visited.host.home / "elsewhere"
    header = compiled_copy.header_of(visited.bundle.sha256) + b"?"
    contents = {
        "damaged": data[:-1] + bytes([data[-1] ^ 1]),
        "truncated": data[: len(data) // 2],
        "empty": b"",
        "not marshalled": hashlib.sha256(header).digest() + header,
        "too large": data + bytes(17 << 20),
    }
    if how in contents:
        path.write_bytes(contents[how])
    elif how == "of another bundle":
        visited.plant("bad", digest="e" * 64)
    elif how == "a link":
        path.rename(elsewhere)
        path.symlink_to(elsewhere)
    elif how == "with a second name":
        elsewhere.hardlink_to(path)
    elif how == "open to others":
        path.chmod(0o604)
    else:
        path.unlink()
        os.mkfifo(path, 0o600)
    return data


@pytest.mark.parametrize("how", BAD)
def test_an_odd_copy_is_not_read(how: str, tmp_path: Path, bundle: Bundle) -> None:
    host = WorkerHost(tmp_path / "home")
    try:
        visited = Visited(host, bundle)
        visited.cache.mkdir(parents=True, mode=0o700)
        spoil(visited, how)
        assert compiled_copy.load(str(visited.cache / f"{bundle.sha256}.bundle"), bundle.sha256) == ({}, BAD[how])
    finally:
        host.runtime.rmdir()


@pytest.mark.parametrize("how", ["damaged", "a link", "of another bundle"])
@pytest.mark.quick_rows(1)
async def test_a_session_starts_beside_an_odd_copy_and_replaces_it(how: str, tmp_path: Path, bundle: Bundle) -> None:
    """The person hears nothing of it, the log does."""
    async with worker_host(tmp_path / "home") as host:
        visited = Visited(host, bundle)
        visited.cache.mkdir(parents=True, mode=0o700)
        data = spoil(visited, how)
        assert await visited.visit() != "bad"
        assert f"was not used: {BAD[how]}" in visited.log and visited.notes == []
        assert "ccb/remote/main.py" in visited.codes
        assert how != "a link" or (host.home / "elsewhere").read_bytes() == data


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
