"""The policy of a laptop's owner, in its real place: what a person without root tries gets around none of its keys."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.support.acp_client import AcpError, acp
from tests.support.forking.process import start_process
from tests.support.hosts.reached_host import Host
from tests.support.machine.programs import shell_script
from tests.support.model.fake_model import FakeModel
from tests.support.person.laptop import STDIO, STREAM, Laptop, Running, tidy_laptop, user_message

pytestmark = pytest.mark.visited

Json = dict[str, Any]
_IN_PLACE = """
import ctypes, sys
from runpy import run_module
kernel = ctypes.CDLL(None, use_errno=True)
layers = f"lowerdir={sys.argv.pop(1)}:/etc".encode()
for failed in (
    kernel.unshare(0x20000),  # CLONE_NEWNS
    kernel.mount(b"none", b"/", None, 0x44000, None),  # MS_REC | MS_PRIVATE
    kernel.mount(b"overlay", b"/etc", b"overlay", 0, layers),
):
    assert not failed, ctypes.get_errno()
"""
"""Puts the policy in its place for this process and what it starts."""
LOOSE: Json = {
    "policy": {"remoteOnly": False, "hosts": ["*"], "commands": ["*"], "providers": ["*"]},
    "budgets": {"dayUsd": 1000.0, "hosts": {"*": {"dayUsd": 1000.0}}},
    "modelCalls": {"models": ["*"], "hosts": {"*": {"models": ["*"]}}},
    "permissions": {"allow": ["Bash(*)"], "deny": []},
}
"""What a person writes to be rid of a policy."""


@dataclass(frozen=True)
class PolicedLaptop(Laptop):
    """A laptop with an /etc/ccb/policy.json, in a mount namespace for each run. The settings of the person and the
    variables that move files do what they can against it."""

    etc: Path

    def under(self, **policy: object) -> PolicedLaptop:
        return self.with_file({"policy": policy})

    def with_file(self, content: Json) -> PolicedLaptop:
        (self.etc / "ccb" / "policy.json").write_text(json.dumps(content))
        return self

    @asynccontextmanager
    async def start(
        self, argv: Sequence[str], *, piped: bool = True, program: str = "", **env: str
    ) -> AsyncIterator[Running]:
        words = ["-c", _IN_PLACE + (program or "run_module('ccb', run_name='__main__')"), str(self.etc), *argv]
        process = await start_process(
            "ccb", words, stdin=asyncio.subprocess.PIPE if piped else asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
            env={**self.env, **env}, cwd=self.home, limit=1 << 24,
        )  # fmt: skip
        try:
            yield Running(process)
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()


@pytest.fixture
def laptop(tmp_path: Path, fake_model: FakeModel) -> Iterator[PolicedLaptop]:
    (tmp_path / "etc" / "ccb").mkdir(parents=True)
    with tidy_laptop(tmp_path, fake_model.url) as made:
        made.settings(**LOOSE)
        elsewhere = {f"XDG_{name}_HOME": str(tmp_path / "mine" / name) for name in ("STATE", "CACHE", "DATA")}
        yield PolicedLaptop(made.home, {**made.env, **elsewhere}, tmp_path / "etc")


ANYWAY = ["--settings", json.dumps(LOOSE)]


@pytest.mark.parametrize(
    ("policy", "words", "says"),
    [
        ({"remoteOnly": True}, [".", "-p", "hi"], "sessions on this machine (remoteOnly)"),
        ({"remoteOnly": True}, ["--local", "-p", "hi"], "sessions on this machine (remoteOnly)"),
        ({"remoteOnly": True}, ["ps", "--local"], "sessions on this machine (remoteOnly)"),
        ({"remoteOnly": True}, ["ssh", ".", "--local", "--container", "web", "-p", "hi"], "sessions on this machine"),
        ({"remoteOnly": True}, ["ssh", "/tmp", "--transport", "sh -c", "-p", "hi"], "made by 'sh -c' (commands)"),
        ({"remoteOnly": True}, ["ssh", "h", "--ssh-command", "wrapped", "-p", "hi"], "made by 'wrapped' (commands)"),
        ({"remoteOnly": True}, ["ssh", "localhost", "-p", "hi"], "localhost, which is this machine (remoteOnly)"),
        ({"remoteOnly": True}, ["ssh", "fair", "-p", "hi"], "127.0.0.1, which is this machine (remoteOnly)"),
        ({"remoteOnly": True}, ["ssh", "fair", "-o", "ProxyJump=fair", "-p", "hi"], "127.0.0.1, which is this machine"),
        ({"hosts": ["fair"]}, ["ssh", "fair", "-p", "hi"], "the host 127.0.0.1 (hosts)"),
        ({"hosts": ["fair"]}, ["ps", "fair"], "the host 127.0.0.1 (hosts)"),
        ({"hosts": ["fair"]}, ["cp", "fair:/etc/passwd", "."], "the host 127.0.0.1 (hosts)"),
        ({"hosts": ["f*"], "commands": ["ssh"]}, ["ssh", "fair", "--transport", "ssh", "-p", "x"], "OpenSSH beside"),
        ({"remoteOnly": True}, ["ssh", "fair", "--ssh-command", "/usr/bin/ssh -v", "-p", "x"], "OpenSSH beside"),
        ({"hosts": ["fair"]}, ["ssh", "fair", "-o", "HostName=evil", "-p", "hi"], "the host evil (hosts)"),
        ({"hosts": ["hopping"]}, ["ssh", "hopping", "-p", "hi"], "the host evil (hosts)"),
        ({"hosts": ["piped"]}, ["ssh", "piped", "-p", "hi"], "made by 'nc evil 22' (commands)"),
    ],
)
async def test_no_way_leads_to_another_host(
    laptop: PolicedLaptop, host: Host, tmp_path: Path, policy: Json, words: list[str], says: str
) -> None:
    config, bin = tmp_path / "config", tmp_path / "bin"
    config.write_text(
        "Host fair\n HostName 127.0.0.1\nHost piped\n ProxyCommand nc evil 22\nHost hopping\n ProxyJump evil\n"
    )
    shell_script(bin / "ssh", f'exec {shutil.which("ssh")} -F {config} "$@"')  # ssh finds no other home than root's
    anyway = ANYWAY if "-p" in words else []
    done = await laptop.under(**policy).run([*words, *anyway], PATH=f"{bin}:{host.laptop.env['PATH']}")
    assert done.refuses(78 if "ps" not in words else done.code, says), done


@pytest.mark.parametrize(
    ("policy", "words", "says"),
    [
        ({"remoteOnly": True}, "ports --local", "sessions on this machine (remoteOnly)"),
        ({"remoteOnly": True}, "send hi text --local", "sessions on this machine (remoteOnly)"),
        ({"remoteOnly": True}, "export --local", "sessions on this machine (remoteOnly)"),
        ({"remoteOnly": True}, "dash --json local", "sessions on this machine (remoteOnly)"),
        ({"remoteOnly": True}, "fleet run local -p hi", "sessions on this machine (remoteOnly)"),
        ({"remoteOnly": True}, "fleet submit --kubernetes c --job x -p hi", "kubectl --context=c exec -i pod/POD"),
        ({"hosts": ["fair"]}, "ports HOST", "the host 127.0.0.1 (hosts)"),
        ({"hosts": ["fair"]}, "send HOST:hi text", "the host 127.0.0.1 (hosts)"),
        ({"hosts": ["fair"]}, "export HOST", "the host 127.0.0.1 (hosts)"),
        ({"hosts": ["fair"]}, "trust HOST:~", "the host 127.0.0.1 (hosts)"),
        ({"hosts": ["fair"]}, "dash --json HOST", "the host 127.0.0.1 (hosts)"),
        ({"hosts": ["fair"]}, "fleet run HOST:~ -p hi", "the host 127.0.0.1 (hosts)"),
        ({"hosts": ["fair"]}, "fleet submit --slurm HOST:~ -p hi", "the host 127.0.0.1 (hosts)"),
        ({"directories": ["/srv"]}, "fleet run HOST:~ -p hi", "sessions in"),
        ({"sandbox": "workspace"}, "fleet run HOST:~ -p hi --dangerously-skip-permissions", "bypassPermissions"),
        ({"providers": ["anthropic"]}, "fleet run HOST:~ -p hi", "model calls to 127.0.0.1 (providers)"),
        ({}, "fleet run HOST:~ -p hi --agent gemini", "the agent gemini"),
    ],
)
async def test_no_other_command_leads_around_it(
    laptop: PolicedLaptop, host: Host, policy: Json, words: str, says: str
) -> None:
    far = host.server.client_options() if "HOST" in words else []
    argv = [each.replace("HOST", host.login) for each in words.split()]
    done = await laptop.under(**policy).run([*argv, *far], PATH=host.laptop.env["PATH"])
    assert done.code in (1, 2, 78) and says in done.stdout + done.stderr and "not allow" in done.stdout + done.stderr, (
        done
    )
    assert not host.model.requests


async def test_a_session_of_before_goes_on_under_it(laptop: PolicedLaptop, host: Host) -> None:
    host.model.add({"text": "hello"}, {"text": "again"})
    assert (await laptop.with_file({}).run([*host.ssh("-p", "hi")])).code == 0
    flags = ["--continue", "--sandbox", "off", "--permission-mode", "acceptEdits", "--model", "opus", *STREAM]
    laptop.with_file({"sandbox": "read-only", "model": "haiku", "permissions": {"defaultMode": "plan"}})
    done = await laptop.run(host.ssh("-p", "go on", *flags))
    (init,) = [each for each in done.messages if each.get("subtype") == "init"]
    found = init["model"], init["permissionMode"], init["sandbox"]
    assert found == ("claude-haiku-4-5", "plan", "read-only cage"), found


async def test_an_allowed_host_and_directory_work_and_others_do_not(laptop: PolicedLaptop, host: Host) -> None:
    host.model.add({"text": "hello"})
    host.put("app")
    policy = {"hosts": ["127.0.0.*"], "directories": [f"{host.home}/app"]}
    done = await laptop.under(**policy).run([*host.ssh("-p", "hi", path="~/app")])
    assert (done.code, done.stdout) == (0, "hello\n"), done
    (host.home / "app" / "out").symlink_to(host.home)
    for path in ("~", "~/app/out", "~/app/..", "/"):
        done = await laptop.under(**policy).run([*host.ssh("-p", "hi", *ANYWAY, path=path)])
        assert done.code in (2, 78) and "does not allow sessions in" in done.stderr, (path, done)
    told = ["send", f"{host.login}:hi", "go on", *host.server.client_options()]
    refused = await laptop.under(directories=["/srv"]).run([*told])
    assert refused.refuses(78, "does not allow sessions in"), refused


async def test_no_session_moves_to_another_host_or_directory(laptop: PolicedLaptop, host: Host, tmp_path: Path) -> None:
    host.model.add({"text": "hello"})
    began = await laptop.with_file({}).run([str(laptop.home), "-p", "hi", "--output-format", "json"])
    session, far = json.loads(began.stdout)["session_id"], host.server.client_options()
    host.put("app")
    (host.home / "app" / "out").symlink_to(host.home)
    move = ["move", "--local", session]
    for path in ("~", "app/out"):
        laptop.under(directories=[f"{host.home}/app"])
        away = await laptop.run([*move, f"{host.login}:{path}", "--no-files", *far])
        assert away.refuses(78, "does not allow sessions in"), away
    for policy in ({"hosts": ["fair"]}, {"remoteOnly": True}):
        away = await laptop.under(**policy).run([*move, f"{host.login}:app", "--no-files", *far])
        assert away.refuses(78, "does not allow"), away


async def test_no_other_provider_and_no_other_model_is_asked(laptop: PolicedLaptop, host: Host) -> None:
    url = host.laptop.env["ANTHROPIC_BASE_URL"]
    given = {"providers": {"anthropic": {"baseUrl": url}, "mine": {"kind": "compatible", "baseUrl": url}}}
    mine = ["--settings", json.dumps(given)]
    for words in ([], ["--model", "mine/gpt-5"], ["--model", "anthropic/claude-opus-4-1"]):
        done = await laptop.under(providers=["anthropic"]).run(host.ssh("-p", "hi", *words, *mine))
        assert done.refuses(78, "does not allow model calls to 127.0.0.1 (providers)")
    haiku: Json = {"modelCalls": {"models": ["claude-haiku-*"]}, "policy": {"providers": ["127.0.0.1"]}}
    alias = json.dumps({"modelAliases": {"claude-haiku-mine": "claude-opus-4-1"}})
    for words in (["--model", "opus"], ["--model", "claude-haiku-mine", "--settings", alias]):
        assert "does not allow" in (await laptop.with_file(haiku).run([*host.ssh("-p", "hi", *words)])).stderr.replace(
            "do not", "does not"
        )
    ask = {"subtype": "set_model", "model": "claude-opus-4-1"}
    lines = [{"type": "control_request", "request_id": "r", "request": ask}, user_message("hi")]
    stdin = b"".join(json.dumps(each).encode() + b"\n" for each in lines)
    done = await laptop.with_file(haiku).run([*host.ssh("-p", *STDIO, "--model", "haiku")], stdin=stdin)
    assert "do not allow the model 'claude-opus-4-1'" in done.stdout, done
    assert not host.model.requests


@pytest.mark.quick_rows(5)
@pytest.mark.parametrize(
    "words",
    [
        ["--dangerously-skip-permissions"],
        ["--permission-mode", "bypassPermissions"],
        ["--allow-dangerously-skip-permissions"],
        ["--settings", '{"permissionMode": "bypassPermissions"}'],
        ["--settings", '{"permissions": {"defaultMode": "bypassPermissions", "disableBypassPermissionsMode": null}}'],
        ["--setting-sources", "", "--dangerously-skip-permissions"],
        ["--remote-bin", "claude --dangerously-skip-permissions"],
        ["--agent", "acp:evil --yolo"],
    ],
)
async def test_a_wanted_sandbox_allows_no_bypass_and_no_agent_that_knows_none(
    laptop: PolicedLaptop, host: Host, words: list[str]
) -> None:
    done = await laptop.under(sandbox="workspace").run([*host.ssh("-p", "hi", *words)])
    assert done.code in (2, 78) and ("not allow" in done.stderr), done
    assert not host.model.requests


@pytest.mark.parametrize("words", [["--sandbox", "off"], ["--settings", '{"sandbox": "off"}']])
async def test_the_wanted_cage_holds_whatever_is_asked_for(laptop: PolicedLaptop, host: Host, words: list[str]) -> None:
    host.model.add({"text": "hello"})
    done = await laptop.under(sandbox="read-only").run(host.ssh("-p", "hi", *words, *STREAM))
    (init,) = [each for each in done.messages if each.get("subtype") == "init"]
    assert init["sandbox"] == "read-only cage", init


async def test_a_budget_and_its_ledger_are_not_moved(
    laptop: PolicedLaptop, host: Host, tmp_path: Path, fake_model: FakeModel
) -> None:
    ledger, got = tmp_path / "ledger", tmp_path / "rows"
    taker = shell_script(tmp_path / "take", f"env > {tmp_path}/env; cat >> {got}")
    shell_script(tmp_path / "mine" / "cat", "exit 0")
    policy = {"budgets": {"dayUsd": 0.000_001}, "ledger": str(ledger), "ledgerCommand": [str(taker)]}
    free = {"providers": {"anthropic": {"models": {"claude-opus-4-1": {"inputPrice": 0.0, "outputPrice": 0.0}}}}}
    fake_model.add({"text": "first"}, {"text": "second"}, {"text": "third"})
    path = f"{tmp_path}/mine:{host.laptop.env['PATH']}"
    first = await laptop.under(**policy).run([*host.ssh("-p", "hi", "--model", "claude-opus-4-1")], PATH=path)
    assert first.stdout == "first\n", first
    rows = [json.loads(line) for line in got.read_text().splitlines()]
    assert [(row["model"], row["host"]) for row in rows] == [("claude-opus-4-1", host.login)]
    assert "ANTHROPIC" not in (tmp_path / "env").read_text() and "XDG" not in (tmp_path / "env").read_text()
    words = ["--max-budget-usd", "100", "--settings", json.dumps(free), "--model", "claude-opus-4-1"]
    second = await laptop.under(**policy).run([*host.ssh("-p", "hi", *words)], XDG_STATE_HOME=str(tmp_path / "new"))
    assert "budget of the day is used up" in second.stdout + second.stderr, second
    assert len(fake_model.requests) == 1
    shown = await laptop.under(**policy).run(["usage"], XDG_STATE_HOME=str(tmp_path / "newer"))
    assert "1 call" in shown.stdout or " 1 " in shown.stdout, shown


async def test_what_is_older_than_a_policy_keeps_is_removed(laptop: PolicedLaptop, host: Host, tmp_path: Path) -> None:
    ledger = tmp_path / "ledger"
    laptop.under(ledger=str(ledger))
    host.model.add({"text": "first"}, {"text": "second"})
    await laptop.run(host.ssh("-p", "--record", "a secret of the first"))
    (journal,) = host.home.rglob("journal.jsonl")
    assert list(ledger.glob("recorded/*/*"))
    await host.command("stop", "--all")
    laptop.under(ledger=str(ledger), retentionDays=0.000_001)
    second = await laptop.run(host.ssh("-p", "of the second"))
    assert second.stdout == "second\n", second
    assert not journal.exists() and not list(ledger.glob("recorded/*/*"))
    base = (ledger / "ledger.sqlite3").read_bytes() + b"".join(each.read_bytes() for each in ledger.glob("*-wal"))
    assert b"a secret of the first" not in base


_PROGRAM = """
import asyncio, json, sys, ccb

async def main():
    for target, host, session in json.loads(sys.argv[1]):
        try:
            async with ccb.connect(target, **host) as there, await there.session(**session):
                print("opened", target)
        except ccb.CcbError as error:
            print(error.what)

asyncio.run(main())
"""


async def test_programs_and_editors_are_held_as_the_terminal_is(laptop: PolicedLaptop, host: Host) -> None:
    way = {"port": host.server.port, "identity_file": str(host.server.identity)}
    way["ssh_options"] = [f"UserKnownHostsFile={host.server.trust(host.server.port)}", "IdentitiesOnly=yes"]
    policy = {
        "remoteOnly": True,
        "commands": [],
        "sandbox": "read-only",
        "directories": ["/srv"],
        "hosts": ["127.0.0.2"],
    }
    tried = [[".", {}, {}], [f"{host.login}:~", way, {}], ["h:/srv", {"transport": "sh -c"}, {}]]
    done = await laptop.under(**policy).run([json.dumps(tried)], program=_PROGRAM)
    assert [line.rpartition("(")[2] for line in done.stdout.splitlines()] == ["remoteOnly)", "hosts)", "commands)"], (
        done
    )
    del policy["hosts"], policy["remoteOnly"]
    ways = [{"permission_mode": "bypassPermissions"}, {}]
    tried = [[f"{host.login}:~", way, session] for session in ways]
    done = await laptop.under(**policy).run([json.dumps(tried)], program=_PROGRAM)
    said = ["bypassPermissions", "(directories)"]
    assert all(word in line for word, line in zip(said, done.stdout.splitlines(), strict=True)), done
    laptop.under(hosts=["127.0.0.2"])
    async with acp(laptop, [f"{host.login}:~", *host.server.client_options()]) as editor:
        await editor.initialize()
        with pytest.raises(AcpError, match=r"the host 127.0.0.1 \(hosts\)"):
            await editor.new(laptop.home)
    marker = laptop.home / "started"
    server = {"name": "mine", "command": "/bin/sh", "args": ["-c", f"touch {marker}"], "env": []}
    laptop.under(mcpServers=["/usr/bin/ok"], sandbox="workspace")
    async with acp(laptop, [f"{host.login}:~", *host.server.client_options()]) as editor:
        await editor.initialize()
        session = await editor.new(laptop.home, mcpServers=[server])
        with pytest.raises(AcpError, match="Cannot set permission mode to bypassPermissions"):
            await editor.call("session/set_mode", sessionId=session, modeId="bypassPermissions")
        assert not marker.exists()
