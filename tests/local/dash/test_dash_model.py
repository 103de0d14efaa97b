"""The rows of all hosts: their order, what changes, what a silent host leaves, and the lines for scripts."""

from __future__ import annotations

import asyncio
import json
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.local.ledger.test_ledger import report
from tests.support.hosts.reporting_host import ReportingHost, dash_of
from tests.support.machine.programs import shell_script
from tests.support.machine.waiting import until
from tests.support.worker.compiled import worker_bundle

from ccb.local.command_line.exit_codes import ExitCode
from ccb.local.command_line.parser import parse_arguments
from ccb.local.config.log import state_dir
from ccb.local.config.settings import Settings
from ccb.local.connect.connect_session import view_session
from ccb.local.connect.host_connection import HostConnection
from ccb.local.connect.startup import LoadedBasics
from ccb.local.dash import dash_model
from ccb.local.dash.dash_hosts import dash_hosts
from ccb.local.dash.dash_model import Dash
from ccb.local.dashboard import print_rows, run_dash
from ccb.local.ledger.call_ledger import CallPlace, open_ledger
from ccb.local.terminal.terminal_prompts import TerminalPrompts
from ccb.tunnel.errors import AuthFailed, ConnectionLost, UsageError
from ccb.tunnel.transports.login_prompts import NobodyToAsk, Prompts
from ccb.tunnel.transports.pipe import Transport


def row(number: int, state: str = "idle", idle_s: float = 10.0, **more: Any) -> dict[str, Any]:
    known = {"session": f"{number:08x}-0000-4000-8000-000000000000", "prompts": 1, "prompt": f"task {number}"}
    return {**known, "state": state, "alive": state not in ("ended", "moved"), "idle_s": idle_s, **more}


def titles(dash: Dash) -> list[str]:
    return [each.session.prompt.raw for each in dash.rows()]


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    return {"HOME": str(tmp_path)}


async def test_what_waits_comes_first_then_what_works_and_each_change_moves_its_row(environ: dict[str, str]) -> None:
    web = ReportingHost("web", row(1, "ended"), row(2, "requires_action", 5), row(3, "running"))
    db = ReportingHost(
        "db", row(4, idle_s=90), row(5, "requires_action", 60), row(6), row(7, prompts=0, prompt="", alive=False)
    )
    async with dash_of([web, db], environ) as dash:
        await until(lambda: len(titles(dash)) == 6)
        assert titles(dash) == ["task 5", "task 2", "task 3", "task 6", "task 4", "task 1"]
        assert not dash.newly_asking(), "what asked before is on the screen"
        db.tell(row(6)["session"], state="requires_action", idle_s=0)
        await until(lambda: titles(dash)[2] == "task 6")
        assert dash.newly_asking() and not dash.newly_asking()
        db.remove(row(5)["session"])
        await until(lambda: titles(dash)[0] == "task 2")
        assert web.logins == db.logins == 1


async def test_a_host_that_is_lost_keeps_its_rows_and_gets_the_newest_when_it_is_back(environ: dict[str, str]) -> None:
    web = ReportingHost("web", row(1), row(2))
    async with dash_of([web], environ) as dash:
        await until(lambda: len(titles(dash)) == 2)
        web.refuses = ConnectionLost("no route to web")
        web.cut()
        await until(lambda: dash.hosts[0].problem == "no route to web")
        assert not dash.hosts[0].up and len(titles(dash)) == 2
        web.refuses = None
        del web.rows[row(1)["session"]]
        dash.hosts[0].again.set()
        await until(lambda: titles(dash) == ["task 2"])
        assert dash.hosts[0].up


async def test_logins_that_hang_keep_no_other_host_waiting(
    environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dash_model, "_NEXT_S", 0.01)
    hanging = [ReportingHost(f"old-{number}") for number in range(2 * dash_model._LOGINS)]
    for each in hanging:
        each.hangs = True
    async with dash_of([*hanging, ReportingHost("web", row(1))], environ) as dash:
        await until(lambda: titles(dash) == ["task 1"])


async def test_a_host_that_needs_the_person_is_not_asked_again_by_itself(environ: dict[str, str]) -> None:
    web = ReportingHost("web", row(1))
    web.refuses = AuthFailed("web wants a password")
    async with dash_of([web], environ) as dash:
        await until(lambda: dash.hosts[0].needs_person)
        web.refuses = None
        await asyncio.sleep(0)
        assert web.logins == 0
        dash.hosts[0].again.set()
        await until(lambda: dash.hosts[0].up)


async def test_a_bug_in_the_watch_of_a_host_is_its_problem_and_it_is_tried_again(environ: dict[str, str]) -> None:
    web = ReportingHost("web", row(1))
    web.refuses = RuntimeError("a bug")
    async with dash_of([web], environ) as dash:
        await until(lambda: dash.hosts[0].problem == "watching it failed: RuntimeError")
        web.refuses = None
        dash.hosts[0].again.set()
        await until(lambda: dash.hosts[0].up)


async def test_a_session_has_the_settings_of_now_not_those_of_the_watch(environ: dict[str, str]) -> None:
    def loaded(model: str) -> LoadedBasics:
        return LoadedBasics(Settings(model=model), worker_bundle(""))

    arguments = parse_arguments(["ssh", "web:~"])
    connection = HostConnection(
        arguments, NobodyToAsk(), environ, lambda *_: loaded("now"), shared=lambda *_: loaded("then")
    )
    async with connection as host:
        host.loader.start()
        assert (await host.loader.loaded()).settings.model == "then"
        assert (await host.startup(arguments)).settings.model == "now"


async def test_what_is_done_from_the_screen_asks_for_no_login(environ: dict[str, str]) -> None:
    asked: list[bool] = []

    class Locked(HostConnection):
        async def _log_in(self, prompts: Prompts) -> Transport:
            self.loader.start()
            asked.append(not isinstance(prompts, NobodyToAsk))
            raise AuthFailed("web wants a password")

    arguments = parse_arguments(["ssh", "web:~"])
    loaded = LoadedBasics(Settings(), worker_bundle(""))
    async with Locked(arguments, TerminalPrompts(), environ, lambda *_: loaded) as host:
        with pytest.raises(AuthFailed):
            await host.sessions(ask=False)
        with pytest.raises(AuthFailed):
            async with view_session(host, "5e55", ask=False):
                pass
    assert asked == [False, False]


async def test_the_lines_for_scripts(environ: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    web, silent = ReportingHost("web", row(1, "requires_action", last="Bash \x1b[31mls")), ReportingHost("silent")
    silent.refuses = AuthFailed("silent wants a password")
    with open_ledger(state_dir(environ)) as ledger:
        ledger.add(CallPlace(row(1)["session"], "web", "/srv"), report(1.25))
    async with dash_of([web, silent], environ) as dash:
        assert await print_rows(dash) == ExitCode.AGENT_FAILED
        shown, error = map(json.loads, capsys.readouterr().out.splitlines())
        assert (shown["host"], shown["state"], shown["last"]) == ("web", "requires_action", "Bash \x1b[31mls")
        assert (shown["usd"], shown["stale_s"]) == (1.25, None)
        assert error == {"host": "silent", "error": "silent wants a password"}
        following = asyncio.create_task(print_rows(dash, follow=True))
        read: list[dict[str, Any]] = []

        async def printed(wanted: Callable[[dict[str, Any]], object]) -> None:
            def there() -> bool:
                read.extend(map(json.loads, capsys.readouterr().out.splitlines()))
                return any(map(wanted, read))

            await until(there)

        await printed(lambda line: line.get("state") == "requires_action")
        web.tell(row(1)["session"], state="running")
        await printed(lambda line: line.get("state") == "running")
        web.tell(row(1)["session"], age_s=99.0)
        web.remove(row(1)["session"])
        await printed(lambda line: line.get("gone"))
        assert [line["state"] for line in read if "state" in line] == ["requires_action", "running"], (
            "only what changed"
        )
        following.cancel()


def test_hosts_are_named_or_in_a_file_or_match_a_pattern(
    tmp_path: Path, environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".ssh").mkdir()
    (tmp_path / ".ssh" / "config").write_text("Host web-1 web-2 *.example.org\nHost db\n")
    (tmp_path / "hosts").write_text("# all\nann@db  # the database\n\nssh://box:2222\n")

    def named(*words: str) -> list[str]:
        return list(dash_hosts(parse_arguments(["dash", *words]), environ, {}))

    assert named("web-*", f"@{tmp_path / 'hosts'}", "local") == ["web-1", "web-2", "ann@db", "box", "local"]
    assert named() == ["local"]
    with open_ledger(state_dir(environ)) as ledger:
        for place in ("db", "web on db", "ann@db"):
            ledger.add(CallPlace("5e55", place, "/srv"), report())
    assert sorted(named()) == ["ann@db", "db"], "a container is no host of ssh"
    monkeypatch.setattr("ccb.local.dash.dash_hosts.MAX_HOSTS", 1)
    refused = {
        "nothing-*": "no host of ssh_config",
        "@/none": "cannot be read",
        "db:/srv": "without a path",
        "web-*": "these are 2 hosts",
    }
    for bad, said in refused.items():
        with pytest.raises(UsageError, match=said):
            named(bad)


async def test_an_inventory_names_hosts_and_the_way_to_them(
    tmp_path: Path, environ: dict[str, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["dash", "db", "-i", "mine", "-P", "9"]
    ways = {"web": ("ann@10.0.0.1", "-P", "2222", "-o", "ProxyJump=bastion"), "here": ("local", "--local")}
    found = dash_hosts(parse_arguments(words), environ, ways)
    assert list(found) == ["db", "web", "here"], "not those of past sessions"
    web, here = found["web"].connection, found["here"].connection
    assert web.target is not None and (web.target.login, web.port) == ("ann@10.0.0.1", 2222)
    assert (web.identities, web.ssh_options, here.local) == (("mine",), ("ProxyJump=bastion",), True)
    dead: dict[str, object] = {"ansible_host": "127.0.0.1", "ansible_port": 1}
    listed = json.dumps({"_meta": {"hostvars": {"web-7": dead}}, "all": {"hosts": ["web-7"]}})
    shell_script(tmp_path / "bin/ansible-inventory", f"echo {shlex.quote(listed)}")
    asked = parse_arguments(["dash", "--json", "--inventory", "hosts"])
    assert await run_dash(asked, {**environ, "PATH": f"{tmp_path}/bin:/usr/bin:/bin"}) == 1
    (silent,) = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert silent["host"] == "web-7" and "127.0.0.1" in silent["error"], silent


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "needs a terminal"),
        (("--json", "--transport", "docker exec -i x"), "leads to one host"),
        (("--json", "--limit", "web"), "--limit is for the hosts of an inventory"),
    ],
)
async def test_what_the_dash_cannot_do(words: tuple[str, ...], said: str, environ: dict[str, str]) -> None:
    with pytest.raises(UsageError, match=said):
        await run_dash(parse_arguments(["dash", *words]), environ)
