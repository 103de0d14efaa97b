"""The bootstrap on one machine: Pythons, places, damage, races, and how the bundle gets there. The stub hands over to a
tiny worker of the test."""

from __future__ import annotations

import asyncio
import os
import re
import stat
import sys
import uuid
import zlib
from asyncio.subprocess import PIPE
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.machine.programs import shell_script
from tests.support.person.login import everything
from tests.support.worker.compiled import worker_bundle

from ccb.deploy.bootstrap import Launched, launch
from ccb.deploy.bootstrap_command import CANDIDATES, bootstrap_command
from ccb.deploy.build_bundle import joined
from ccb.deploy.bundle import Bundle, load
from ccb.tunnel.errors import DeployError, NoPython
from ccb.tunnel.transports.command_transport import LocalTransport
from ccb.tunnel.wire.frames import Hello
from ccb.tunnel.wire.ndjson import FrameDecoder

PYTHONS = sorted(Path("~/.pyenv/versions").expanduser().glob("3.*/bin/python3"))
OLD = [path for path in PYTHONS if path.parts[-3].startswith(("3.6.", "3.7.", "3.8."))]
RECENT = [path for path in PYTHONS if path not in OLD] or [Path(sys.executable)]


def tiny_bundle(text: str = "hello") -> Bundle:
    printing = f"os.write(1, ('{text} %s %s\\n' % (s, p['cwd'])).encode())"
    worker = f"import os\ndef start(p, b, s):\n    {printing}\n    return 0\n"
    return worker_bundle(worker)


def fresh_bundle() -> Bundle:
    return Bundle.of(load().data + joined({"ccb/fresh": uuid.uuid4().hex}))


async def hello_of(launched: Launched) -> Hello:
    """The first frame of a worker."""
    decoder, data = FrameDecoder(), launched.rest
    async with asyncio.timeout(60):
        while not (frames := list(decoder.feed(data))):
            data = await launched.pipe.read()
            assert data, "it has ended"
    assert isinstance(frames[0], Hello), frames
    return frames[0]


class Host:
    def __init__(self, home: Path) -> None:
        self.home = home
        self.env = {"HOME": str(home), "PATH": os.environ["PATH"], "XDG_RUNTIME_DIR": str(home / "run")}
        home.mkdir()
        (home / "run").mkdir(mode=0o700)

    @property
    def cache(self) -> Path:
        return self.home / ".cache" / "ccb" / "worker"

    async def start(
        self, bundle: Bundle, cwd: str = "/", candidates: Sequence[str] = CANDIDATES, **params: Any
    ) -> tuple[Launched, str]:
        transport = LocalTransport(self.env)
        try:
            launched = await launch(transport, {"cwd": cwd, **params}, bundle, candidates=candidates)
            return launched, (launched.rest + await everything(launched.pipe)).decode()
        finally:
            await transport.close()


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path / "home")


async def test_the_bundle_is_sent_once_and_kept_private(host: Host) -> None:
    bundle = tiny_bundle()
    first, said = await host.start(bundle)
    assert (first.uploaded, said) == (True, "hello disk /\n")
    second, said = await host.start(bundle)
    assert (second.uploaded, said) == (False, "hello disk /\n")
    assert [path.name for path in host.cache.iterdir()] == [f"{bundle.sha256}.bundle"]
    assert stat.S_IMODE(host.cache.stat().st_mode) == 0o700
    assert stat.S_IMODE((host.cache / f"{bundle.sha256}.bundle").stat().st_mode) == 0o600


async def test_the_newest_four_are_kept(host: Host) -> None:
    bundles = [tiny_bundle(str(number)) for number in range(6)]
    for age, bundle in enumerate(bundles):
        await host.start(bundle)
        for path in host.cache.glob("*.bundle"):
            if path.name.startswith(bundle.sha256):
                os.utime(path, (1_000_000 + age, 1_000_000 + age))
    assert {path.stem for path in host.cache.iterdir()} == {bundle.sha256 for bundle in bundles[-4:]}


async def test_on_this_machine_nothing_is_packed_and_any_interpreter_will_do(host: Host, tmp_path: Path) -> None:
    """It needs no `python3` on the PATH, and its path may contain anything."""
    odd = tmp_path / 'it\'s a "folder"' / "python"
    odd.parent.mkdir()
    odd.symlink_to(Path(sys.base_prefix) / "bin" / "python3")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "sh").symlink_to("/bin/sh")
    transport = LocalTransport({**host.env, "PATH": str(tmp_path / "bin")}, str(odd))
    forms: list[str] = []
    launched = await launch(transport, {"cwd": "/"}, counted(tiny_bundle(), forms))
    assert (launched.facts["exe"], launched.uploaded, forms) == (str(odd), True, [])
    await launched.pipe.close()
    await transport.close()


@pytest.mark.parametrize(("name", "starts"), [("python3.11", 1), ("python3.8", 2), ("shim", 2)])
async def test_a_python_whose_name_tells_its_version_is_not_checked(
    host: Host, tmp_path: Path, name: str, starts: int
) -> None:
    folder, log = tmp_path / "bin", tmp_path / "log"
    real = shell_script(folder / name, f'echo start >>"{log}"\nexec "{RECENT[-1]}" "$@"')
    (folder / "python3").symlink_to(real)
    host.env["PATH"] = f"{folder}:/usr/bin:/bin"
    _, said = await host.start(tiny_bundle())
    assert said == "hello disk /\n"
    assert log.read_text().count("start") == starts


class TrialTransport(LocalTransport):
    on_trial = True


@pytest.mark.parametrize("cached", [False, True])
async def test_over_a_transport_on_trial_the_worker_waits_until_it_is_told_to_go_on(host: Host, cached: bool) -> None:
    if cached:
        await host.start(tiny_bundle())
    launched = await launch(TrialTransport(host.env), {"cwd": "/"}, tiny_bundle())
    assert launched.uploaded != cached
    assert launched.rest + await everything(launched.pipe) == b"hello disk /\n"
    await launched.pipe.close()


async def test_a_worker_on_trial_that_is_given_up_does_nothing(host: Host) -> None:
    """The laptop has logged in meanwhile, and what it asked for runs there."""
    bundle = tiny_bundle()
    await host.start(bundle)
    line = bootstrap_command("0" * 32, bundle, {"cwd": "/", "wait": True})
    pipe = asyncio.subprocess.PIPE
    stub = await asyncio.create_subprocess_exec("/bin/sh", "-c", line, stdin=pipe, stdout=pipe, env=host.env)
    assert stub.stdin is not None and stub.stdout is not None
    assert b'"have": true' in await asyncio.wait_for(stub.stdout.readuntil(b"}\n"), 60)
    stub.stdin.close()
    assert await asyncio.wait_for(stub.stdout.read(), 60) == b""
    assert await stub.wait() == 96


@pytest.mark.parametrize("damage", ["changed", "cut", "link", "directory", "fifo"])
@pytest.mark.quick_rows(2)
async def test_a_cached_bundle_that_is_not_ours_any_more_is_never_run(host: Host, damage: str) -> None:
    bundle, other = tiny_bundle("good"), tiny_bundle("evil")
    await host.start(bundle)
    path = host.cache / f"{bundle.sha256}.bundle"
    path.unlink()
    if damage == "changed":
        path.write_bytes(other.data)
    elif damage == "cut":
        path.write_bytes(bundle.data[:-10])
    elif damage == "link":
        (host.home / "evil.bundle").write_bytes(other.data)
        path.symlink_to(host.home / "evil.bundle")
    elif damage == "directory":
        path.mkdir()
    else:
        os.mkfifo(path)
    launched, said = await host.start(bundle)
    assert launched.uploaded
    assert said.startswith("good ")


async def test_first_connects_at_the_same_moment_leave_one_bundle(host: Host) -> None:
    bundle = fresh_bundle()
    transports = [LocalTransport(host.env) for _ in range(4)]
    params = {"cwd": "/nowhere", "session": "3b9c2d6e-0000-4000-8000-000000000000", "create": False}
    launched = await asyncio.gather(*(launch(transport, params, bundle) for transport in transports))
    for each, transport in zip(launched, transports, strict=True):
        assert b'"code": "no_session"' in each.rest + await everything(each.pipe)
        await transport.close()
    assert [path.name for path in host.cache.iterdir()] == [f"{bundle.sha256}.bundle"]


async def test_a_python_that_is_too_old_is_named(host: Host) -> None:
    old = [str(path) for path in OLD]
    with pytest.raises(NoPython) as caught:
        await host.start(tiny_bundle(), candidates=[*old, "/nonexistent/python3"])
    assert "has no Python 3.9" in caught.value.what
    for path in old:
        assert path.split("/")[-3] in caught.value.evidence


async def test_a_shim_that_fails_is_passed_over(host: Host) -> None:
    shim = shell_script(host.home / "python3", "echo 'pyenv: no version set' >&2\nexit 127")
    _, said = await host.start(tiny_bundle(), candidates=[str(shim), *CANDIDATES])
    assert said == "hello disk /\n"


async def test_what_the_host_says_instead_is_shown_harmlessly(host: Host) -> None:
    said = "\\033]0;owned\\007This account is \\033[31mnot available."
    fake = shell_script(host.home / "python", f"case $4 in *version*) exit 0;; esac\nprintf '{said}\\n'; exit 1")
    with pytest.raises(DeployError) as caught:
        await host.start(tiny_bundle(), candidates=[str(fake)])
    assert "This account is not available." in caught.value.evidence
    assert "\x1b" not in str(caught.value)


@pytest.mark.parametrize(
    "python", [p for p in PYTHONS if not p.parts[-3].startswith(("3.6", "3.7", "3.8"))], ids=lambda p: p.parts[-3]
)
async def test_the_worker_says_hello_on_every_python_here(host: Host, python: Path) -> None:
    transport = LocalTransport(host.env)
    params = {"session": str(uuid.uuid4()), "cwd": "~", "create": True}
    launched = await launch(transport, params, load(), candidates=[str(python)])
    hello = await hello_of(launched)
    await transport.close()
    assert hello.python == launched.facts["py"]
    assert launched.facts["exe"] == str(python)
    assert hello.bundle == load().sha256


def counted(bundle: Bundle, forms: list[str], *, lacks: str = "") -> Bundle:
    """A bundle that notes the forms it is packed in. The laptop's Python `lacks` one of them."""

    def pack(data: bytes, form: str) -> bytes:
        forms.append(form)
        if form == lacks:
            raise ImportError(form)
        return bundle.pack(data, form)

    return replace(bundle, pack=pack)


def without_lzma(host: Host) -> None:
    """Let every Python of the host be one that was built without lzma."""
    python = host.home / "bin" / "python3"
    python.parent.mkdir()
    python.write_text(
        f"#!{sys.executable}\n"
        "import os, sys\n"
        "args = ['import sys; sys.modules[\"lzma\"] = None; ' + each if 'import sys' in each else each\n"
        "        for each in sys.argv[1:]]\n"
        f"os.execv({sys.executable!r}, [{sys.executable!r}, *args])\n"
    )
    python.chmod(0o755)
    host.env["PATH"] = f"{python.parent}:/usr/bin:/bin"


@pytest.mark.parametrize(
    ("host_has_lzma", "lacks", "asked"), [(True, "", ["xz"]), (True, "xz", ["xz", "zlib"]), (False, "", ["zlib"])]
)
async def test_the_smallest_form_both_know_is_sent(
    host: Host, host_has_lzma: bool, lacks: str, asked: list[str]
) -> None:
    if not host_has_lzma:
        without_lzma(host)
    forms: list[str] = []
    launched, said = await host.start(counted(tiny_bundle(), forms, lacks=lacks))
    assert (launched.uploaded, said) == (True, "hello disk /\n")
    assert forms == asked
    launched, said = await host.start(counted(tiny_bundle(), forms))
    assert (launched.uploaded, said, forms) == (False, "hello disk /\n", asked)


@pytest.mark.parametrize(
    "packed",
    [b"", b"garbage", zlib.compress(tiny_bundle("evil").data), zlib.compress(bytes(1 << 20)), bytes(4096)],
    ids=["nothing", "garbage", "another bundle", "a bomb", "too much"],
)
async def test_what_is_not_the_announced_bundle_is_not_run(host: Host, packed: bytes) -> None:
    without_lzma(host)
    launched, said = await host.start(replace(tiny_bundle(), pack=lambda data, form: packed))
    assert launched.uploaded
    assert '"error": "the bundle arrived damaged"' in said and "hello" not in said
    assert await launched.pipe.exit_status() == 95
    assert not list(host.home.rglob("*.bundle"))


async def test_the_host_compiles_what_has_come_while_the_rest_is_on_its_way(host: Host) -> None:
    """The compiler warns about the worker before the last bytes are sent, and does not see it again."""
    worker = b"import os\ndef start(p, b, s):\n    os.write(1, b'hello')\n    return 1 is 0\n"
    files = {"__init__": b"", "remote/__init__": b"", "remote/main": worker, "remote/z": bytes(b" " * 100)}
    bundle = Bundle.of(joined({f"ccb/{name}.py": source for name, source in files.items()}))
    first, rest = bundle.data[:-100], bundle.data[-100:]
    line = bootstrap_command("5" * 32, bundle, {"cwd": "/"}, python=sys.executable)
    process = await asyncio.create_subprocess_exec("sh", "-c", line, stdin=PIPE, stdout=PIPE, stderr=PIPE, env=host.env)
    assert process.stdin and process.stdout and process.stderr
    assert b'"need": ' in await process.stdout.readuntil(b"}\n")
    process.stdin.write(b"r%09d" % len(bundle.data) + first)
    said = await process.stderr.readline()
    process.stdin.write(rest)
    worker_said, more = await process.communicate()
    assert b"SyntaxWarning" in said and b"SyntaxWarning" not in more
    assert worker_said.endswith(b"hello")


def two_bundles(text: str = "good") -> Bundle:
    """A bundle whose worker says for a command what the second bundle says."""
    start = (
        "import os\ndef start(p, b, s):\n"
        "    said = 'no command'\n"
        "    if 'command' in p:\n        from ccb.more import said\n"
        "    os.write(1, ('%s %s' % (said, s)).encode())\n    return 0\n"
    )
    commands = Bundle.of(joined({"ccb/more.py": f"said = '{text}'"}))
    return replace(worker_bundle(start), commands=lambda: commands)


async def test_the_host_commands_are_sent_with_the_first_command_and_once(host: Host) -> None:
    bundle = two_bundles()
    sent: list[str] = []

    async def said(**params: Any) -> tuple[bool, str]:
        launched, text = await host.start(bundle, **params)
        sent[:] = launched.facts.get("need", [])
        return launched.uploaded, text

    worker, commands = (each.sha256 for each in bundle.with_commands())
    assert (await said(), sent) == ((True, "no command disk"), [worker])
    assert (await said(command="ps"), sent) == ((True, "good disk"), [commands])
    assert (await said(command="ps"), sent) == ((False, "good disk"), [])
    assert {path.name for path in host.cache.iterdir()} == {f"{worker}.bundle", f"{commands}.bundle"}
    (host.cache / f"{worker}.bundle").unlink()
    assert (await said(command="ps"), sent) == ((True, "good disk"), [worker])
    (host.cache / f"{commands}.bundle").write_bytes(two_bundles("evil").with_commands()[1].data)
    assert (await said(command="ps"), sent) == ((True, "good disk"), [commands])


async def test_a_command_on_a_new_host_gets_both_bundles_at_once_and_can_leave_none(host: Host) -> None:
    bundle = two_bundles()
    launched, said = await host.start(bundle, command="doctor", keep=False)
    assert (launched.facts["need"], said) == ([each.sha256 for each in bundle.with_commands()], "good memory")
    assert not list(host.home.rglob("*.bundle"))
    damaged = replace(bundle.with_commands()[1], pack=lambda data, form: zlib.compress(data + b"# evil\0"))
    without_lzma(host)
    launched, said = await host.start(replace(bundle, commands=lambda: damaged), command="ps")
    assert '"error": "the bundle arrived damaged"' in said and "good" not in said
    assert [path.stem for path in host.cache.iterdir()] == [bundle.sha256]


MARKER = "ab" * 16


def test_the_command_line_is_one_short_line_that_every_shell_reads_alike() -> None:
    command = bootstrap_command(MARKER, load(), {"session": "s", "cwd": "/srv/app"})
    assert "\n" not in command
    assert command.count("'") == 2
    assert command.startswith("exec /bin/sh -c '")
    assert "!" not in command, "csh expands ! even between single quotes"
    assert len(command) < 16 * 1024


@given(st.dictionaries(st.text(max_size=10), st.text(max_size=60), max_size=4))
def test_parameters_cannot_break_out_of_the_command_line(params: dict[str, str]) -> None:
    command = bootstrap_command(MARKER, Bundle.of(b"bundle"), params)
    assert command.count("'") == 2
    assert re.fullmatch(r"[A-Za-z0-9+/=]*", command.split(f"{MARKER} ")[1].split()[2])
