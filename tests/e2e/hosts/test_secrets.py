"""No secret is on the remote: root and a second user watch a whole session while it runs, and search afterwards."""

from __future__ import annotations

import os
import pwd
import re
import stat
import subprocess
from pathlib import Path

import pytest
from tests.support.hosts.host_search import files_of, places_of, processes, seen_in
from tests.support.hosts.reached_host import Host
from tests.support.hosts.sshd import HostUser
from tests.support.hosts.sshd import host_user as make_user
from tests.support.machine.processes import memory_of
from tests.support.machine.waiting import until
from tests.support.model.fake_model import API_KEY
from tests.support.model.model_script import uses

pytestmark = pytest.mark.visited

PROCESSES = "-- processes of this user --"
LOOK = f"env; cat /proc/self/environ; echo '{PROCESSES}'; ps -fu $USER"
WAIT = f"touch ready; while [ ! -e go ]; do sleep 0.05; done; {LOOK}"
NONCE = re.compile(rb'"nonce":"([A-Za-z0-9_-]{20,})"')  # as it stands in a frame


def as_user(user: HostUser, command: str) -> subprocess.CompletedProcess[str]:
    entry = pwd.getpwnam(user.name)
    return subprocess.run(
        ["sh", "-c", command], user=entry.pw_uid, group=entry.pw_gid, extra_groups=[], capture_output=True, text=True,
        check=False,
    )  # fmt: skip


async def test_no_credential_and_no_nonce_can_be_found_on_the_host(host: Host, tmp_path: Path) -> None:
    host.model.add(uses("Bash", command=WAIT), {"text": "done"})
    uid = host.uid
    places = places_of(host)
    with make_user(tmp_path) as watcher:
        async with host.start("-p", "go", "--allowedTools", "Bash", piped=False) as running:
            await until((host.home / "ready").exists)
            found = processes(host.user)
            assert len(found) >= 3, "bridge, daemon and tool"
            nonces: set[bytes] = set()
            for process in found:
                memory = memory_of(int(process.name))
                assert API_KEY.encode() not in memory, f"the key is in the memory of {process}"
                nonces.update(NONCE.findall(memory))
            assert nonces, "the worker holds its nonce in memory, and only there"
            for process in found:
                for where, content in seen_in(process):
                    for secret in {*nonces, API_KEY.encode()}:
                        assert secret not in content, where
            sockets = [path for path in files_of(uid, *places) if stat.S_ISSOCK(path.lstat().st_mode)]
            assert sockets
            for path in sockets:
                assert stat.S_IMODE(path.lstat().st_mode) == 0o600
                assert stat.S_IMODE(path.parent.lstat().st_mode) == 0o700
                connect = f"import socket; socket.socket(1).connect('{path}')"
                looked = as_user(watcher, f'ls {path.parent}; python3 -c "{connect}"')
                assert looked.returncode != 0
                assert "PermissionError" in looked.stderr
                assert looked.stdout == ""
            own = " ".join(each.name for each in [*found, Path(str(running.process.pid))])  # not the whole machine's
            files = "/proc/$pid/environ /proc/$pid/cmdline"
            watched = as_user(watcher, f"ps -fp '{own}'; for pid in {own}; do cat {files} 2>/dev/null; done")
            assert host.user.name[:7] in watched.stdout, "the second user sees the processes"
            for nonce in {*nonces, API_KEY.encode()}:
                assert nonce.decode() not in watched.stdout
            (host.home / "go").touch()
            done = await running.done()
    assert (done.code, done.stdout) == (0, "done\n")
    seen_by_tool = host.model.requests[1].tool_result_text
    assert "HOME=" in seen_by_tool, "the tool did look"
    assert API_KEY not in seen_by_tool
    environment, _, processes_seen = seen_by_tool.partition(PROCESSES)
    assert host.user.name[:7] in processes_seen
    assert "ANTHROPIC" not in environment
    for path in files_of(uid, *places):
        if path.is_file() and not path.is_symlink():
            content = path.read_bytes()
            for secret in {*nonces, API_KEY.encode()}:
                assert secret not in content, path
            if not os.path.samefile(path.parent, host.home):
                assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0, path
