"""`ccb cp` as a person types it, over a real sshd and over links that break."""

from __future__ import annotations

import os
import pwd
from pathlib import Path
from typing import Any

import pytest
from tests.support.hosts.sshd import HostUser, Sshd
from tests.support.model.fake_model import FakeModel
from tests.support.network.relay import Fault, relay
from tests.support.person.laptop import Laptop, make_laptop

pytestmark = pytest.mark.visited

SIZE = 6_000_000


def on_host(user: HostUser, name: str, data: bytes) -> None:
    """Make a file of the user."""
    path = user.home / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(data)
    for each in (path.parent, path):
        os.chown(each, pwd.getpwnam(user.name).pw_uid, -1)


async def test_a_file_and_a_folder_go_both_ways_over_ssh(laptop: Laptop, sshd: Sshd, host_user: HostUser) -> None:
    login, options = f"{host_user.name}@127.0.0.1", sshd.client_options()
    data = os.urandom(SIZE)
    on_host(host_user, "run/plot.png", data)
    done = await laptop.run(["cp", f"{login}:run/plot.png", ".", *options])
    assert (done.code, done.stderr) == (0, "copied plot.png (6.0 MB)\n"), done.stderr
    assert (laptop.home / "plot.png").read_bytes() == data
    assert (await laptop.run(["cp", "-r", *options, f"{login}:run", "all"])).code == 0
    assert (laptop.home / "all/plot.png").read_bytes() == data
    assert (await laptop.run(["cp", *options, "all", f"{login}:"])).code == 0
    assert (host_user.home / "all/plot.png").read_bytes() == data
    assert (host_user.home / "all/plot.png").stat().st_uid == pwd.getpwnam(host_user.name).pw_uid
    done = await laptop.run(["cp", f"{login}:nothing", ".", *options])
    assert done.code == 66 and "nothing" in done.stderr and not (laptop.home / "nothing").exists()


@pytest.mark.parametrize("upload", [False, True])
async def test_a_copy_goes_on_after_its_connection_was_cut(
    laptop: Laptop, sshd: Sshd, host_user: HostUser, upload: bool
) -> None:
    data = os.urandom(SIZE)
    source, target = "source", "target"
    on_host(host_user, "source", data)
    (laptop.home / "source").write_bytes(data)
    async with relay(sshd.port) as between:
        remote = f"{host_user.name}@127.0.0.1"
        between.faults = [Fault("reset", SIZE * 2 // 3, upload)]
        words = [source, f"{remote}:{target}"] if upload else [f"{remote}:{source}", target]
        done = await laptop.run(["cp", *words, *sshd.client_options(between.port)])
        carried = between.up if upload else between.down
    assert (done.code, between.connections) == (0, 2), done.stderr
    assert ((host_user.home if upload else laptop.home) / target).read_bytes() == data
    assert SIZE < carried < SIZE * 3 // 2, "what had arrived is not sent again"


Json = dict[str, Any]
FORMATTER = 'text = open("h1").read(); open("h1", "w").write("#\\n" + text)'


async def test_links_owners_encodings_and_names_are_kept_over_ssh(
    tmp_path: Path, fake_model: FakeModel, sshd: Sshd, host_user: HostUser
) -> None:
    laptop, login = make_laptop(tmp_path, fake_model.url), pwd.getpwnam(host_user.name)
    app = host_user.home / "app"
    (app / "closed").mkdir(parents=True)
    (app / "h1").write_text("one\ntwo\n")
    os.link(app / "h1", app / "h2")
    (app / "closed" / "team.txt").write_text("one\n")
    (app / "wide.txt").write_bytes("größe\r\n".encode("utf-16"))
    (app / "caf\udce9.txt").write_text("one\n")
    for each in (app, app / "h1", app / "wide.txt", app / "caf\udce9.txt"):
        os.chown(each, login.pw_uid, login.pw_gid)
    os.chown(app / "closed" / "team.txt", 2222, login.pw_gid)
    (app / "closed" / "team.txt").chmod(0o664)

    def calls(*tools: tuple[str, Json]) -> Json:
        return {"blocks": [{"type": "tool_use", "name": name, "input": given} for name, given in tools]}

    names = ("h1", "closed/team.txt", "wide.txt", r"caf\xe9.txt")
    fake_model.add(
        calls(("Glob", {"pattern": "*.txt"})),
        calls(*(("Read", {"file_path": name}) for name in names)),
        calls(("Bash", {"command": f"python3 -c '{FORMATTER}'"})),
        calls(
            ("Edit", {"file_path": "h1", "old_string": "two", "new_string": "2"}),
            ("Edit", {"file_path": "closed/team.txt", "old_string": "one", "new_string": "1"}),
            ("Edit", {"file_path": "wide.txt", "old_string": "größe", "new_string": "Maß"}),
            ("Write", {"file_path": r"caf\xe9.txt", "content": "1\n"}),
        ),
        {"text": "done"},
    )
    options = ["--permission-mode", "acceptEdits", "--allowedTools", "Bash(python3 *)"]
    before = (app / "closed" / "team.txt").stat()
    done = await laptop.run(["ssh", f"{host_user.name}@127.0.0.1:app", *sshd.client_options(), "-p", "edit", *options])
    assert (done.code, done.stdout) == (0, "done\n"), done.stderr
    assert rf"{app}/caf\xe9.txt" in fake_model.requests[1].tool_result_text
    said = fake_model.requests[4].tool_result_text
    assert "2 hard links" in said and "had changed elsewhere since you saw it:\n@@ -1,2 +1,3 @@\n+#\n one" in said
    assert (app / "h1").read_text() == (app / "h2").read_text() == "#\none\n2\n"
    after = (app / "closed" / "team.txt").stat()
    assert (app / "closed" / "team.txt").read_text() == "1\n"
    assert (after.st_ino, after.st_uid, after.st_gid) == (before.st_ino, before.st_uid, before.st_gid)
    assert (app / "wide.txt").read_bytes() == "Maß\r\n".encode("utf-16")
    assert (app / "caf\udce9.txt").read_text() == "1\n"
