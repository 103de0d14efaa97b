"""Bash, BashOutput, KillShell: commands that are watched, limited, stopped with all they started."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import resource
import time
from pathlib import Path
from typing import Any

import pytest
from tests.remote.tools_kit import Toolbox, is_alive, open_toolbox, until

from ccb.remote.system.process import Process
from ccb.remote.tools.background_shells import BackgroundCommand
from ccb.remote.tools.background_tools import BashOutput
from ccb.remote.tools.bash import Bash
from ccb.remote.tools.output import MAX_OUTPUT_CHARS
from ccb.remote.tools.toolset import close_context


async def in_background(box: Toolbox, command: str) -> BackgroundCommand:
    """Start the first command in the background."""
    result = await box("Bash", command=command, run_in_background=True)
    assert "bash_1" in str(result.content) and result.structured["backgroundTaskId"] == "bash_1"
    return box.context.shells.by_id["bash_1"]


async def test_output_is_what_the_command_wrote(box: Toolbox) -> None:
    result = await box("Bash", command="echo out; echo err >&2; printf 'last'")
    assert (result.content, result.is_error) == ("out\nerr\nlast", False)
    facts = {"interrupted": False, "isImage": False, "noOutputExpected": False}
    assert result.structured == {"stdout": "out\nerr\nlast", "stderr": "", **facts}
    assert await box.text("Bash", command="true") == "(Bash completed with no output)"
    assert await box.text("Bash", command="echo $# ${1-none}; set -- a; echo $1") == "0 none\na"
    assert await box.text("Bash", command="cat; [[ a == a ]] && echo ${BASH_VERSION%%.*} | grep -c .") == "1"
    assert await box.text("Bash", command="cat <<'E'\nhere\nE\n# a comment") == "here"
    assert not box.updates, "the same lines would cross the link a second time"
    assert not list(box.outputs.glob("*.txt")), "a short output needs no file"


async def test_a_failure_has_its_code_and_its_output(box: Toolbox) -> None:
    assert await box.error("Bash", command="echo x; exit 3") == "Exit code 3\nx"
    assert await box.error("Bash", command="false") == "Exit code 1"
    assert await box.error("Bash", command="kill -9 $$") == "Exit code 137 (killed by signal 9)"
    error = await box.error("Bash", command="echo 'hi' )")
    assert "line 1: syntax error" in error
    assert "echo 'hi' )" in error
    assert str(box.outputs) not in error, "what is ours is not shown"
    assert "line 2: nowhere-at-all:" in await box.error("Bash", command="# a comment\nnowhere-at-all")


async def test_children_see_nothing_of_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "secret")
    monkeypatch.setenv("CCB_SESSION", "secret")
    async with open_toolbox(tmp_path) as box:
        text = await box.text("Bash", command="env")
    assert "secret" not in text
    assert "TERM=dumb" in text.split("\n")
    assert "GIT_EDITOR=true" in text.split("\n")


async def test_the_directory_stays_inside_the_session(box: Toolbox) -> None:
    root = str(box.root)
    (box.root / "it's a dir").mkdir()
    assert await box.text("Bash", command='cd "it\'s a dir"; pwd') == f"{root}/it's a dir"
    assert await box.text("Bash", command="pwd") == f"{root}/it's a dir"
    assert await box.error("Bash", command="cd ..; exit 4") == "Exit code 4"
    assert await box.text("Bash", command="pwd") == root
    text = await box.text("Bash", command="cd /; pwd")
    assert text == f"/\nShell cwd was reset to {root}"
    assert await box.text("Bash", command="pwd; (cd /; true)") == root
    box.context.add_dirs.append("/usr")
    assert await box.text("Bash", command="cd /usr/bin && pwd") == "/usr/bin"
    assert await box.text("Bash", command="pwd") == "/usr/bin"


async def test_a_command_too_slow_is_stopped_with_all_it_started(box: Toolbox) -> None:
    began = time.monotonic()
    hidden = "env -i setsid sh -c '(sleep 300 & echo $! > pid) &' & while [ ! -s pid ]; do :; done"
    text = await box.error("Bash", command=f"{hidden}; sleep 300 & echo $!; trap '' TERM; sleep 300", timeout=2000)
    assert time.monotonic() - began < 20
    head, pid = text.split("\n")
    assert head == "Command timed out after 2 s and was stopped, with all it had started."
    assert not is_alive(int((box.root / "pid").read_text()))
    await until(lambda: not is_alive(int(pid)))


async def test_an_interrupt_stops_all_that_was_started_and_leaves_what_was_printed(box: Toolbox) -> None:
    hidden = "sleep 300 & setsid sleep 301 & echo $! > two; echo $$ > one"
    command = f"seq 1 20000; trap '' TERM; {hidden}; while :; do sleep 1; done"
    running = asyncio.ensure_future(box("Bash", command=command))
    await until(lambda: (box.root / "one").exists() and (box.root / "one").read_text().endswith("\n"))
    pids = [int((box.root / name).read_text()) for name in ("one", "two")]
    assert all(map(is_alive, pids))
    began = time.monotonic()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert time.monotonic() - began < 20  # how fast it is stands in benchmarks/bash.py
    await until(lambda: not any(map(is_alive, pids)))
    (printed,) = box.printed
    assert printed.startswith("1\n2\n") and "19999\n20000\n" in printed and len(printed) <= MAX_OUTPUT_CHARS
    (kept,) = box.outputs.rglob("*.txt")
    assert f"is in {kept}" in printed and kept.read_text().startswith("1\n2\n")


async def test_a_command_that_just_starts_can_go_to_background(box: Toolbox, monkeypatch: pytest.MonkeyPatch) -> None:
    start = box.context.host.start

    async def moved(*arguments: Any, **more: Any) -> Process:
        assert box.context.shells.move_all()
        return await start(*arguments, **more)

    monkeypatch.setattr(box.context.host, "start", moved)
    assert "It goes on in the background with ID: bash_1" in await box.text("Bash", command="sleep 300")
    assert not box.context.shells.foreground


async def test_an_interrupt_while_a_command_is_ended_is_not_lost(box: Toolbox, monkeypatch: pytest.MonkeyPatch) -> None:
    ending = asyncio.Event()

    async def slow_to_cancel(process: Process) -> int:
        try:
            return await asyncio.Event().wait()
        finally:
            ending.set()
            await asyncio.sleep(0.05)

    monkeypatch.setattr(Process, "wait", slow_to_cancel)
    running = asyncio.ensure_future(box("Bash", command="sleep 300", timeout=1500))
    await ending.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


async def test_progress_shows_the_newest_lines_once_while_the_command_runs(box: Toolbox) -> None:
    command = "seq 1 50; sleep 0.5; while [ ! -e go ]; do sleep 0.01; done; echo done"
    running = asyncio.ensure_future(box("Bash", command=command))
    await until(lambda: bool(box.updates))
    update = box.updates[0]
    assert update["output"].splitlines() == [str(n) for n in range(31, 51)]
    assert update["total_bytes"] == len("".join(f"{n}\n" for n in range(1, 51)))
    assert update["elapsed_seconds"] >= 0
    (box.root / "go").touch()
    assert str((await running).content).endswith("done")
    assert all(each["total_bytes"] > update["total_bytes"] for each in box.updates[1:]), "nothing is shown twice"


async def test_a_long_output_is_head_path_and_tail(box: Toolbox) -> None:
    result = await box("Bash", command="seq 1 100000")
    text = str(result.content)
    assert len(text) <= 30_000
    assert text.startswith("1\n2\n")
    assert text.endswith("\n99999\n100000")
    path = result.structured["persistedOutputPath"]
    assert f"({len(Path(path).read_bytes()):,} bytes) is in {path}" in text
    assert Path(path).read_text() == "".join(f"{n}\n" for n in range(1, 100001))
    assert len(json.dumps(result.structured)) < 60_000
    assert (await box.text("Read", file_path=path, offset=50000, limit=1)).startswith("50000\t50000\n")


async def test_the_event_loop_stays_free_under_a_flood(box: Toolbox) -> None:
    running = asyncio.ensure_future(box("Bash", command="yes | head -c 300M"))
    longest = 0.0
    while not running.done():
        began = time.thread_time()  # what others take of a busy machine does not count
        await asyncio.sleep(0)
        longest = max(longest, time.thread_time() - began)
    assert longest < 0.5
    assert not running.result().is_error


@pytest.mark.parametrize(
    "command",
    [
        "while :; do sleep 0.02; done & echo $! > pid",
        "(setsid nohup sh -c 'echo $$ > pid; exec sleep 300' >/dev/null 2>&1 &)",
        "env -i setsid sh -c '(sleep 300 & echo $! > pid) &'",
    ],
)
async def test_what_a_command_leaves_ends_with_the_session_however_it_hides(box: Toolbox, command: str) -> None:
    await box.text("Bash", command=command)
    await until(lambda: (box.root / "pid").exists() and (box.root / "pid").read_text() != "")
    pid = int((box.root / "pid").read_text())
    assert is_alive(pid)
    await close_context(box.context)
    await until(lambda: not is_alive(pid))


async def test_what_runs_on_after_a_command_is_told_and_is_a_task_that_can_be_stopped(box: Toolbox) -> None:
    command = "env -i setsid sh -c 'sleep 300 & echo $! > pid' & while [ ! -s pid ]; do sleep 0.01; done"
    text = await box.text("Bash", command=command)
    pid = int((box.root / "pid").read_text())
    (task,) = box.context.tasks.running
    assert f"Still running after the command: sleep (pid {pid}). Its task is {task.id}; TaskStop ends it." in text
    assert task.description.startswith(f"sleep (pid {pid}), left running by: env -i setsid")
    assert not box.context.tasks.awaited, "a headless run does not wait for a server"
    await box.text("TaskStop", task_id=task.id)
    assert not is_alive(pid)
    assert task.end is not None and task.end.told
    assert task.status.value == "killed"
    assert "left running" not in await box.text("Bash", command="true & wait")
    assert not box.context.tasks.running


async def test_the_model_learns_that_the_session_has_stopped_a_server_but_not_that_one_has_ended(box: Toolbox) -> None:
    await box.text("Bash", command="sh -c 'while [ ! -e go ]; do sleep 0.01; done' &")
    await box.text("Bash", command="sleep 300 &")
    short, long = box.context.tasks.running
    (box.root / "go").touch()
    await until(short.over.is_set)
    await close_context(box.context)
    assert short.end is not None and long.end is not None
    assert (short.end.status.value, short.end.told) == ("completed", True)
    assert (long.end.status.value, long.end.told) == ("killed", False)


async def test_what_a_background_command_leaves_is_told_with_its_end(box: Toolbox) -> None:
    await box("Bash", command="env -i setsid sleep 300 & sleep 0.1", run_in_background=True)
    first = box.context.tasks.get("bash_1")
    assert first is not None
    await until(first.over.is_set)
    assert first.end is not None
    assert "completed (exit code 0). Still running after the command: sleep (pid " in first.end.summary
    (left,) = box.context.tasks.running
    await left.stop()
    assert not box.context.tasks.running


async def test_a_background_command_is_read_in_pieces(box: Toolbox) -> None:
    shell = await in_background(box, "echo one; while [ ! -e go ]; do sleep 0.01; done; echo two")
    await until(lambda: shell.output.total > 0)
    assert await box.text("BashOutput", bash_id="bash_1") == "<status>running</status>\n\n<stdout>\none\n</stdout>"
    assert await box.text("BashOutput", bash_id="bash_1") == "<status>running</status>\n\n(no new output)"
    (box.root / "go").touch()
    await shell.process.wait()
    text = await box.text("BashOutput", bash_id="bash_1")
    assert text == "<status>completed</status>\n\n<exit_code>0</exit_code>\n\n<stdout>\ntwo\n</stdout>"


async def test_a_filter_lets_only_matching_lines_through(box: Toolbox) -> None:
    shell = await in_background(box, "seq 1 100; exit 2")
    await shell.process.wait()
    text = await box.text("BashOutput", bash_id="bash_1", filter="^9.$|^5$")
    lines = "\n".join(["5", *map(str, range(90, 100))])
    assert text == f"<status>failed</status>\n\n<exit_code>2</exit_code>\n\n<stdout>\n{lines}\n</stdout>"
    assert "(no new output)" in await box.text("BashOutput", bash_id="bash_1")
    assert "regular expression" in (box.refusal("BashOutput", bash_id="bash_1", filter="(") or "")


async def test_a_flood_in_the_background_is_bounded(box: Toolbox) -> None:
    shell = await in_background(box, "seq 1 1000000")
    await shell.process.wait()
    text = await box.text("BashOutput", bash_id="bash_1")
    assert MAX_OUTPUT_CHARS < len(text) <= BashOutput.declaration.max_output_chars, "the pipeline does not cut it again"
    assert "\n999999\n1000000\n" in text
    assert shell.output.path in text


async def test_a_flood_whose_command_leaves_a_long_directory_is_cut_once(tmp_path: Path) -> None:
    root = tmp_path / ("d" * 200) / ("e" * 200)
    root.mkdir(parents=True)
    async with open_toolbox(root) as box:
        text = await box.text("Bash", command="seq 1 100000; cd /")
        assert text.endswith(f"Shell cwd was reset to {box.root}")
        assert MAX_OUTPUT_CHARS < len(text) <= Bash.declaration.max_output_chars


async def test_kill_shell_ends_the_command_and_its_children(box: Toolbox) -> None:
    shell = await in_background(box, "sleep 300 & echo $!; wait")
    await until(lambda: shell.output.total > 0)
    pid = int(shell.output.text())
    assert "killed shell: bash_1" in await box.text("KillShell", shell_id="bash_1")
    assert shell.task.told, "so it is not told again"
    await until(lambda: not is_alive(pid))
    assert "<status>killed</status>" in await box.text("BashOutput", bash_id="bash_1")
    assert "not running" in await box.error("KillShell", shell_id="bash_1")


async def test_a_command_that_has_ended_by_itself_was_not_stopped(box: Toolbox) -> None:
    shell = await in_background(box, "sleep 300 & exit 3")
    while shell.process.returncode is None:
        await asyncio.sleep(0)
    assert shell.task.end is None, "it is not known yet what it has left"
    await shell.task.stop()
    assert shell.task.end is not None and shell.task.end.summary.endswith("failed with exit code 3")


async def test_unknown_shells_are_named_with_the_known_ones(box: Toolbox) -> None:
    assert box.refusal("BashOutput", bash_id="bash_9") == "No shell found with ID: bash_9. Known: none."
    await box("Bash", command="true", run_in_background=True)
    assert box.refusal("KillShell", shell_id="x") == "No shell found with ID: x. Known: bash_1."


async def test_there_is_a_limit_to_background_commands(box: Toolbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ccb.remote.tools.bash.MAX_RUNNING", 2)
    for _ in range(2):
        await box("Bash", command="sleep 300", run_in_background=True)
    assert "KillShell first" in await box.error("Bash", command="sleep 300", run_in_background=True)
    assert box.context.shells.running == 2


async def test_what_cannot_be_run_is_refused_before_anybody_is_asked(box: Toolbox) -> None:
    assert "empty" in (box.refusal("Bash", command="  ") or "")
    assert "NUL" in (box.refusal("Bash", command="a\0b") or "")
    assert "600000" in (box.refusal("Bash", command="a", timeout=600_001) or "")
    assert "write it to a file" in (box.refusal("Bash", command="x" * 200_000) or "")
    assert box.refusal("Bash", command="a", timeout=0) is not None
    assert await box.text("Bash", command="echo " + "x" * 99_000 + " | wc -c") == "99001"


async def test_looking_is_read_only_and_what_moves_the_shell_runs_alone(box: Toolbox) -> None:
    reads = box.tools["Bash"].is_read_only
    assert reads({"command": "git status && ls -la"}) and reads({"command": "ls; pwd"})
    assert not any(reads({"command": each}) for each in ("rm x", "cd src && ls", "(command cd ..)"))
    assert not reads({"command": "ls", "run_in_background": True})


async def test_many_calls_leave_no_file_open_and_no_memory(box: Toolbox) -> None:
    await box("Bash", command="true")
    gc.collect()
    files, memory = len(os.listdir("/proc/self/fd")), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(30):
        await box("Bash", command="seq 1 50000")
    assert len(os.listdir("/proc/self/fd")) <= files
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory < 10_000
    assert not list(box.outputs.glob(".*"))
