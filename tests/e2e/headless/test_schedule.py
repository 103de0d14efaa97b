"""`ccb schedule` with the real systemd of a user and the real cron, each in namespaces of its own."""

from __future__ import annotations

import asyncio
import os
import plistlib
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.support.hosts.reached_host import Host
from tests.support.machine.programs import shell_script
from tests.support.model.fake_model import API_KEY
from tests.support.person.laptop import Done, Here, Laptop

from ccb.local.commands.timers import cron_line, launchd_agent, systemd_timer
from ccb.tunnel.errors import UsageError

SYSTEMD = """
mount -t tmpfs tmpfs /run && mkdir -p /run/systemd/system /run/user/0 && chmod 700 /run/user/0
env -i HOME="$HOME" PATH="$PATH" XDG_RUNTIME_DIR=/run/user/0 /lib/systemd/systemd --user > /dev/null 2>&1 &
until [ -S /run/user/0/systemd/private ]; do sleep 0.05; done
"""
CRON = """
mount -t tmpfs tmpfs /run && mkdir -p "$HOME/crontabs" && chmod 1730 "$HOME/crontabs"
mount --bind "$HOME/crontabs" /var/spool/cron/crontabs
"""
PROGRAMS = {SYSTEMD: Path("/lib/systemd/systemd"), CRON: Path("/usr/sbin/cron")}


def program(words: list[str], **how: Any) -> Done:
    ran = subprocess.run(
        words, capture_output=True, text=True, check=False, timeout=90, stdin=subprocess.DEVNULL, **how
    )
    return Done(ran.returncode, ran.stdout, ran.stderr)


def in_namespace(before: str, words: list[str], env: dict[str, str], cwd: Path) -> Done:
    """Run a program behind `before`, in namespaces that end with it."""
    if not PROGRAMS[before].exists():
        pytest.skip(f"there is no {PROGRAMS[before]}")
    line = [
        "unshare",
        "-m",
        "-p",
        "--fork",
        "--kill-child",
        "--mount-proc",
        "sh",
        "-c",
        f'{before}\n"$@"',
        "sh",
        *words,
    ]
    return program(line, env=env, cwd=cwd)


@dataclass(frozen=True)
class Scheduler:
    before: str
    laptop: Laptop

    async def run(self, *words: str) -> Done:
        env = {**self.laptop.env, "XDG_RUNTIME_DIR": "/run/user/0"}
        return await asyncio.to_thread(in_namespace, self.before, [*words], env, self.laptop.home)

    async def ccb(self, *words: str) -> Done:
        return await self.run(sys.executable, "-m", "ccb", "schedule", *words)


def give_variables(laptop: Laptop) -> None:
    """Write into the script without what ccb finds neither its sources nor the model of this test, as a person may."""
    (script,) = laptop.home.rglob("nightly.sh")
    wanted = ("PYTHONPATH", "ANTHROPIC_BASE_URL", "SSL_CERT_FILE")
    lines = [f"export {name}={shlex.quote(laptop.env[name])}\n" for name in wanted]
    first, _, rest = script.read_text().partition("\n")
    key = f"export ANTHROPIC_API_KEY=$(printf %s {API_KEY[:9]} {API_KEY[9:]})\n"
    script.write_text(f"{first}\n{''.join(lines)}{key}{rest}")


@pytest.mark.parametrize(
    ("before", "on"), [(SYSTEMD, "Mon..Fri 06:30"), (CRON, "30 6 * * 1-5")], ids=["systemd", "cron"]
)
async def test_a_timer_is_written_run_and_removed_and_what_is_not_ours_stays(host: Host, before: str, on: str) -> None:
    scheduler, units = Scheduler(before, host.laptop), host.laptop.home / ".config/systemd/user"
    if before is CRON:
        (host.laptop.home / "mine").write_text("# of the person\n0 0 1 1 * true 50\\%\n")
        await scheduler.run("crontab", "mine")
    else:
        units.mkdir(parents=True)
        (units / "ccb-mine.timer").write_text("[Timer]\nOnCalendar=daily\n")
    words = host.ssh("-p", 'It\'s 100% of $HOME,\n"is it"?', "--max-budget-usd", "2")
    notify = f'echo "$CCB_SCHEDULE $CCB_EXIT_CODE" > {host.laptop.home}/told'
    options = ["--on", on, "--notify", notify]
    wrong = await scheduler.ccb("add", "nightly", *options, "--on", "61 0 * * *", "--", *words)
    assert wrong.refuses(2, "failed", "Correct --on.")
    added = await scheduler.ccb("add", "nightly", *options, "--", *words)
    assert added.code == 0 and "Scheduled nightly" in added.stdout, added
    if before is SYSTEMD:
        verify = ["systemd-analyze", "verify", "--user", *map(str, units.glob("ccb-nightly.*"))]
        assert program(verify, env={**host.laptop.env}) == Done(0, "", "")
    give_variables(host.laptop)
    listed = (await scheduler.ccb("list")).stdout
    assert "nightly" in listed and on in listed and shlex.join(words).replace("\n", " ") in listed
    host.model.add({"text": "It is."})
    ran = await scheduler.ccb("run", "nightly")
    assert "nightly ended with code 0" in ran.stdout, ran
    assert host.model.requests[-1].last_user_text.endswith('It\'s 100% of $HOME,\n"is it"?')
    assert (host.laptop.home / "told").read_text() == "nightly 0\n"
    assert (await scheduler.ccb("remove", "nightly")).code == 0
    if before is CRON:
        assert (await scheduler.run("crontab", "-l")).stdout == (host.laptop.home / "mine").read_text()
    else:
        assert [path.name for path in units.glob("*.*")] == ["ccb-mine.timer"]
    assert (await scheduler.ccb("list")).stdout == "Nothing is scheduled.\n"


@pytest.fixture
def stand_ins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Programs of schedulers that say yes to everything, first on the PATH."""
    for name in ("systemctl", "systemd-analyze", "launchctl"):
        shell_script(tmp_path / "bin" / name, f'echo {name} "$@" >> {tmp_path}/called')
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    return tmp_path


def test_an_agent_of_launchd_says_what_is_to_run_and_when(stand_ins: Path) -> None:
    agents, script = stand_ins / "Library/LaunchAgents", stand_ins / "the scripts/n.sh"
    timer = launchd_agent(agents, script, "0,30 6-7 * * 1")
    timer.add()
    found = plistlib.loads((agents / "ccb.n.plist").read_bytes())
    assert found["ProgramArguments"] == ["/bin/sh", str(script)]
    times = [(each["Hour"], each["Minute"], each["Weekday"]) for each in found["StartCalendarInterval"]]
    assert sorted(times) == [(6, 0, 1), (6, 30, 1), (7, 0, 1), (7, 30, 1)]
    assert timer.start[-2:] == ["/bin/sh", str(script)]
    timer.remove()
    assert list(agents.iterdir()) == []
    domain = f"gui/{os.getuid()}"
    called = [f"bootstrap {domain} {agents}/ccb.n.plist", f"bootout {domain}/ccb.n"]
    assert (stand_ins / "called").read_text().splitlines() == [f"launchctl {each}" for each in called]


@pytest.mark.parametrize("on", ["daily", "61 * * * *", "*/5 * * * *", "a b c d e", "7-6 * * * *", "Mon..Fri 06:30"])
def test_a_time_that_launchd_cannot_keep_is_refused(stand_ins: Path, on: str) -> None:
    with pytest.raises(UsageError, match="is no time for launchd"):
        launchd_agent(stand_ins, stand_ins / "n.sh", on)


@pytest.mark.parametrize("on", ["# daily", "# 6 * * *", "A=b", "@daily true;", "30 6 * * 1-5 true;", "30 6 * *"])
def test_a_time_that_would_be_another_line_of_a_crontab_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, on: str
) -> None:
    shell_script(tmp_path / "bin" / "crontab", f"touch {tmp_path}/called")
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    with pytest.raises(UsageError, match="is no time for cron"):
        cron_line(tmp_path / "n.sh", on).add()
    assert not (tmp_path / "called").exists()


def test_other_lines_of_a_crontab_stay_and_a_line_runs_its_script(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept, script = tmp_path / "crontab", tmp_path / "50% of it's" / "n.sh"
    shell_script(tmp_path / "bin" / "crontab", f"[ $1 = - ] && exec cat > {kept}; exec cat {kept}")
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    kept.write_text("0 0 1 1 * true 50\\%\n")
    shell_script(script, f"touch {tmp_path}/ran")
    timer, other = cron_line(script, "30 6 * * *"), cron_line(script.with_name("m.sh"), "@daily")
    other.add()
    timer.add()
    line = kept.read_text().splitlines()[-1]
    assert line.startswith("30 6 * * * ")
    subprocess.run(["/bin/sh", "-c", line.removeprefix("30 6 * * * ").replace("\\%", "%")], check=True)
    assert (tmp_path / "ran").exists()
    timer.remove()
    left = kept.read_text().splitlines()
    assert left[0] == "0 0 1 1 * true 50\\%" and left[1].startswith("@daily ") and len(left) == 2


async def test_the_person_is_notified_of_a_run_that_cannot_begin(here: Here, stand_ins: Path) -> None:
    words = ["schedule", "add", "n", "--notify", "echo told $CCB_EXIT_CODE $PATH", *RUN]
    assert (await here.laptop.run(words, PATH=os.environ["PATH"])).code == 0
    (script,) = here.laptop.home.rglob("n.sh")
    ran = await asyncio.to_thread(program, ["/bin/sh", str(script)], env={"HOME": str(here.laptop.home)})
    assert ran.code and f"told {ran.code} {os.environ['PATH']}" in script.with_suffix(".log").read_text().splitlines()


RUN = ["--on", "daily", "--", "ssh", "devbox:~", "-p", "hi", "--max-budget-usd", "1"]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["No_Name", *RUN], "is no name of a schedule"),
        (["n", *RUN[2:]], "needs --on"),
        (["n", *RUN[:-2]], "needs --max-budget-usd"),
        (["n", *RUN[:3], ".", "-p", "hi"], "only a run on a host with -p"),
        (["n", *RUN[:5], "--max-budget-usd", "1"], "only a run on a host with -p"),
    ],
)
async def test_what_cannot_run_without_a_person_is_refused(
    here: Here, stand_ins: Path, words: list[str], says: str
) -> None:
    refused = await here.laptop.run(["schedule", "add", *words], PATH=os.environ["PATH"])
    assert refused.code and says in refused.stderr and not refused.stdout, refused
    assert not [*here.laptop.home.rglob("ccb-n.*"), *here.laptop.home.rglob("*.sh")]


async def test_a_name_is_taken_once_and_files_of_the_person_stay(here: Here, stand_ins: Path) -> None:
    async def add(name: str) -> Done:
        return await here.laptop.run(["schedule", "add", name, *RUN], PATH=os.environ["PATH"])

    units = here.laptop.home / ".config/systemd/user"
    units.mkdir(parents=True)
    (units / "ccb-mine.timer").write_text("[Timer]\n")
    assert (await add("n")).code == 0
    assert {path.stat().st_mode & 0o777 for path in units.glob("ccb-n.*")} == {0o600}
    for name, says in (("n", "n is scheduled already"), ("mine", "and ccb did not write it")):
        assert says in (await add(name)).stderr
    assert (units / "ccb-mine.timer").read_text() == "[Timer]\n" and not (units / "ccb-mine.service").exists()
    gone = await here.laptop.run(["schedule", "run", "other"], PATH=os.environ["PATH"])
    assert gone.refuses(2, "nothing is scheduled as 'other'")
    calls = [line for line in (stand_ins / "called").read_text().splitlines() if "show-environment" not in line]
    assert calls[:3] == [
        "systemd-analyze calendar daily", "systemctl --user daemon-reload", "systemctl --user enable --now ccb-n.timer",
    ]  # fmt: skip


def test_a_scheduler_that_fails_is_quoted_and_leaves_no_files(stand_ins: Path) -> None:
    shell_script(stand_ins / "bin" / "systemctl", "echo no bus >&2; exit 1")
    with pytest.raises(UsageError, match="systemctl --user daemon-reload failed") as caught:
        systemd_timer(stand_ins / "units", stand_ins / "n.sh", "daily").add()
    assert caught.value.evidence == "no bus\n" and list((stand_ins / "units").iterdir()) == []


async def test_a_machine_without_a_scheduler_says_so(here: Here, tmp_path: Path) -> None:
    shell_script(tmp_path / "bin" / "systemctl", "exit 1")
    done = await here.laptop.run(["schedule", "list"], PATH=f"{tmp_path}/bin")
    assert done.refuses(2, "this machine has no scheduler that ccb can use")
