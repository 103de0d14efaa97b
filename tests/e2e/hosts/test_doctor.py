"""`ccb doctor` over a real sshd: what it finds, what it makes of it, and that it goes on where something is broken."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from tests.e2e.headless.test_bad_input import bare_host, gone
from tests.support.hosts.reached_host import Host
from tests.support.hosts.sshd import Sshd, free_port, make_key
from tests.support.hosts.sshd import sshd as serve
from tests.support.model.fake_model import API_KEY
from tests.support.model.model_script import Json
from tests.support.person.laptop import Done, Laptop
from tests.support.person.login import pipe_to

pytestmark = pytest.mark.visited


assert bare_host  # a fixture

ON_LAPTOP = {
    "ccb", "OpenSSH", "ssh agent", "keys", "settings", "log directory", "worker bundle", "terminal", "keyring", "proxy",
    "provider", "credential", "clock",
}  # fmt: skip
ON_HOST = {
    "shell", "Pythons", "shell noise", "system", "user", "worker python", "login shell", "home", "state", "bundles",
    "temporary", "sockets", "bundle cache", "sessions", "nofile", "processes", "logout", "sandbox",
    "bash", "git", "rg", "locale", "secrets", "round trip", "throughput", "clock", "MaxSessions",
}  # fmt: skip
ON_CONNECTION = {
    "address", "known_hosts", "keys", "reachability", "SSH server", "host key", "login",
    "pipelined login",
}  # fmt: skip


async def doctor(host: Host, *words: str) -> tuple[Done, dict[tuple[str, str], Json]]:
    """The run, and its findings by place and name."""
    done = await host.command("doctor", "--json", *words)
    return done, findings(done)


def findings(done: Done) -> dict[tuple[str, str], Json]:
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert all(set(row) == {"where", "name", "state", "found", "fix"} for row in rows)
    assert all(row["fix"] for row in rows if row["state"] in ("warn", "block"))
    return {(row["where"], row["name"]): row for row in rows}


def blocking(found: dict[tuple[str, str], Json]) -> list[tuple[str, str]]:
    return [name for name, row in found.items() if row["state"] == "block"]


@pytest.mark.visited(False)
async def test_a_good_host_is_examined_from_the_laptop_to_its_disks(host: Host) -> None:
    done, found = await doctor(host)
    assert (done.code, done.stderr, blocking(found)) == (0, "", [])
    assert {name for where, name in found if where == "host"} >= ON_HOST
    assert {name for where, name in found if where == "connection"} >= ON_CONNECTION
    assert found["laptop", "credential"]["found"].startswith("ANTHROPIC_API_KEY")
    assert found["laptop", "credential"]["state"] == found["laptop", "provider"]["state"] == "ok"
    assert "(used)" in found["host", "Pythons"]["found"]
    assert found["host", "user"]["found"].startswith(host.user.name)
    assert found["host", "home"]["found"].startswith(str(host.home))
    assert "1 public key" in found["connection", "login"]["found"]
    assert "SHA256:" in found["connection", "host key"]["found"]
    assert found["host", "MaxSessions"]["found"].startswith("3 or more")
    assert f"userknownhostsfile {host.server.known_hosts}" in found["connection", "ssh options"]["found"]
    assert API_KEY not in done.stdout
    assert not list(host.home.iterdir()), "the doctor leaves nothing"
    assert not Path(f"/tmp/ccb-{host.uid}").exists()
    assert gone(host)


async def test_people_get_a_table_with_one_way_out_for_each_warning(host: Host) -> None:
    (host.home / ".bashrc").write_text("printf '\\033[31mnoise'\n", encoding="ascii")
    done = await host.command("doctor", "--no-pipelined-login")
    assert (done.code, done.stderr) == (0, "")
    assert "no: it is switched off" in done.stdout
    lines = done.stdout.splitlines()
    assert "This machine" in lines and f"On {host.login}" in lines
    assert lines[-1].startswith("Nothing blocks; ")
    assert not any(ord(char) < 32 for line in lines for char in line)
    idle = sum("  without effect " in line for line in lines)  # as GSSAPI in the files of many systems
    assert sum("  warn  " in line for line in lines) + idle == sum("-> " in line for line in lines)
    assert "10 bytes on stdout" in done.stdout


async def test_a_host_that_floods_is_quoted_in_a_few_lines(host: Host, tmp_path: Path) -> None:
    async with serve(tmp_path / "flood", ["ForceCommand yes"]) as server:
        flooding = replace(host, server=server)
        done, found = await doctor(flooding)
        other = await flooding.command("ps")
    assert (done.code, blocking(found)) == (1, [("host", "worker")])
    said = found["host", "worker"]["found"].splitlines()
    assert len(said) < 30 and said[1].endswith("y") and "more lines" in said[-1]
    assert other.code == 76 and len(other.stderr.splitlines()) < 30
    assert gone(host)


async def test_a_host_without_python_is_described_by_its_shell(laptop: Laptop, bare_host: Sshd) -> None:
    done = await laptop.run(["doctor", "root@127.0.0.1", "--json", *bare_host.client_options()])
    found = findings(done)
    assert (done.code, blocking(found)) == (1, [("host", "Python")])
    assert "has no Python 3.9" in found["host", "Python"]["found"]
    assert "Linux" in found["host", "shell"]["found"] and "umask" in found["host", "shell"]["found"]
    assert found["connection", "login"]["state"] == "ok"


async def test_a_host_that_cannot_be_reached_still_shows_the_rest(laptop: Laptop) -> None:
    port = free_port()
    done = await laptop.run(["doctor", "somebody@127.0.0.1", "--json", "-P", str(port)])
    found = findings(done)
    assert (done.code, blocking(found)) == (1, [("connection", "reachability")])
    assert str(port) in found["connection", "reachability"]["found"]
    assert found["laptop", "provider"]["state"] == "ok"


async def test_a_changed_host_key_blocks_with_the_command_that_mends_it(host: Host, tmp_path: Path) -> None:
    options = host.server.client_options()
    other = make_key(tmp_path / "other").with_suffix(".pub").read_text(encoding="ascii")
    host.server.known_hosts.write_text(f"[127.0.0.1]:{host.server.port} {other}", encoding="ascii")
    done = await host.laptop.run(["doctor", host.login, "--json", *options])
    found = findings(done)
    assert (done.code, blocking(found)) == (1, [("connection", "host key")])
    assert f"{host.server.known_hosts}:1" in found["connection", "host key"]["found"]
    assert "ssh-keygen" in found["connection", "host key"]["fix"]


async def test_a_refused_login_names_what_was_offered(host: Host, tmp_path: Path) -> None:
    stranger = replace(host.server, identity=make_key(tmp_path / "stranger"))
    done, found = await doctor(replace(host, server=stranger))
    assert (done.code, blocking(found)) == (1, [("connection", "login")])
    assert "1 public key in files" in found["connection", "login"]["found"]
    assert found["connection", "known_hosts"]["state"] == "ok"


async def test_the_laptop_alone_is_checked_without_a_host(laptop: Laptop) -> None:
    good = findings(await laptop.run(["doctor", "--json"]))
    assert {where for where, _ in good} == {"laptop"} and not blocking(good)
    assert {name for _, name in good} == ON_LAPTOP
    done = await laptop.run(["doctor", "--json"], ANTHROPIC_API_KEY="sk-wrong-wrong")
    refused = findings(done)
    assert (done.code, blocking(refused)) == (1, [("laptop", "credential")])
    assert "refused (HTTP 401)" in refused["laptop", "credential"]["found"]
    assert "sk-wrong" not in done.stdout


async def test_secrets_of_options_and_environment_are_not_shown(host: Host, tmp_path: Path) -> None:
    way_there = f"{pipe_to(host.server.port, tmp_path).replace('exec ', '')} # --password hunter44"
    words = ["-o", "SetEnv=TOKEN=hunter22 OTHER=hunter33", "-o", way_there, "--debug"]
    env = {"HTTPS_PROXY": "http://me:hunter55@127.0.0.1:9", "ANTHROPIC_BASE_URL": "https://provider.invalid"}
    for way in ([], ["--transport", "ssh"]):
        done = await host.command("doctor", *words, *way, **env)
        assert "1 thing blocks" in done.stdout, done.stdout
        assert "setenv TOKEN=…" in done.stdout and f"proxycommand {sys.executable} …" in done.stdout
        logs = [path.read_text(encoding="utf-8") for path in (host.laptop.home / ".local/state/ccb").rglob("*.*")]
        assert logs and "hunter" not in "".join([done.stdout, done.stderr, *logs])
    for said in ("--json", "--debug"):
        done = await host.laptop.run(["doctor", said, "--transport", "false --password hunter66"])
        assert done.code == 1 and "false [redacted]" in done.stdout and "hunter" not in done.stdout
