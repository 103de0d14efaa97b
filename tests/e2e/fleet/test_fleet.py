"""`ccb fleet` over a real OpenSSH server, with a scripted model: one prompt on several places of one host."""

from __future__ import annotations

import json
import re
import signal
import socket
from pathlib import Path
from typing import Any

import pytest
from tests.support.hosts.reached_host import Host
from tests.support.machine.processes import processes_of
from tests.support.machine.programs import shell_script
from tests.support.machine.waiting import until
from tests.support.model.model_script import Recorded, uses
from tests.support.network.relay import relay
from tests.support.person.laptop import Done

pytestmark = pytest.mark.visited


def words(host: Host, *more: str, places: tuple[str, ...] = ("a", "b", "c"), port: int | None = None) -> list[str]:
    """`ccb fleet run` in directories of the host."""
    for each in places:
        host.put(each)
    hosts = [f"{host.login}:{host.home}/{each}" for each in places]
    return ["fleet", "run", "-p", "Which version?", "--name", "web", *host.server.client_options(port), *more, *hosts]


def tasks(done: Done) -> dict[str, dict[str, Any]]:
    """The lines of tasks by the directories of their places."""
    return {Path(each["place"]).name: each for each in done.messages if "place" in each}


def of(place: str, answer: dict[str, Any], *, tools: bool | None = None, times: int = 1) -> dict[str, Any]:
    """An answer for the session of one place; `tools`: with results of tools, or without."""

    def fits(request: Recorded) -> bool:
        here = f"/{place}\\n" in json.dumps(request.body) or f"/{place} " in json.dumps(request.body)
        return here and tools in (None, bool(request.tool_results))

    return {**answer, "when": fits, "times": times}


async def test_each_place_answers_and_equal_answers_are_printed_once(host: Host) -> None:
    host.model.add(*(of(each, {"text": "12.1"}) for each in "ac"), of("b", {"text": "11.9"}))
    again = [host.login, f":{host.home}/c"]  # a place that is named already
    done = await host.laptop.run([*words(host), *again])
    assert done.code == 0, done.stderr
    found = tasks(done)
    assert {each: (row["exit"], row["text"]) for each, row in found.items()} == {
        "a": ("OK", "12.1"), "b": ("OK", "11.9"), "c": ("OK", "12.1"),
    }  # fmt: skip
    summary = done.messages[-1]
    assert summary["exits"] == {"OK": 3}
    named = {each: f"{host.login}:{host.home}/{each}" for each in "abc"}  # one host: its places tell the tasks apart
    groups = [(sorted(each["hosts"]), each["text"]) for each in summary["answers"]]
    assert groups == [([named["a"], named["c"]], "12.1"), ([named["b"]], "11.9")]
    assert summary["usd"] == pytest.approx(sum(row["usd"] for row in found.values())) and summary["usd"] > 0
    await until(lambda: not processes_of(host.user))


async def test_values_of_a_schema_are_compared_as_values(host: Host) -> None:
    host.model.add(of("a", uses("StructuredOutput", major=12, minor=1)))
    host.model.add(of("b", uses("StructuredOutput", minor=1, major=12)))
    schema = {"type": "object", "properties": {"major": {"type": "integer"}, "minor": {"type": "integer"}}}
    done = await host.laptop.run(words(host, "--json-schema", json.dumps(schema), places=("a", "b")))
    assert done.code == 0, done.stderr
    assert [each["data"] for each in tasks(done).values()] == [{"major": 12, "minor": 1}] * 2
    (answer,) = done.messages[-1]["answers"]
    assert answer["data"] == {"major": 12, "minor": 1} and len(answer["hosts"]) == 2


async def test_what_was_not_reached_goes_on_later_and_what_was_answered_stays(host: Host) -> None:
    """One host of the inventory does not listen: it has an exit class of its own, and no other host waits for it."""
    host.model.add(of("a", {"text": "12.1"}, times=2))
    with socket.create_server(("127.0.0.1", 0)) as closed:
        dead = closed.getsockname()[1]
    host.server.trust(dead)
    options = " ".join(host.server.client_options()).replace("-P", "-p")
    there = {"ansible_host": "127.0.0.1", "ansible_user": host.user.name, "ansible_ssh_common_args": options}
    hosts = {"web-1": there, "web-2": {**there, "ansible_port": dead}}
    listed = {"_meta": {"hostvars": hosts}, "web": {"hosts": [*hosts]}, "all": {"children": ["web"]}}
    shell_script(host.laptop.home / "bin/ansible-inventory", f"cat <<'E'\n{json.dumps(listed)}\nE")
    host.put("a")
    run = ["fleet", "run", "-p", "Which version?", "--name", "web", "--inventory", "hosts", f":{host.home}/a"]
    done = await host.laptop.run(run, PATH=f"{host.laptop.home}/bin:{host.laptop.env['PATH']}")
    assert done.code == 69 and "ccb fleet run --resume-failed web" in done.stderr, done.stderr
    assert {each["host"]: each["exit"] for each in done.messages[:-1]} == {"web-1": "OK", "web-2": "UNREACHABLE"}
    shown = await host.laptop.run(["fleet", "status", "web"])
    assert re.search(r"(?m)^✗ web-2 .* UNREACHABLE: .*cannot reach 127.0.0.1", shown.stdout), shown.stdout
    async with relay(host.server.port, port=dead):
        again = await host.laptop.run(["fleet", "run", "--resume-failed"])
    assert again.code == 0, again.stderr
    (row,) = again.messages[:-1]
    before = next(each for each in done.messages if each.get("host") == "web-2")
    assert (row["host"], row["text"], row["session"]) == ("web-2", "12.1", before["session"])
    assert again.messages[-1]["exits"] == {"OK": 2} and len(host.model.requests) == 2


async def test_a_laptop_that_dies_goes_on_in_the_same_sessions_and_nothing_is_paid_or_done_twice(host: Host) -> None:
    long = {"text": "A long answer that stands still.", "stall_after": 4}
    host.model.add(of("a", {"text": "12.1"}), of("b", uses("Bash", command="echo x >> ran"), tools=False))
    host.model.add(of("b", long, tools=True), of("b", {"text": "Done."}, tools=True))
    async with host.laptop.start(words(host, "--allowedTools=Bash", places=("a", "b")), piped=False) as run:
        await host.model.until(lambda model: len(model.requests) == 3)
        await until(lambda: (results(host, "web")).keys() == {"0"})
        run.process.kill()
        await run.process.wait()
    host.model.release()
    again = await host.laptop.run(["fleet", "collect", "web"])
    assert again.code == 0, again.stderr
    assert {each: row["text"] for each, row in tasks(again).items()} == {"b": "Done."}
    assert (host.home / "b/ran").read_text() == "x\n"
    assert len(host.model.requests) == 4, "the answer that the laptop has lost is asked for again, and only that"
    nothing = await host.laptop.run(["fleet", "run", "--resume-failed", "web"])
    assert (nothing.code, nothing.messages[0]["summary"], len(host.model.requests)) == (0, True, 4)


def results(host: Host, name: str) -> dict[str, Any]:
    folder = host.laptop.home / f".local/state/ccb/fleets/{name}/results"
    return {path.stem: json.loads(path.read_text()) for path in folder.glob("[0-9]*.json")}


async def test_the_budget_is_one_for_all_over_runs_and_what_it_stops_goes_on_with_a_larger_one(host: Host) -> None:
    usage = {"input_tokens": 10, "output_tokens": 20_000}
    places = tuple("abcdef")
    host.model.add(*(of(each, {"text": "Fine.", "usage": usage}, times=2) for each in places))
    limits = ["--max-budget-usd", "0.7", "--jobs", "2", "--model", "sonnet"]
    done = await host.laptop.run(words(host, *limits, places=places))
    summary = done.messages[-1]
    assert done.code == 4, done.stderr
    assert summary["exits"]["OK"] == 3 and 0.7 <= summary["usd"] < 1.0, "the call that crosses it is the last one"
    assert "the budget of the fleet is used up" in done.stderr and "3 of 6 tasks have no answer" in done.stderr
    asked = len(host.model.requests)
    still = await host.laptop.run(["fleet", "run", "--resume-failed", "web"])
    assert still.code == 4 and len(host.model.requests) == asked, "what an earlier run has spent counts"
    more = await host.laptop.run(["fleet", "collect", "--resume-failed", "web", "--max-budget-usd", "5"])
    assert more.code == 0, more.stderr
    assert more.messages[-1]["exits"] == {"OK": 6}


async def test_ctrl_c_ends_the_turns_in_order_and_says_how_to_go_on(host: Host) -> None:
    long = {"text": "A long answer that stands still.", "stall_after": 4}
    host.model.add(of("a", {"text": "12.1"}), of("b", long), of("b", {"text": "11.9"}), of("c", {"text": "12.1"}))
    run = words(host, "--jobs", "1", places=("a", "b", "c"))
    async with host.laptop.start(run, piped=False) as running:
        await host.model.until(lambda model: len(model.requests) == 2)
        running.process.send_signal(signal.SIGINT)
        done = await running.done()
    assert done.code == 130 and "Go on: ccb fleet run --resume-failed web" in done.stderr, done.stderr
    assert done.messages[-1]["exits"] == {"INTERRUPTED": 1, "OK": 1, "left": 1}
    await until(lambda: not processes_of(host.user))
    (await host.laptop.run(["fleet", "stop", "web"])).refuses(2, "nobody runs the fleet web")
    again = await host.laptop.run(["fleet", "run", "--resume-failed", "web"])
    assert again.code == 0, again.stderr
    assert {each: row["text"] for each, row in tasks(again).items()} == {"b": "11.9", "c": "12.1"}
    assert [each for each in host.model.requests if "or you were stopped" in each.last_user_text], "the turn goes on"


async def test_another_ccb_stops_a_fleet_shows_it_and_reads_its_logs(host: Host) -> None:
    host.model.add(of("a", {"text": "A long answer that stands still.", "stall_after": 4}))
    otel = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"}
    async with host.laptop.start(words(host, places=("a",)), piped=False, **otel) as running:
        await host.model.until(lambda model: len(model.requests) == 1)
        shown = await host.laptop.run(["fleet", "status"])
        assert "runs it" in shown.stdout and "web: 1 tasks: 1 left" in shown.stdout, shown.stdout
        (await host.laptop.run(["fleet", "run", "--resume-failed"])).refuses(2, "another ccb runs the fleet web")
        stopped = await host.laptop.run(["fleet", "stop"])
        assert stopped.code == 0 and "is stopped" in stopped.stdout, stopped.stderr
        done = await running.done()
        assert done.code == 130 and done.stderr.count("Telemetry does not reach 127.0.0.1:1") == 1, done.stderr
    logs = await host.laptop.run(["fleet", "logs", "web", "0"])
    assert logs.code == 0 and "Which version?" in logs.stdout, logs.stderr
    (await host.laptop.run(["fleet", "logs", "web", "db"])).refuses(2, "no task of web is on db")
    resume = ["fleet", "run", "--resume-failed", "web"]
    (await host.laptop.run([*resume, "-p", "Another?"])).refuses(2, "with the hosts and the prompt of a fleet")


async def test_the_agents_of_a_fleet_write_to_each_other_in_their_group(host: Host) -> None:
    """The second one works until the message of the first is in its results."""
    send = "mcp__group__SendMessage"

    def first(request: Recorded) -> dict[str, Any] | None:
        if not fits_a(request):
            return None
        result = request.tool_result_text
        if result.startswith("Sent to "):
            return {"text": "sent"}
        other = re.search(rf"also: ({re.escape(host.login)}/\w+)$", result)
        return uses(send, to=other[1], text="the schema is ready") if other else uses(send)

    def second(request: Recorded) -> dict[str, Any] | None:
        if fits_a(request):
            return None
        told = "the schema is ready" in request.last_user_text
        return {"text": "told"} if told else uses("Bash", command="sleep 0.1")

    def fits_a(request: Recorded) -> bool:
        return f"{host.home}/a" in json.dumps(request.body)

    host.model.add(*[first] * 200, *[second] * 200)
    done = await host.laptop.run(words(host, "--group", "night", "--allowedTools=Bash(sleep *)", places=("a", "b")))
    assert done.code == 0, done.stderr
    assert {each: row["text"] for each, row in tasks(done).items()} == {"a": "sent", "b": "told"}
