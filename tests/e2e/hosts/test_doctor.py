"""`ccb doctor` over a real sshd: what it finds, what it makes of it, and that it goes on where something is broken."""

from __future__ import annotations

import json
import os
import pwd
import re
import socket
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.headless.test_bad_input import bare_host, gone
from tests.e2e.hosts.test_land_hosts import scene
from tests.support.hosts.sshd import HostUser, Sshd, make_key
from tests.support.hosts.sshd import sshd as serve
from tests.support.model.fake_model import API_KEY
from tests.support.network.relay import relay
from tests.support.network.silent_port import silent_port
from tests.support.person.laptop import Done, Laptop

pytestmark = pytest.mark.visited

Json = dict[str, Any]

assert bare_host  # a fixture

ON_LAPTOP = {
    "ccb", "OpenSSH", "ssh agent", "keys", "settings", "log directory", "worker bundle", "terminal", "keyring", "proxy",
    "provider", "credential", "clock",
}  # fmt: skip
ON_HOST = {
    "shell", "Pythons", "shell noise", "system", "user", "worker python", "login shell", "home", "state", "bundles",
    "temporary", "sockets", "bundle cache", "sessions", "nofile", "processes", "logout", "sshd settings", "sandbox",
    "bash", "git", "rg", "locale", "secrets", "round trip", "throughput", "clock", "MaxSessions",
}  # fmt: skip
ON_CONNECTION = {
    "address", "ssh options", "known_hosts", "keys", "reachability", "SSH server", "host key", "login",
    "pipelined login",
}  # fmt: skip


async def doctor(laptop: Laptop, user: str, server: Sshd, *words: str) -> tuple[Done, dict[tuple[str, str], Json]]:
    """The run, and its findings by place and name."""
    done = await laptop.run(["doctor", f"{user}@127.0.0.1", "--json", *server.client_options(), *words])
    return done, findings(done)


def findings(done: Done) -> dict[tuple[str, str], Json]:
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert all(set(row) == {"where", "name", "state", "found", "fix"} for row in rows)
    assert all(row["fix"] for row in rows if row["state"] in ("warn", "block"))
    return {(row["where"], row["name"]): row for row in rows}


def blocking(found: dict[tuple[str, str], Json]) -> list[tuple[str, str]]:
    return [name for name, row in found.items() if row["state"] == "block"]


@pytest.mark.visited(False)
async def test_a_good_host_is_examined_from_the_laptop_to_its_disks(
    laptop: Laptop, sshd: Sshd, host_user: HostUser
) -> None:
    done, found = await doctor(laptop, host_user.name, sshd)
    assert (done.code, done.stderr, blocking(found)) == (0, "", [])
    assert {name for where, name in found if where == "host"} >= ON_HOST
    assert {name for where, name in found if where == "connection"} >= ON_CONNECTION
    assert found["laptop", "credential"]["found"].startswith("ANTHROPIC_API_KEY")
    assert found["laptop", "credential"]["state"] == found["laptop", "provider"]["state"] == "ok"
    assert "(used)" in found["host", "Pythons"]["found"]
    assert found["host", "user"]["found"].startswith(host_user.name)
    assert found["host", "home"]["found"].startswith(str(host_user.home))
    assert "1 public key" in found["connection", "login"]["found"]
    assert "SHA256:" in found["connection", "host key"]["found"]
    assert found["host", "MaxSessions"]["found"].startswith("3 or more")
    assert f"userknownhostsfile {sshd.known_hosts}" in found["connection", "ssh options"]["found"]
    assert API_KEY not in done.stdout
    assert not list(host_user.home.iterdir()), "the doctor leaves nothing"
    assert not Path(f"/tmp/ccb-{pwd.getpwnam(host_user.name).pw_uid}").exists()
    assert gone(host_user)


async def test_people_get_a_table_with_one_way_out_for_each_warning(
    laptop: Laptop, sshd: Sshd, host_user: HostUser
) -> None:
    (host_user.home / ".bashrc").write_text("printf '\\033[31mnoise'\n", encoding="ascii")
    words = [f"{host_user.name}@127.0.0.1", *sshd.client_options(), "--no-pipelined-login"]
    done = await laptop.run(["doctor", *words])
    assert (done.code, done.stderr) == (0, "")
    assert "no: it is switched off" in done.stdout
    lines = done.stdout.splitlines()
    assert "This machine" in lines and f"On {host_user.name}@127.0.0.1" in lines
    assert lines[-1].startswith("Nothing blocks; ")
    assert not any(ord(char) < 32 for line in lines for char in line)
    idle = sum("  without effect " in line for line in lines)  # as GSSAPI in the files of many systems
    assert sum("  warn  " in line for line in lines) + idle == sum("-> " in line for line in lines)
    assert "10 bytes on stdout" in done.stdout


@pytest.mark.thorough
async def test_what_the_server_forbids_is_said_and_is_no_obstacle(
    laptop: Laptop, host_user: HostUser, tmp_path: Path
) -> None:
    strict = ["DisableForwarding yes", "MaxSessions 1"]
    async with serve(tmp_path / "strict", strict) as server:
        done, found = await doctor(laptop, host_user.name, server)
    assert (done.code, blocking(found)) == (0, [])
    assert found["host", "MaxSessions"]["found"].startswith("1 at a time")


async def test_a_host_that_floods_is_quoted_in_a_few_lines(laptop: Laptop, host_user: HostUser, tmp_path: Path) -> None:
    async with serve(tmp_path / "flood", ["ForceCommand yes"]) as server:
        done, found = await doctor(laptop, host_user.name, server)
        other = await laptop.run(["ps", f"{host_user.name}@127.0.0.1", *server.client_options()])
    assert (done.code, blocking(found)) == (1, [("host", "worker")])
    said = found["host", "worker"]["found"].splitlines()
    assert len(said) < 30 and said[1].endswith("y") and "more lines" in said[-1]
    assert other.code == 76 and len(other.stderr.splitlines()) < 30
    assert gone(host_user)


async def test_a_host_without_python_is_described_by_its_shell(laptop: Laptop, bare_host: Sshd) -> None:
    done, found = await doctor(laptop, "root", bare_host)
    assert (done.code, blocking(found)) == (1, [("host", "Python")])
    assert "has no Python 3.9" in found["host", "Python"]["found"]
    assert "Linux" in found["host", "shell"]["found"] and "umask" in found["host", "shell"]["found"]
    assert found["connection", "login"]["state"] == "ok"


@pytest.mark.visited(False)
@pytest.mark.thorough
async def test_a_home_that_cannot_be_written_is_a_warning_that_names_the_next_place(
    laptop: Laptop, sshd: Sshd, host_user: HostUser
) -> None:
    os.chown(host_user.home, 0, 0)
    host_user.home.chmod(0o555)
    done, found = await doctor(laptop, host_user.name, sshd)
    assert (done.code, blocking(found)) == (0, [])
    assert found["host", "home"]["state"] == "warn" and "Permission denied" in found["host", "home"]["found"]
    assert found["host", "bundle cache"]["found"].startswith("/tmp/ccb-")
    assert "as home; sessions are kept in /tmp/ccb-" in found["host", "state"]["found"]
    assert list(host_user.home.glob(".c*")) == []


async def test_a_host_that_cannot_be_reached_still_shows_the_rest(laptop: Laptop) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
        done = await laptop.run(["doctor", "somebody@127.0.0.1", "--json", "-P", str(port)])
    found = findings(done)
    assert (done.code, blocking(found)) == (1, [("connection", "reachability")])
    assert str(port) in found["connection", "reachability"]["found"]
    assert found["laptop", "provider"]["state"] == "ok"


async def test_a_changed_host_key_blocks_with_the_command_that_mends_it(
    laptop: Laptop, sshd: Sshd, host_user: HostUser, tmp_path: Path
) -> None:
    options = sshd.client_options()
    other = make_key(tmp_path / "other").with_suffix(".pub").read_text(encoding="ascii")
    sshd.known_hosts.write_text(f"[127.0.0.1]:{sshd.port} {other}", encoding="ascii")
    done = await laptop.run(["doctor", f"{host_user.name}@127.0.0.1", "--json", *options])
    found = findings(done)
    assert (done.code, blocking(found)) == (1, [("connection", "host key")])
    assert f"{sshd.known_hosts}:1" in found["connection", "host key"]["found"]
    assert "ssh-keygen" in found["connection", "host key"]["fix"]


async def test_known_hosts_that_cannot_be_read_are_named(laptop: Laptop, sshd: Sshd, tmp_path: Path) -> None:
    known = tmp_path / "known"
    known.mkdir()
    words = ["-P", str(sshd.port), "-i", str(sshd.identity), "-o", f"UserKnownHostsFile={known}"]
    found = findings(await laptop.run(["doctor", "root@127.0.0.1", "--json", *words]))
    assert found["connection", "known_hosts"]["state"] == "warn"
    assert f"{known} cannot be read" in found["connection", "known_hosts"]["found"]


@pytest.mark.thorough
async def test_a_key_that_nobody_verified_is_not_called_so(
    laptop: Laptop, sshd: Sshd, host_user: HostUser, tmp_path: Path
) -> None:
    words = ["-P", str(sshd.port), "-i", str(sshd.identity), "-o", f"UserKnownHostsFile={tmp_path}/new"]
    argv = ["doctor", f"{host_user.name}@127.0.0.1", "--json", *words, "-o", "StrictHostKeyChecking=accept-new"]
    first, second = findings(await laptop.run(argv)), findings(await laptop.run(argv))
    assert first["connection", "known_hosts"]["state"] == "info"
    assert first["connection", "host key"]["found"].endswith("accepted at this login")
    assert second["connection", "known_hosts"]["state"] == "ok"
    assert second["connection", "host key"]["found"].endswith("verified")
    assert first["connection", "pipelined login"]["found"].endswith("; the next login will be")
    assert second["connection", "pipelined login"]["found"].startswith("yes, ")


async def test_a_refused_login_names_what_was_offered(
    laptop: Laptop, sshd: Sshd, host_user: HostUser, tmp_path: Path
) -> None:
    stranger = replace(sshd, identity=make_key(tmp_path / "stranger"))
    done, found = await doctor(laptop, host_user.name, stranger)
    assert (done.code, blocking(found)) == (1, [("connection", "login")])
    assert "1 public key in files" in found["connection", "login"]["found"]
    assert found["connection", "known_hosts"]["state"] == "ok"


@pytest.mark.thorough
async def test_throughput_is_measured_both_ways_and_in_time(laptop: Laptop, sshd: Sshd, host_user: HostUser) -> None:
    async with relay(sshd.port, delay_s=0.05) as link:
        link.rate = 200_000
        words = ["doctor", f"{host_user.name}@127.0.0.1", "--json", *sshd.client_options(link.port)]
        found = findings(await laptop.run(words))
    said = found["host", "throughput"]["found"]
    rates = [float(rate) * 1000 for rate in re.findall(r"([\d.]+) KB/s", said)]
    assert len(rates) == 2 and all(30_000 < rate < 700_000 for rate in rates), said
    assert found["host", "round trip"]["found"].startswith("1"), "100 ms and a little"


@pytest.mark.parametrize("way", ["asyncssh", "ssh"])
async def test_a_port_that_swallows_everything_does_not_hold_it_up(way: str, laptop: Laptop) -> None:
    with silent_port() as port:
        words = [
            "doctor",
            "somebody@127.0.0.1",
            "--json",
            "-P",
            str(port),
            "-o",
            "ConnectTimeout=1",
            "--transport",
            way,
        ]
        done = await laptop.run(words)
    found = findings(done)
    assert (done.code, blocking(found)) == (1, [("connection", "reachability")])
    said = found["connection", "reachability"]["found"]
    assert "did not answer in 1 s" in said or "timed out" in said


@pytest.mark.visited(False)
@pytest.mark.thorough
async def test_a_host_with_low_limits_blocks_only_where_a_session_fails(
    laptop: Laptop, sshd: Sshd, host_user: HostUser
) -> None:
    odd = "ulimit -n 40; ulimit -f 10; export LC_ALL=xx_YY PYTHONHOME=/nowhere\n"
    (host_user.home / ".bashrc").write_text(odd, encoding="ascii")
    done, found = await doctor(laptop, host_user.name, sshd)
    assert (done.code, blocking(found)) == (0, [])
    assert found["host", "nofile"]["state"] == found["host", "file size"]["state"] == "warn"
    assert "File too large" in found["host", "bundle cache"]["found"]
    assert "not installed here" in found["host", "locale"]["found"]
    assert "(used)" in found["host", "Pythons"]["found"]
    (host_user.home / ".bashrc").write_text("ulimit -n 14\n", encoding="ascii")
    done, found = await doctor(laptop, host_user.name, sshd)
    assert (done.code, blocking(found)) == (1, [("host", "nofile")])


@pytest.mark.thorough
async def test_a_host_where_nothing_can_be_written_blocks_nothing(laptop: Laptop, tmp_path: Path) -> None:
    program = scene(tmp_path, "mount -t tmpfs -o ro tmpfs /tmp; mount -t tmpfs -o ro tmpfs /mnt/home")
    done = await laptop.run(["doctor", "box", "--json", "--transport", str(program)])
    found = findings(done)
    assert (done.code, blocking(found)) == (0, [])
    assert found["host", "sockets"]["state"] == "warn" and "in memory" in found["host", "sockets"]["found"]
    assert "Read-only file system" in found["host", "home"]["found"]
    assert found["host", "home"]["fix"].startswith("Mount it for writing")
    assert "sessions are kept in memory only" in found["host", "state"]["found"]
    assert "nothing can be stored" in found["host", "bundle cache"]["found"]
    assert "no SSH connection" in found["host", "MaxSessions"]["found"]


@pytest.mark.thorough
async def test_over_the_openssh_client_it_says_what_is_not_tried(
    laptop: Laptop, host_user: HostUser, tmp_path: Path
) -> None:
    for most in (1, 10):
        async with serve(tmp_path / f"sshd{most}", [f"MaxSessions {most}"]) as server:
            done, found = await doctor(laptop, host_user.name, server, "--transport", "ssh")
        assert (done.code, blocking(found)) == (0, [])
        for name in ("host key", "login"):
            assert found["connection", name]["found"].startswith("not checked with this transport")
        several = "1 at a time" if most == 1 else "3 or more"
        assert found["host", "MaxSessions"]["found"].startswith(several)
    assert gone(host_user)


async def test_an_option_that_only_the_openssh_client_honours_is_not_idle_over_it(laptop: Laptop) -> None:
    idle = {}
    for way in ("asyncssh", "ssh"):
        words = ["-P", "1", "-o", "VerifyHostKeyDNS=yes", "-o", "ForwardAgent=yes", "--transport", way]
        found = findings(await laptop.run(["doctor", "me@127.0.0.1", "--json", *words]))
        idle[way] = found["connection", "without effect"]
    assert "VerifyHostKeyDNS" in idle["asyncssh"]["found"] and "--transport ssh" in idle["asyncssh"]["fix"]
    assert "VerifyHostKeyDNS" not in idle["ssh"]["found"] and "ForwardAgent" in idle["ssh"]["found"]
    assert idle["ssh"]["fix"] == ""


@pytest.mark.thorough
async def test_an_ssh_with_options_of_its_own_is_described_as_it_connects(
    laptop: Laptop, sshd: Sshd, host_user: HostUser, tmp_path: Path
) -> None:
    config = tmp_path / "config"
    config.write_text(
        f"Host box\nHostName 127.0.0.1\nPort {sshd.port}\nUser {host_user.name}\nIdentityFile {sshd.identity}\n"
        f"IdentitiesOnly yes\nUserKnownHostsFile {sshd.known_hosts}\n"
    )
    done = await laptop.run(
        ["doctor", "box", "--json", "--ssh-command", f"ssh -F {config} -o ServerAliveInterval=77 -C"]
    )
    found = findings(done)
    assert (done.code, blocking(found)) == (0, [])
    assert found["connection", "address"]["found"] == f"{host_user.name}@127.0.0.1 port {sshd.port}"
    options = found["connection", "ssh options"]["found"].splitlines()
    assert {f"port {sshd.port}", "serveraliveinterval 77", "compression yes"} <= {*options}
    assert f"at {sshd.known_hosts}:1" in found["connection", "known_hosts"]["found"]
    assert str(sshd.identity) in found["connection", "keys"]["found"]
    assert " -v box true` shows what ssh tries" in found["connection", "login"]["found"]


@pytest.mark.thorough
async def test_every_jump_host_is_described_before_the_host_behind_it(
    laptop: Laptop, sshd: Sshd, host_user: HostUser, tmp_path: Path
) -> None:
    async with serve(tmp_path / "hop") as hop:
        words = ["-o", f"ProxyJump=me@127.0.0.1:{hop.port},you@localhost:{hop.port}"]
        for way in ([], ["--transport", "ssh"]):
            done, found = await doctor(laptop, host_user.name, sshd, *words, *way)
            assert done.code == 1, "the options of the command line do not speak for the jump hosts"
            places = list(dict.fromkeys(where for where, _ in found))
            assert places == ["laptop", "jump host me@127.0.0.1", "jump host you@localhost", "connection"]
            assert found[places[1], "address"]["found"] == f"me@127.0.0.1 port {hop.port}"
            assert found[places[2], "address"]["found"] == f"you@localhost port {hop.port}"
            assert found["connection", "address"]["found"].endswith("through me@127.0.0.1, you@localhost")
            assert f"no key of [127.0.0.1]:{hop.port}" in found[places[1], "known_hosts"]["found"]
            assert found["connection", "known_hosts"]["state"] == "ok"
            for where in places[1:]:
                assert found[where, "ssh options"] and found[where, "keys"]
        told = await laptop.run(["doctor", f"{host_user.name}@127.0.0.1", *sshd.client_options(), *words])
    assert "Jump host me@127.0.0.1" in told.stdout.splitlines()


async def test_of_a_command_only_the_program_is_named(laptop: Laptop, tmp_path: Path) -> None:
    program = tmp_path / "docker"
    program.write_text("#!/bin/sh\nexit 1\n", encoding="ascii")
    program.chmod(0o755)
    command = f"{program} exec -i -e PASSWORD=hunter77 web"
    done = await laptop.run(["doctor", "--transport", command])
    assert f"Connection to {program} [redacted]" in done.stdout.splitlines()
    assert "hunter" not in done.stdout


async def test_the_laptop_alone_is_checked_without_a_host(laptop: Laptop) -> None:
    good = findings(await laptop.run(["doctor", "--json"]))
    assert {where for where, _ in good} == {"laptop"} and not blocking(good)
    assert {name for _, name in good} == ON_LAPTOP
    done = await laptop.run(["doctor", "--json"], ANTHROPIC_API_KEY="sk-wrong-wrong")
    refused = findings(done)
    assert (done.code, blocking(refused)) == (1, [("laptop", "credential")])
    assert "refused (HTTP 401)" in refused["laptop", "credential"]["found"]
    assert "sk-wrong" not in done.stdout


async def test_a_provider_that_does_not_answer_and_broken_settings_both_block(laptop: Laptop) -> None:
    settings = laptop.home / ".config" / "ccb" / "settings.json"
    settings.parent.mkdir(parents=True)
    settings.write_text('{"model": 7}', encoding="utf-8")
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        done = await laptop.run(["doctor", "--json"], ANTHROPIC_BASE_URL=f"http://127.0.0.1:{closed.getsockname()[1]}")
    found = findings(done)
    assert (done.code, blocking(found)) == (1, [("laptop", "settings"), ("laptop", "provider")])
    assert found["laptop", "credential"]["state"] == "info"


PIPE = """
import os, socket, sys, threading
far = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
def down():
    for data in iter(lambda: far.recv(65536), b""):
        os.write(1, data)
    os._exit(0)
threading.Thread(target=down, daemon=True).start()
for data in iter(lambda: os.read(0, 65536), b""):
    far.sendall(data)
"""


async def test_secrets_of_options_and_environment_are_not_shown(
    laptop: Laptop, sshd: Sshd, host_user: HostUser, tmp_path: Path
) -> None:
    (tmp_path / "pipe.py").write_text(PIPE, encoding="ascii")
    command = f"{sys.executable} {tmp_path}/pipe.py %p # --password hunter44"
    words = ["-o", "SetEnv=TOKEN=hunter22 OTHER=hunter33", "-o", f"ProxyCommand={command}", "--debug"]
    argv = ["doctor", f"{host_user.name}@127.0.0.1", *sshd.client_options(), *words]
    proxy = "http://me:hunter55@127.0.0.1:9"
    for way in ([], ["--transport", "ssh"]):
        done = await laptop.run([*argv, *way], HTTPS_PROXY=proxy, ANTHROPIC_BASE_URL="https://provider.invalid")
        assert "1 thing blocks" in done.stdout, done.stdout
        assert "setenv TOKEN=…" in done.stdout and f"proxycommand {sys.executable} …" in done.stdout
        logs = [path.read_text(encoding="utf-8") for path in (laptop.home / ".local/state/ccb").rglob("*.*")]
        assert logs and "hunter" not in "".join([done.stdout, done.stderr, *logs])
    for said in ("--json", "--debug"):
        done = await laptop.run(["doctor", said, "--transport", "false --password hunter66"])
        assert done.code == 1 and "false [redacted]" in done.stdout and "hunter" not in done.stdout
