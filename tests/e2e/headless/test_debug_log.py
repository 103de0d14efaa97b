"""`--debug` writes a log that may be posted in public: whole sessions run, and nothing private is in their logs."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path

import pytest
from tests.e2e.hosts.test_secrets import NONCE
from tests.support.hosts.host_search import processes
from tests.support.hosts.reached_host import Host
from tests.support.machine.processes import memory_of
from tests.support.machine.programs import shell_script
from tests.support.machine.waiting import until
from tests.support.model.fake_model import API_KEY
from tests.support.model.model_script import uses
from tests.support.person.laptop import STDIO, Here, Laptop, user_message

pytestmark = pytest.mark.visited

PROMPT = "PROMPT-9d1f please mend the PROMPT-9d1f words"
CONTENT = "CONTENT-77aa is what the file says"
CHANGED = "CHANGED-31ce is what it says now"
OUTPUT = "OUTPUT-c0de"
ANSWER = "ANSWER-5b5b I have mended it"
SYSTEM = "SYSTEM-e4e4 be brief"
RULES = "RULES-8888 of the project"
REASON = "REASON-1212 not that one"
PRIVATE = [each.split()[0] for each in (PROMPT, CONTENT, CHANGED, OUTPUT, ANSWER, SYSTEM, RULES, REASON)]


FILES = {"note.txt": f"{CONTENT}\n", "CLAUDE.md": f"{RULES}\n"}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    path = tmp_path / "project"
    path.mkdir()
    for name, text in FILES.items():
        (path / name).write_text(text)
    return path


def the_log(laptop: Laptop) -> str:
    files = sorted((laptop.home / ".local" / "state" / "ccb").glob("ccb-*.log*"))
    assert files, "--debug wrote a log"
    return "\n".join(path.read_text(encoding="utf-8") for path in files)


def assert_public(log: str, *more: str) -> None:
    """Nothing private, as it is, encoded as in JSON or base64, and no long line that could hide it."""
    for text in (*PRIVATE, API_KEY, *more):
        assert text not in log, f"{text} is in the log"
    assert not re.search(r"[A-Za-z0-9+/]{400}", log), "something long and encoded"
    assert max(map(len, log.splitlines())) < 2500


async def test_a_session_over_ssh_with_tools_an_approval_a_denial_and_a_lost_connection(host: Host) -> None:
    for name, text in FILES.items():
        host.put(f"shop/{name}", text.encode())
    directory, note = host.home / "shop", str(host.home / "shop/note.txt")
    host.model.add(uses("Read", file_path=note), uses("Edit", file_path=note, old_string=CONTENT, new_string=CHANGED))
    host.model.add(uses("Bash", command="printf '%s%s\\n' OUTPUT -c0de"), uses("Bash", command="rm -r somewhere"))
    host.model.add({"text": ANSWER})
    argv = host.ssh("--debug", "-p", *STDIO, "--append-system-prompt", SYSTEM, path=str(directory))
    nonces: set[str] = set()
    async with host.laptop.start(argv) as running:
        await running.send(user_message(PROMPT))
        for number in range(2):
            asked = await running.until("control_request")
            nonces |= {
                found.decode()
                for process in processes(host.user)
                for found in NONCE.findall(memory_of(int(process.name)))
            }
            if number == 0:
                server = next(each for each in processes(host.user) if b"sshd" in (each / "cmdline").read_bytes())
                os.kill(int(server.name), signal.SIGKILL)
                await until(lambda: the_log(host.laptop).count("attached as") > 1)
            deny = {"behavior": "deny", "message": REASON}
            allow = {"behavior": "allow", "updatedInput": asked["request"]["input"]}
            await running.reply(asked, deny if number == 1 else allow)
        result = await running.until("result")
        done = await running.finish()
    assert (done.code, result["result"]) == (0, ANSWER)
    sent = str(host.model.requests[-1].messages)
    assert all(text in sent for text in ("PROMPT-9d1f", "CONTENT-77aa", OUTPUT, "REASON-1212")), "all of it was there"
    assert nonces
    log = the_log(host.laptop)
    assert_public(log, *nonces)
    assert "attached" in log and "link" in log, "and yet it tells what happened"


async def test_a_session_of_the_terminal_interface(here: Here) -> None:
    here.model.add(uses("Read", file_path=str(here.project / "note.txt")), {"text": ANSWER})
    async with here.on_terminal("--debug") as running:
        await running.shows("F1 or /help")
        running.type(PROMPT + "\r")
        await running.shows("ANSWER-5b5b")
        running.type("\x04")
        await running.shows("--resume")
        assert await running.ended() == 0
    assert_public(the_log(here.laptop))


async def test_runs_that_fail(here: Here) -> None:
    done = await here.run("--debug", "-p", PROMPT, ANTHROPIC_API_KEY="sk-wrong-wrong-wrong")
    assert (done.code, "sk-wrong" in done.stdout + done.stderr) == (77, False)
    here.laptop.settings(apiKeyHelper="echo HELPER-4242 >&2; exit 1")
    done = await here.run("--debug", "-p", PROMPT, ANTHROPIC_API_KEY="")
    assert (done.code, "HELPER-4242" in done.stderr) == (77, True)
    assert_public(the_log(here.laptop), "sk-wrong", "HELPER-4242")
    assert "CredentialError" in the_log(here.laptop)


async def test_ways_to_a_host_that_hold_secrets(host: Host, tmp_path: Path) -> None:
    fails = shell_script(tmp_path / "fails", "echo SAID-BY-IT >&2\nexit 7")
    goes = shell_script(tmp_path / "goes", 'shift 2\nexec "$@"')
    login, options = host.login, host.server.client_options()
    broken = ["-o", "ProxyCommand=echo SAID-BY-IT >&2; exit 3 # HUNTER-22"]
    runs: list[tuple[list[str], int]] = [
        (["ps", "--transport", f"{fails} -p HUNTER-22"], 69),
        (["ps", "--transport", f"{goes} -p HUNTER-22"], 0),
        (["ps", "--transport", "no-such-program -p HUNTER-22"], 2),
        (["ps", login, "--ssh-command", f"{fails} --token HUNTER-22"], 69),
        (["ps", login, *options, *broken], 69),
        (["ps", login, *options, *broken, "--transport", "ssh"], 69),
        (["ps", login, *options, "-o", "SetEnv=X=HUNTER-22"], 0),
        (["ps", login, *options, "-o", "SetEnv=X=HUNTER-22", "--transport", "ssh"], 0),
    ]
    for argv, code in runs:
        done = await host.laptop.run([*argv, "--debug"])
        assert done.code == code, (argv, done.stderr)
        assert_public(the_log(host.laptop), "HUNTER-22", "SAID-BY-IT")
    assert "[redacted]" in the_log(host.laptop)


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("ANTHROPIC_BASE_URL", "https://me:HUNTER-22@provider.invalid"),
        ("ANTHROPIC_BASE_URL", "https://me:HUNTER-22@provider.invalid:port/"),
        ("HTTPS_PROXY", "http://me:HUNTER-22@127.0.0.1:port"),
        ("HTTPS_PROXY", "http://HUNTER-22@127.0.0.1:9"),
    ],
)
async def test_logins_in_urls(variable: str, value: str, laptop: Laptop, project: Path) -> None:
    there = Laptop(laptop.home, {**laptop.env, "ANTHROPIC_BASE_URL": "https://provider.invalid", variable: value})
    done = await there.run(["doctor", "--debug"])
    assert done.code == 1 and "HUNTER-22" not in done.stdout + done.stderr
    if variable == "ANTHROPIC_BASE_URL":
        done = await there.run([str(project), "--debug", "-p", PROMPT])
        assert done.code == 78 and "HUNTER-22" not in done.stderr
    if (laptop.home / ".local" / "state" / "ccb").exists():
        assert_public("\n".join(each.read_text() for each in laptop.home.rglob("ccb-*.log*")), "HUNTER-22")
