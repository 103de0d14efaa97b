"""`ccb send` as a script runs it, over a real sshd: into sessions that run, that wait for an answer and that sleep."""

from __future__ import annotations

import json

import pytest
from tests.support.hosts.reached_host import Host
from tests.support.machine.processes import processes_of
from tests.support.machine.waiting import until
from tests.support.model.model_script import uses
from tests.support.person.laptop import STDIO, STREAM, Done, user_message

pytestmark = pytest.mark.visited


async def send(host: Host, session: str, *words: str, stdin: bytes | None = None) -> Done:
    return await host.laptop.run(
        ["send", f"{host.login}:{session}", *words, *host.server.client_options()], stdin=stdin
    )


async def test_a_driven_session_reads_it_and_a_question_stays_open(host: Host) -> None:
    host.model.add(
        {**uses("Bash", command="touch made"), "when": {"user_contains": "begin"}},
        {"text": "read", "when": {"user_contains": "tests failed"}, "times": 0},
        {"text": "denied", "times": 0},
    )
    async with host.laptop.start(host.ssh("-p", *STDIO)) as running:
        await running.send(user_message("begin"))
        session = (await running.until("system", "init"))["session_id"]
        asked = await running.until("control_request")
        waits = await send(host, session[:8], "approve it", "--sender", "ci\x1b[2J bot")
        assert (waits.code, waits.stderr) == (0, "") and waits.stdout.startswith("sent to ")
        assert not (host.home / "made").exists()
        await running.reply(asked, {"behavior": "deny", "message": "no"})
        await running.until("result")
        sent = await send(host, "begin", stdin=b"tests failed\n")
        assert (sent.code, sent.stderr, sent.stdout) == (0, "", f"sent to {session[:8]} on {host.login}\n")
        result = await running.until("result")
        assert (result["result"], result["origin"]["kind"]) == ("read", "outside-message")
        first = next(each for each in host.model.requests if "approve it" in json.dumps(each.messages))
        assert '<message from=\\"ci[2J bot\\" via=\\"ccb send\\">' in json.dumps(first.messages)
        assert not (host.home / "made").exists()


async def test_the_answer_to_another_client_is_no_output_of_a_run(host: Host) -> None:
    host.model.add({**uses("Bash", command="until [ -e go ]; do sleep 0.1; done"), "when": {"user_contains": "begin"}})
    host.model.add({"text": "done", "times": 0})
    async with host.laptop.start(host.ssh("-p", "begin", "--allowedTools", "Bash", *STREAM), piped=False) as running:
        await running.until("assistant")
        assert (await send(host, "begin", "hello")).code == 0
        (host.home / "go").touch()
        done = await running.done()
    assert "hello" in json.dumps(host.model.requests[-1].messages)
    assert {each["type"] for each in done.messages} == {"system", "assistant", "user", "result"}


async def test_a_sleeping_session_is_woken_to_keep_it_and_works_when_it_is_driven(host: Host) -> None:
    host.model.add({"text": "An answer.", "when": {"user_contains": "explain"}}, {"text": "noted", "times": 0})
    done = await host.run("-p", "explain this", "--output-format", "json")
    session = json.loads(done.stdout)["session_id"]
    await until(lambda: not processes_of(host.user))
    sent = await send(host, session, "the disk is full")
    assert (
        sent.code == 0 and "nobody drives it" in sent.stdout and f"ccb attach {host.login} {session[:8]}" in sent.stdout
    )
    await until(lambda: not processes_of(host.user))
    assert len(host.model.requests) == 1, "no model is called without a driver"
    await host.command("stop", session)
    assert (await send(host, session, "again")).refuses(75, "was stopped")
    await host.run("--resume", session, "-p", "go on")
    assert sum("the disk is full" in json.dumps(each.messages[-1]) for each in host.model.requests) == 1


@pytest.mark.parametrize(
    ("session", "text", "code", "says"),
    [
        ("nothing", ["hello"], 1, "no session has the ID or title"),
        ("explain", [" "], 2, "the message has 0 characters"),
    ],
)
async def test_what_cannot_be_sent_is_refused(host: Host, session: str, text: list[str], code: int, says: str) -> None:
    (await send(host, session, *text)).refuses(code, says)
