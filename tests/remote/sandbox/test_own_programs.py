"""Programs of ccb in a cage: they run in a fork of the zygote, without a new Python, and are caged like any command."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.remote.sandbox.workspace_kit import caged_host
from tests.remote.tools_kit import until

from ccb.remote.sandbox.cage_rules import CageRules, read_only_rules
from ccb.remote.system.process import Process

_BOOT = """
import os, sys
class module:
    loaded_in = os.getpid(), sys.argv[1:]
    def main(text):
        exec(text, {"module": module})
"""


class Programs:
    def __init__(self, root: Path, most_abi: int) -> None:
        self.host = caged_host(most_abi)
        self.root = root
        self.rules = replace(read_only_rules([str(root)], os.environ, "/nowhere"), own=True)
        self.output = bytearray()

    async def start(self, text: str, rules: CageRules | None = None) -> Process:
        self.output.clear()
        argv = ["/no/such/python", "-I", "-S", "-c", _BOOT, "program", text]
        return await self.host.start(argv, str(self.root), self.output.extend, {"ODD": "a\nb"}, rules or self.rules)

    async def run(self, text: str) -> str:
        assert await (await self.start(text)).wait() == 0, self.output
        return self.output.decode().rstrip("\n")


@pytest.fixture(params=[99, 0], ids=["landlock", "namespaces"])
async def programs(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Programs]:
    made = Programs(tmp_path, request.param)
    yield made
    made.host.close()


async def test_it_is_loaded_once_and_before_it_is_caged(programs: Programs) -> None:
    zygote = programs.host._cages._zygote
    assert zygote is not None
    show = "print(module.loaded_in, flush=True)"
    assert [await programs.run(show) for _ in range(2)] == [str((zygote.pid, ["program"]))] * 2


async def test_it_is_a_process_like_that_of_a_command(programs: Programs) -> None:
    show = "import os; print([os.getsid(0) == os.getpid(), os.getcwd(), os.environ['ODD']], flush=True)"
    assert await programs.run(show) == str([True, str(programs.root), "a\nb"])


async def test_nothing_of_the_zygote_is_open_in_it(programs: Programs) -> None:
    show = "import os; print([os.readlink(f'/proc/self/fd/{fd}') for fd in (0, 1, 2)], os.listdir('/proc/self/fd'))"
    opened = await programs.run(f"{show}; import sys; sys.stdout.flush()")
    assert opened.startswith("['/dev/null', 'pipe:") and opened.endswith(" ['0', '1', '2', '3']")  # 3 lists them


async def test_it_is_caged(programs: Programs, tmp_path: Path) -> None:
    hidden = tmp_path.parent / f"{tmp_path.name}-hidden"
    hidden.write_text("x")
    tries = f"""
import os, _socket
def tried(name, attempt, *arguments):
    try:
        attempt(*arguments)
        print(name)
    except OSError:
        pass
tried("make", open, "made", "w")
tried("read outside", open, {str(hidden)!r})
tried("read inside", open, "there")
tried("temporary", open, os.environ["TMPDIR"] + "/a", "w")
tried("socket", _socket.socket)
tried("attach", os.kill, {os.getpid()}, 0)
for line in open("/proc/self/status"):
    if line.startswith(("CapEff", "CapPrm", "NoNewPrivs", "Seccomp:")):
        print(*line.split())
import sys; sys.stdout.flush()
"""
    (programs.root / "there").write_text("x")
    found = (await programs.run(tries)).splitlines()
    command = await programs.host.start(
        ["grep", "-E", "^(CapEff|CapPrm|NoNewPrivs|Seccomp):", "/proc/self/status"],
        str(programs.root),
        programs.output.extend,
        cage=replace(programs.rules, own=False),
    )
    programs.output.clear()
    assert await command.wait() == 0
    assert found == ["read inside", "temporary", *(" ".join(x.split()) for x in programs.output.decode().splitlines())]
    assert os.listdir(programs.root) == ["there"]


async def test_its_failure_is_told_and_it_can_be_stopped(programs: Programs) -> None:
    failed = await programs.start("raise ValueError('so it is')")
    assert await failed.wait() == 1
    assert programs.output.decode().splitlines()[-1] == "ValueError: so it is"
    endless = await programs.start("print('runs', flush=True)\nwhile True: pass")
    await until(lambda: programs.output == b"runs\n")
    await endless.stop()
    assert endless.returncode is not None and endless.returncode < 0
    assert await programs.run("print('again', flush=True)") == "again"


async def test_without_its_cage_it_does_not_run(programs: Programs) -> None:
    with pytest.raises(OSError, match="cage could not be made"):
        await programs.start("open('made', 'w')", replace(programs.rules, read=("/\0",), write=(str(programs.root),)))
    assert os.listdir(programs.root) == []
