"""`ccb ps`, `logs`, `stop`, `gc`, `clean` and the choice of a session, as a person types them, over a real sshd."""

from __future__ import annotations

import json
import shlex
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import pytest
from tests.support.hosts.reached_host import Host
from tests.support.machine.processes import processes_of
from tests.support.machine.waiting import until
from tests.support.model.fake_model import FakeModel
from tests.support.model.model_script import uses
from tests.support.person.laptop import STDIO, Running, user_message
from tests.support.person.terminal import Terminal

pytestmark = pytest.mark.visited

EVIL = "\x1b]2;owned\x07\x1b[31mdelete\r\neverything\x9b1m"


@asynccontextmanager
async def asking(host: Host, prompt: str, path: str = "~") -> AsyncIterator[tuple[Running, str]]:
    """A session that waits for an approval, and its id."""
    argv = host.ssh("-p", *STDIO, "--reconnect-timeout", "0", path=path)
    async with host.laptop.start(argv) as running:
        await running.send(user_message(prompt))
        session = (await running.until("system", "init"))["session_id"]
        await running.until("control_request")
        yield running, session


async def ended(host: Host, prompt: str, path: str = "~") -> str:
    """A session that has had one turn; its id."""
    done = await host.run("-p", prompt, "--output-format", "json", path=path)
    assert done.code == 0, done.stderr
    await until(lambda: not processes_of(host.user))
    return str(json.loads(done.stdout)["session_id"])


def terminal(host: Host, command: str, *words: str) -> AbstractAsyncContextManager[Terminal]:
    return host.laptop.on_terminal(command, host.login, *words, *host.server.client_options())


def ask_once(model: FakeModel) -> None:
    model.add({**uses("Bash", command="touch made"), "times": 0})


def is_plain(text: str) -> bool:
    return not any((ord(char) < 32 and char != "\n") or 127 <= ord(char) < 160 for char in text)


async def test_ps_shows_what_waits_and_what_has_ended_the_last_used_first(host: Host) -> None:
    host.model.add({"text": "An answer.", "when": {"user_contains": "explain"}, "times": 0})
    old = await ended(host, "explain this")
    ask_once(host.model)
    path = str(host.put("shop"))
    async with asking(host, EVIL, path=path) as (_, session):
        table = await host.command("ps")
        rows = await host.command("ps", "--json")
        head, first, second = table.stdout.splitlines()
        assert (table.code, table.stderr) == (0, "")
        assert head.split() == ["ID", "STATE", "AGE", "IDLE", "RSS", "DRIVER", "PATH", "TITLE"]
        assert first.split()[:2] == [session[:8], "asks"] and second.split()[:2] == [old[:8], "ended"]
        assert "M  " in first and "shop" in first and "everything" in first and "explain this" in second
        assert is_plain(table.stdout) and is_plain(rows.stdout)
        listed = [json.loads(line) for line in rows.stdout.splitlines()]
        assert [(row["session"], row["state"], row["alive"]) for row in listed] == [
            (session, "requires_action", True),
            (old, "ended", False),
        ]
        assert (listed[0]["cwd"], listed[0]["prompts"]) == (path, 1)
        assert listed[0]["rss"] > 1_000_000 and listed[0]["driver"] and listed[0]["pid"]


async def test_logs_tell_what_a_session_did(host: Host) -> None:
    host.model.add({"text": "It is a shop \x1b[31min red."})
    session = await ended(host, "what is this?")
    done = await host.command("logs", session[:8])
    assert (done.code, done.stderr) == (0, "")
    assert "what is this?" in done.stdout and "It is a shop" in done.stdout
    assert is_plain(done.stdout)
    last = await host.command("logs", session, "-n", "1")
    assert last.stdout.splitlines() == done.stdout.splitlines()[-1:]


async def test_stop_ends_the_worker_and_says_so_once(host: Host) -> None:
    ask_once(host.model)
    async with asking(host, "go") as (_, session):
        stopped = await host.command("stop", session[:8])
        assert (stopped.code, stopped.stderr) == (0, "")
        assert stopped.stdout.startswith(f"stopped {session} (")
        await until(lambda: not processes_of(host.user))
    again = await host.command("stop", session)
    assert (again.code, again.stdout) == (0, f"{session} was not running\n")
    every = await host.command("stop", "--all")
    assert (every.code, every.stdout) == (0, f"No session runs on {host.login}.\n")


async def test_without_an_id_it_is_the_only_session_else_they_are_listed(host: Host) -> None:
    assert (await host.command("logs")).code == 1 and (await host.command("stop")).code == 0
    host.model.add({"text": "An answer.", "when": {"user_contains": "explain"}, "times": 0})
    old = await ended(host, "explain this")
    assert "explain this" in (await host.command("logs")).stdout
    last = await ended(host, "explain that", path=str(host.put("shop")))
    several = await host.command("logs")
    assert (several.code, several.stdout) == (2, "")
    assert "2 sessions" in several.stderr and old[:8] in several.stderr and last[:8] in several.stderr
    assert (await host.command("resume", "-p", "explain more")).stdout == "An answer.\n"
    assert [row["prompts"] for row in await listed(host)] == [2, 1]
    ask_once(host.model)
    async with asking(host, "go") as (_, session):
        assert "prompt: go" in (await host.command("logs")).stdout
        stopped = await host.command("stop")
        assert (stopped.code, stopped.stdout.partition(" (")[0]) == (0, f"stopped {session}")


async def listed(host: Host) -> list[dict[str, object]]:
    return [json.loads(line) for line in (await host.command("sessions", "--json")).stdout.splitlines()]


@pytest.mark.parametrize("words", [("attach",), ("attach", "--view"), ("ssh", "--resume"), ("ssh", "-c")])
@pytest.mark.quick_rows(2)
async def test_a_host_without_any_session_is_named_with_code_1(host: Host, words: tuple[str, ...]) -> None:
    async with terminal(host, *words) as running:
        assert await running.ended() == 1
        assert f"ccb: {host.login}: there " in running.text.replace("“", "") and "  -> `ccb " in running.text


@pytest.mark.visited(False)
@pytest.mark.thorough
async def test_clean_asks_on_a_terminal(host: Host) -> None:
    ask_once(host.model)
    async with asking(host, "go") as (_, session):
        unasked = await host.command("clean")
        assert (unasked.code, unasked.stdout) == (2, "") and "--yes" in unasked.stderr
        tried = await host.command("clean", "--dry-run")
        assert tried.code == 0 and f"would stop {session}" in tried.stdout
        async with terminal(host, "clean") as running:
            await running.shows("(yes/no)")
            running.type("no\n")
            assert await running.ended() == 2
            assert "nothing was removed" in running.text
        async with terminal(host, "clean") as running:
            await running.shows("(yes/no)")
            running.type("\x03")
            assert await running.ended() == 130
        assert processes_of(host.user)
        async with terminal(host, "clean") as running:
            await running.shows("(yes/no)")
            running.type("yes\n")
            assert await running.ended() == 0, running.text
            assert f"stopped {session}" in running.text and "removed bundle" in running.text
    again = await host.command("clean", "--yes")
    assert again.code == 0 and again.stdout.splitlines()[-1].startswith("removed ")


@pytest.mark.parametrize("form", ["text", "json"])
@pytest.mark.quick_rows(1)
async def test_a_run_that_cannot_be_asked_leaves_a_session_alone_that_asks(host: Host, form: str) -> None:
    ask_once(host.model)
    async with asking(host, "make it") as (driver, session):
        run = await host.run("-c", "-p", "hello", "--output-format", form)
        what = "this session waits for an answer about Bash"
        assert run.code == 3, run.stderr
        assert run.stderr.splitlines() == [
            f"ccb: {host.login}: “{what}”",
            f"  -> Answer it with `ccb attach {host.login} {session}`, "
            f"or end it with `ccb stop {host.login} {session}`.",
        ]
        assert run.stdout == "" if form == "text" else what in json.loads(run.stdout)["errors"][0]
        (row,) = (await host.command("ps", "--json")).stdout.splitlines()
        assert json.loads(row)["state"] == "requires_action"
        await driver.reply(driver.lines[-1], {"behavior": "allow"})
        await until((host.user.home / "made").exists)


async def test_a_session_is_chosen_from_a_list(host: Host) -> None:
    host.model.add({"text": "The first answer.", "when": {"user_contains": "first"}})
    host.model.add({"text": "The second answer.", "when": {"user_contains": "second"}})
    first = await ended(host, "the first thing", str(host.put("north")))
    await ended(host, "the second thing", str(host.put("south")))
    async with terminal(host, "ssh", "--resume") as running:
        await running.shows("2 sessions")
        assert running.text.index("the second thing") < running.text.index("the first thing")
        running.type("NORTH")
        await running.shows("1 of 2")
        running.type("\r")
        await running.shows("The first answer.")
        running.type("\x04")
        assert await running.ended() == 0
        back = next(line for line in running.text.splitlines() if f"--resume {first}" in line)
    host.model.add({"text": "Gone on.", "when": {"user_contains": "go on"}})
    words = shlex.split(back[back.index("ccb ssh") :])
    done = await host.laptop.run([*words[1:], "-p", "go on", "--output-format", "json"])
    assert done.code == 0, done.stderr
    result = json.loads(done.stdout)
    assert (result["session_id"], result["result"]) == (first, "Gone on.")
    async with terminal(host, "ssh", "--resume") as running:
        await running.shows("2 sessions")
        running.type("\x1b")
        assert await running.ended() == 2
        assert "no session was chosen" in running.text
    await until(lambda: not processes_of(host.user))


async def test_attach_takes_the_one_session_that_runs_and_a_viewer_leaves_it_alone(host: Host) -> None:
    host.model.add({"text": "An answer.", "when": {"user_contains": "explain"}, "times": 0})
    await ended(host, "explain this")
    ask_once(host.model)
    async with asking(host, "make it") as (driver, _):
        async with terminal(host, "attach", "--view") as running:
            await running.shows("make it")
            assert "explain this" not in running.text
            running.type("\x04")
            assert await running.ended() == 0
        assert driver.process.returncode is None
        await host.command("stop", "--all")
