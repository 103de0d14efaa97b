"""Hosts that are short of something: homes, disks, Pythons, limits, locales, clocks. Each is a mount namespace, entered
by a command as transport, so nothing of it stays. Root only."""

from __future__ import annotations

import os
import shutil
import sys
from functools import partial
from pathlib import Path

import pytest
from tests.deploy.test_bootstrap import tiny_bundle
from tests.support.hosts.reached_host import Host
from tests.support.machine.programs import shell_script
from tests.support.model.model_script import uses
from tests.support.person.laptop import Here, Laptop
from tests.support.person.login import everything

from ccb.deploy.bootstrap import launch
from ccb.tunnel.transports.command_transport import CommandTransport, PipeCommand
from ccb.tunnel.transports.login_failures import command_failure

PYTHON = Path(sys.base_prefix) / "bin" / "python3"

SCENE = """#!/bin/sh
exec unshare --mount sh -c '
mount -t tmpfs tmpfs /mnt && mount -t tmpfs -o mode=1777 tmpfs /tmp && mkdir -m 700 /mnt/home && cd /mnt || exit 1
export HOME=/mnt/home
unset XDG_RUNTIME_DIR XDG_CACHE_HOME XDG_STATE_HOME
{setup}
exec "$@"' scene "$@"
"""

LOOK = (
    'umask; find /mnt /tmp \\( -name "*.bundle" -o -name journal.jsonl -o -name "*.sock" \\) -printf "%m %h\\n"; '
    'echo "$(printf "\\303\\274") $TERM."'
)
"""Shows where the bundle, the journal and the socket are and with what modes, and a letter that is not ASCII."""

FILL = "head -c 1000000 /dev/zero > {0}/full; :"
HOSTS = {
    "a home that is read-only": ("mount -t tmpfs -o ro tmpfs /mnt/home", "600 /tmp/ccb-0/worker"),
    "a link planted in /tmp": (
        "mkdir /tmp/evil; ln -s evil /tmp/ccb-0; chown -h nobody /tmp/ccb-0",
        "/mnt/home/.ccb-run",
    ),
    "a full /tmp": ("mount -t tmpfs -o size=64k tmpfs /tmp; " + FILL.format("/tmp"), "600 /mnt/home/.ccb-run"),
    "umask 077": ("umask 077", "0077\n"),
    "few open files": ("ulimit -n 64", "600 /mnt/home/.cache/ccb/worker"),
    "a home that is missing": ("export HOME=/proc/none", "600 /tmp/ccb-0/worker"),
    "a HOME that is no path": ("export HOME=x", "600 /tmp/ccb-0/worker"),
    "a home that runs nothing": ("mount -t tmpfs -o noexec tmpfs /mnt/home", "600 /mnt/home/.cache/ccb/worker"),
    "a home without inodes": ("mount -t tmpfs -o nr_inodes=2 tmpfs /mnt/home", "600 /tmp/ccb-0/worker"),
    "umask 000": ("umask 000", "0000\n"),
    "XDG directories": (
        "mkdir -m 700 c s r; export XDG_CACHE_HOME=/mnt/c XDG_STATE_HOME=/mnt/s XDG_RUNTIME_DIR=/mnt/r",
        "600 /mnt/c/ccb/worker",
    ),
    "files where directories should be": ("touch /mnt/home/.cache /mnt/home/.local /tmp/ccb-0", "/mnt/home/.ccb-run"),
    "no locale and no terminal": ("unset TERM LANG LC_CTYPE; export LC_ALL=C", "ü dumb."),
}
"""How each host is made, and what is true on it."""


def scene(directory: Path, setup: str) -> Path:
    return shell_script(directory / "scene", SCENE.format(setup=setup))


@pytest.mark.parametrize("host", HOSTS)
@pytest.mark.quick_rows(2)
async def test_a_session_runs_on_a_host_with(here: Here, host: str, tmp_path: Path) -> None:
    setup, truth = HOSTS[host]
    here.model.add(uses("Bash", command=LOOK), {"text": "ok"})
    where = ["ssh", "box:/", "--transport", str(scene(tmp_path, setup))]
    done = await here.laptop.run([*where, "-p", "look", "--allowedTools", "Bash"])
    assert (done.code, done.stdout) == (0, "ok\n"), done.stderr
    said = here.model.requests[1].tool_result_text
    assert truth in said, said
    lasting = "/mnt/home/.local/" in said or "/mnt/s/" in said
    assert ("the session is kept in /" in done.stderr) != lasting, (said, done.stderr)
    assert "evil" not in said
    found = [line.split() for line in said.splitlines() if "ccb" in line]
    assert found and {mode for mode, _ in found} == {"600"}, said


@pytest.mark.parametrize("disk", ["-o ro", "-o nr_inodes=1"])
@pytest.mark.quick_rows(1)
async def test_a_host_where_nothing_can_be_written_runs_it_in_memory(here: Here, disk: str, tmp_path: Path) -> None:
    setup = f"mount -t tmpfs {disk} tmpfs /tmp; mount -t tmpfs {disk} tmpfs /mnt/home"
    here.model.add(uses("Bash", command="find /tmp /mnt/home"), {"text": "ok"})
    where = ["ssh", "box:/", "--transport", str(scene(tmp_path, setup)), "--allowedTools", "Bash"]
    done = await here.laptop.run([*where, "-p", "look"])
    assert (done.code, done.stdout) == (0, "ok\n"), done.stderr
    said = "Read-only file system" if disk == "-o ro" else "No space left on device"
    for place in ("/tmp/ccb-0", "/mnt/home/.ccb-run", "/mnt/home/.local"):
        assert done.stderr.count(f"ccb: on the host: “{place}: {said}”\n") == 1
    assert "ccb: on the host: “no file can be made on this host, so the session is kept in memory only" in done.stderr
    assert "ccb: on the host: “the worker's program is in memory only" in done.stderr
    assert here.model.requests[1].tool_result_text.split() == ["/tmp", "/mnt/home"]


NO_PYTHON = "for p in /usr/bin/python3.*[0-9]; do mount --bind /dev/null $p; done; export PATH=/usr/bin:/bin; "
ELSEWHERE = {
    "/opt/conda/bin/python3": "mount -t tmpfs tmpfs /opt",
    "/opt/tools/bin/python3": "mount -t tmpfs tmpfs /opt",
    "/usr/libexec/platform-python": "mount -t tmpfs tmpfs /usr/libexec",
    "/usr/local/bin/python3.12": "mount -t tmpfs tmpfs /usr/local/bin",
    "/mnt/home/miniconda3/bin/python3": "",
    "/mnt/home/.local/bin/python3": "",
    "/mnt/home/.pyenv/versions/3.12.1/bin/python3": "",
}


@pytest.mark.parametrize("place", ELSEWHERE)
async def test_a_python_that_is_on_no_path_is_found(place: str, tmp_path: Path) -> None:
    setup = f"{ELSEWHERE[place]}\nmkdir -p {Path(place).parent} && cp {PYTHON.resolve()} {place}\n{NO_PYTHON}"
    program = str(scene(tmp_path, setup))
    transport = CommandTransport(
        PipeCommand("box", program, lambda line: [program, "sh", "-c", line], partial(command_failure, "box", program)),
        env={"PATH": os.environ["PATH"]},
    )
    try:
        launched = await launch(transport, {"cwd": "/"}, tiny_bundle())
        said = launched.rest + await everything(launched.pipe)
    finally:
        await transport.close()
    assert said == b"hello disk /\n"
    assert launched.facts["exe"] == place


async def test_a_command_that_passes_no_input_on_is_named(laptop: Laptop, tmp_path: Path) -> None:
    program = shell_script(tmp_path / "enter", 'exec "$@" </dev/null')  # as `docker exec` without -i
    done = await laptop.run(["ps", "box", "--transport", str(program)])
    assert done.code == 76 and "box does not pass input on" in done.stderr and "(-i)" in done.stderr


@pytest.mark.parametrize("command", [["gc"], ["clean", "--yes"]])
@pytest.mark.quick_rows(1)
async def test_what_an_upload_that_died_has_left_is_removed(host: Host, command: list[str]) -> None:
    assert (await host.command("ps")).code == 0
    cache = host.home / ".cache" / "ccb" / "worker"
    left = [cache / f".{'0a' * 8}.4194305{suffix}" for suffix in ("", f"-{'b1' * 8}")]  # by older workers, and now
    for each in left:
        each.touch()
        shutil.chown(each, host.user.name)
    done = await host.command(*command)
    assert done.code == 0, done.stderr
    assert not any(each.exists() for each in left) and all(each.name in done.stdout for each in left)
