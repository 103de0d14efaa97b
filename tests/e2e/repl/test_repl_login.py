"""The first login of a REPL on a real sshd: what is typed meanwhile, and what the login asks."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.hosts.sshd import HostUser, Sshd, make_key
from tests.support.model.fake_model import FakeModel
from tests.support.person.laptop import Laptop

pytestmark = pytest.mark.visited


async def test_a_prompt_typed_before_a_login_with_questions_is_sent_once_and_nothing_of_it_is_an_answer(
    laptop: Laptop, fake_model: FakeModel, sshd: Sshd, host_user: HostUser, tmp_path: Path
) -> None:
    fake_model.add({"text": "Fixed-it-all."}, {"text": "Agreed-to-all."})
    key = make_key(laptop.home / "locked", passphrase="open sesame")
    (sshd.identity.parent / "authorized_keys").write_text(key.with_suffix(".pub").read_text())
    options = ["-P", str(sshd.port), "-i", str(key), "-o", f"UserKnownHostsFile={tmp_path / 'known'}"]
    async with laptop.on_terminal(
        "ssh", f"{host_user.name}@127.0.0.1:~", *options, "-o", "IdentitiesOnly=yes"
    ) as running:
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
        assert len(fake_model.requests) == 2
        running.type("/stop\r")
        assert await running.ended() == 0
