"""How the bundle gets to a host: packed in a form that both ends know, never more than was announced."""

from __future__ import annotations

import asyncio
import sys
import zlib
from asyncio.subprocess import PIPE
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.deploy.test_deploy_local import Host, tiny_bundle

from ccb.deploy.bootstrap import launch
from ccb.deploy.bootstrap_command import bootstrap_command
from ccb.deploy.build_bundle import joined
from ccb.deploy.bundle import Bundle
from ccb.tunnel.transports.command_transport import LocalTransport


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path / "home")


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
async def test_the_smallest_form_that_both_ends_know_is_sent(
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


async def test_on_this_machine_nothing_is_packed(host: Host) -> None:
    transport = LocalTransport(host.env, sys.executable)
    forms: list[str] = []
    launched = await launch(transport, {"cwd": "/", "keep": False}, counted(tiny_bundle(), forms))
    assert b"hello memory /\n".startswith(launched.rest or await launched.pipe.read())
    assert (launched.uploaded, forms) == (True, [])
    await launched.pipe.close()
    await transport.close()


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
    files = {"ccb/__init__.py": "", "ccb/remote/__init__.py": "", "ccb/remote/main.py": start}
    return replace(Bundle.of(joined(files)), commands=lambda: commands)


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
