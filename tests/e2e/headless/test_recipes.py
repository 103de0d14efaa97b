"""The snippets of docs/guide/recipes.md, run as they stand there: `ccb` is a program that adds --local to its words.

What no runner is here for (GitHub, GitLab, VS Code) is parsed, and its commands are run.
"""

from __future__ import annotations

import asyncio
import base64
import json
import re
import shlex
import shutil
import subprocess
import sys
from asyncio.subprocess import DEVNULL, PIPE
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml
from tests.support.machine.programs import shell_script
from tests.support.machine.waiting import until
from tests.support.network.otlp_receiver import otlp_receiver
from tests.support.person.laptop import Here

from ccb.local.command_line.parser import parse_arguments
from ccb.local.config.settings import SettingsChoice
from ccb.local.config.settings_loading import load_settings
from ccb.local.session.own_hooks import NotificationHooks

PAGE = (Path(__file__).resolve().parents[3] / "docs/guide/recipes.md").read_text(encoding="utf-8")
FIELD = r"(\*|[0-9]{1,2}(-[0-9]{1,2})?)(/[0-9]+)?"


def snippets(heading: str, language: str) -> list[str]:
    section = PAGE.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    return re.findall(rf"```{language}\n(.*?)```", section, re.DOTALL)


@pytest.fixture
def programs(here: Here, tmp_path: Path) -> Path:
    """Programs called ccb and curl, first on the PATH of the laptop."""
    local = f'case $1 in ssh) set -- "$@" --local;; esac; exec {sys.executable} -m ccb "$@"'
    program = shell_script(tmp_path / "bin/ccb", local)
    shell_script(tmp_path / "bin/curl", f'cd {program.parent}; printf "%s\\n" "$@" > new; mv new posted')
    here.laptop.env["PATH"] = f"{program.parent}:{here.laptop.env['PATH']}"
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "-C", str(here.project)]
    for words in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "one", "--allow-empty"]):
        subprocess.run([*git, *words], check=True)
    (here.project / "new.txt").write_text("a changed line\n")
    for words in (["update-ref", "refs/remotes/origin/main", "HEAD"], ["add", "-A"], ["commit", "-qm", "two"]):
        subprocess.run([*git, *words], check=True)
    return program.parent


@dataclass(frozen=True)
class Ended:
    code: int | None
    out: str
    err: str


async def run(here: Here, script: str, **env: str) -> Ended:
    """Run a script in the project, which stands for that of the page."""
    process = await asyncio.create_subprocess_exec(
        "sh", "-ec", script.replace("/srv/app", str(here.project)),
        env={**here.laptop.env, **env}, cwd=here.project, stdin=DEVNULL, stdout=PIPE, stderr=PIPE,
    )  # fmt: skip
    async with asyncio.timeout(60):
        out, err = await process.communicate()
    return Ended(process.returncode, out.decode(), err.decode())


@pytest.mark.parametrize("where", ["GitHub Actions", "GitLab CI"])
async def test_a_pipeline_reviews_what_has_changed(here: Here, programs: Path, where: str) -> None:
    job = yaml.safe_load(*snippets(where, "yaml"))
    steps = job["jobs"]["review"]["steps"] if "jobs" in job else [{"run": each} for each in job["review"]["script"]]
    install, *scripts = [each["run"] for each in steps if "run" in each]
    assert install in ("pipx install ccb", "pip install ccb")
    here.model.add({"text": "No bugs."})
    summary = programs / "summary"
    for script in scripts:
        ended = await run(here, script, GITHUB_STEP_SUMMARY=str(summary))
        assert ended.code == 0, ended.err
    assert (here.project / "review.md").read_text() == "No bugs.\n"
    assert summary.exists() == ("jobs" in job)
    assert "+a changed line" in json.dumps(here.model.requests[0].body)


async def test_a_line_of_a_crontab_has_five_fields_and_a_command_that_works(here: Here, programs: Path) -> None:
    path, line = snippets("cron", "crontab")[0].splitlines()
    assert re.fullmatch(r"PATH=\S+", path)
    *fields, command = line.split(maxsplit=5)
    assert all(re.fullmatch(f"{FIELD}(,{FIELD})*", each) for each in fields) and "%" not in command
    here.model.add({"text": "Nothing fails."})
    ended = await run(here, command.replace("-i ~/.ssh/ci", ""))  # there is no login on this machine
    assert ended.code == 0 and (here.laptop.home / "job.log").read_text() == "Nothing fails.\n"
    parse_arguments(shlex.split(command.partition(">>")[0])[1:])


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="there is no systemd here")
async def test_the_units_are_valid_and_the_service_runs_a_command_that_works(here: Here, programs: Path) -> None:
    units = here.laptop.home / ".config/systemd/user"
    units.mkdir(parents=True)
    texts = snippets("systemd timer", "ini")
    for name, text in zip(("nightly.service", "nightly.timer"), texts, strict=True):
        (units / name).write_text(text)
    own = here.laptop.home / ".local/bin/ccb"
    own.parent.mkdir(parents=True)
    own.symlink_to(programs / "ccb")
    checked = await run(here, f"systemd-analyze verify --user {units}/nightly.timer {units}/nightly.service")
    assert (checked.code, checked.out + checked.err) == (0, "")
    (command,) = re.findall(r"ExecStart=((?:.*\\\n)*.*)", texts[0])
    here.model.add({"text": "Nothing fails."})
    ended = await run(here, command.replace("%h", str(here.laptop.home)))
    assert (ended.code, ended.out) == (0, "Nothing fails.\n"), ended.err


async def test_a_task_of_the_editor_asks_about_a_file_and_another_opens_the_session(here: Here, programs: Path) -> None:
    opens, asks = json.loads(*snippets("VS Code", "json"))["tasks"]
    assert parse_arguments(opens["args"]).directory == "/srv/app"
    here.model.add({"text": "It counts."})
    words = [each.replace("${relativeFile}", "new.txt") for each in asks["args"]]
    ended = await run(here, shlex.join([asks["command"], *words]))
    assert (ended.code, ended.out) == (0, "It counts.\n"), ended.err


@pytest.mark.skipif(not shutil.which("tmux"), reason="there is no tmux here")
async def test_tmux_takes_the_lines_and_the_key_starts_a_session(here: Here, programs: Path, tmp_path: Path) -> None:
    (text,) = snippets("tmux", "tmux")
    (tmp_path / "tmux.conf").write_text(text)
    tmux = f"tmux -f {tmp_path}/tmux.conf -S {tmp_path}/t"
    ended = await run(here, f"{tmux} new-session -d 'sleep 60'; {tmux} list-keys -T prefix A; {tmux} kill-server")
    assert ended.code == 0 and not ended.err, ended.err
    (command,) = re.findall(r'new-window -n agent "(.*)"', ended.out)
    arguments = parse_arguments(shlex.split(command)[1:])
    assert (arguments.directory, arguments.session.continue_latest) == ("/srv/app", True)


async def test_a_hook_of_the_person_and_the_end_of_a_run_post_a_notification(
    here: Here, programs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", here.laptop.env["PATH"])
    posted = programs / "posted"
    hooks = load_settings(here.laptop.env, SettingsChoice(draft=snippets("A notification by ntfy", "json")[0])).hooks
    own = NotificationHooks(hooks, "ccb devbox")
    own.notify("idle_prompt")
    await until(posted.exists)
    await own.close()
    assert posted.read_text().splitlines()[-2:] == ["ccb waits for you", "https://ntfy.sh/YOUR-TOPIC"]
    here.model.add({"text": "All pass."})
    ended = await run(here, snippets("A notification by ntfy", "sh")[0])
    assert (ended.code, (here.project / "answer.txt").read_text()) == (0, "All pass.\n"), ended.err
    assert "ccb ended with code 0" in posted.read_text()


@pytest.mark.quick_rows(1)
@pytest.mark.parametrize("where", ["Langfuse", "Grafana"])
async def test_telemetry_goes_out_with_the_key_of_the_keyring(here: Here, programs: Path, where: str) -> None:
    shell_script(programs / "secret-tool", f"echo pk-lf-1:sk-lf-{'2' * 60}")
    otel = json.loads(snippets(where, "json")[0])["otel"]
    here.model.add({"text": "Hello."})
    async with otlp_receiver() as receiver:
        here.laptop.settings(otel={**otel, "endpoint": receiver.url})
        done = await run(here, f"{''.join(snippets(where, 'sh'))}ccb {here.project} -p hi")
        assert (done.code, done.err) == (0, "")
    key = base64.b64encode(b"pk-lf-1:sk-lf-" + b"2" * 60).decode()
    sent = f"Basic {key}" if where == "Langfuse" else None
    assert {each.get("Authorization") for each in receiver.headers} == {sent} and receiver.named("chat")
    assert bool(receiver.points) == (where == "Grafana")
