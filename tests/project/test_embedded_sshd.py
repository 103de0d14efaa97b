"""The SSH server of `make demo`."""

from __future__ import annotations

import os
from pathlib import Path

import asyncssh
import pytest
from tests.support.hosts.embedded_sshd import embedded_sshd


@pytest.mark.parametrize("command", ["cat", "cat /dev/zero"])
async def test_a_channel_that_is_closed_leaves_the_others_open(tmp_path: Path, command: str) -> None:
    async with embedded_sshd(tmp_path, os.environ, tmp_path) as server:
        connecting = asyncssh.connect(
            "127.0.0.1",
            server.port,
            username="person",
            client_keys=[str(server.identity)],
            known_hosts=str(server.known_hosts),
            config=None,
        )
        async with connecting as connection:
            stays = await connection.create_process("cat", encoding=None)
            goes = await connection.create_process(command, encoding=None)
            goes.close()
            await goes.wait_closed()
            for _ in range(20):
                stays.stdin.write(b"there")
                assert await stays.stdout.readexactly(5) == b"there"
            assert (await connection.run("echo and new ones; exit 3")).exit_status == 3
