"""The first login of a REPL on a real sshd: what is typed meanwhile, and what the login asks."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.hosts.reached_host import Host

pytestmark = pytest.mark.visited


async def test_a_prompt_typed_before_the_questions_of_a_login_is_no_answer(host: Host, tmp_path: Path) -> None:
    host.model.add({"text": "Fixed-it-all."}, {"text": "Agreed-to-all."})
    options = ["-o", f"UserKnownHostsFile={tmp_path / 'known'}", *host.locked_key()]
    async with host.laptop.on_terminal("ssh", f"{host.login}:~", *options) as running:
        await running.shows("Connecting to")
        running.type("fix it\r")
        await running.shows("fix it  (queued)")
        running.type("yes\r")
        await running.shows("Alt+R answers it")
        await running.chord("\x1br")
        await running.shows("Trust it and go on?")
        assert not (tmp_path / "known").exists()
        running.type("yes\r")
        await running.shows("Passphrase for")
        running.type("a guess\r")
        await running.shows("(again)")
        running.type("open sesame\r")
        await running.shows("Agreed-to-all.")
        assert running.text.index("Fixed-it-all.") < running.text.index("Agreed-to-all.")
        assert len(host.model.requests) == 2
        running.type("/stop\r")
        assert await running.ended() == 0
