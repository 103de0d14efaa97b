"""Commands that lead to a shell: how they get their line, how they fail, containers behind every login shell."""

from __future__ import annotations

import asyncio
import gc
import os
import re
import shlex
import subprocess
import sys
import traceback
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.machine.programs import shell_script
from tests.support.machine.waiting import until
from tests.support.person.login import everything

from ccb.deploy.bootstrap import launch
from ccb.deploy.bundle import load
from ccb.tunnel.errors import AuthFailed, ConfigError, ConnectionLost, DeployError, Node, Unreachable, UsageError
from ccb.tunnel.transports.command_transport import (
    CommandTransport,
    LocalTransport,
    PipeCommand,
    StderrTail,
    shell_argv,
    words_of,
    wrapper_argv,
)
from ccb.tunnel.transports.container import ContainerTransport, container_command, container_name
from ccb.tunnel.transports.login_failures import command_failure
from ccb.tunnel.transports.node import NodeTransport, node_line, node_words

SHELLS = ["bash", "dash", "zsh", "fish", "tcsh", "busybox sh"]


@asynccontextmanager
async def transport(text: str, notices: list[str] | None = None, **env: str) -> AsyncIterator[CommandTransport]:
    words = words_of(text, "--transport")
    command = PipeCommand("box", text, lambda line: shell_argv(words, line), partial(command_failure, "box", text))
    notice = notices.append if notices is not None else None
    made = CommandTransport(command, env={"PATH": os.environ["PATH"], **env}, notice=notice)
    try:
        yield made
    finally:
        await made.close()


@pytest.mark.parametrize(
    ("text", "argv"),
    [
        ("docker exec -i web", ["docker", "exec", "-i", "web", "sh", "-c", "LINE"]),
        ("docker exec -i 'my web' bash", ["docker", "exec", "-i", "my web", "bash", "-c", "LINE"]),
        ("kubectl exec -i pod --", ["kubectl", "exec", "-i", "pod", "--", "sh", "-c", "LINE"]),
        ("srun --pty", ["srun", "--pty", "sh", "-c", "LINE"]),
        ("srun --pty /bin/bash", ["srun", "--pty", "/bin/bash", "-c", "LINE"]),
        ("sh -c", ["sh", "-c", "LINE"]),
        ("su - ann -c", ["su", "-", "ann", "-c", "LINE"]),
        ("bash -lc", ["bash", "-lc", "LINE"]),
        ("ssh -J hop box", ["ssh", "-J", "hop", "box", "LINE"]),
        ("vagrant ssh --command={command} box", ["vagrant", "ssh", "--command=LINE", "box"]),
    ],
)
def test_where_the_line_goes(text: str, argv: list[str]) -> None:
    assert shell_argv(words_of(text, "--transport"), "LINE") == argv


@pytest.mark.parametrize(
    ("text", "argv"),
    [
        ("tsh ssh", ["tsh", "ssh", "ann@box", "LINE"]),
        ("gcloud compute ssh", ["gcloud", "compute", "ssh", "ann@box", "--command", "LINE"]),
        ("az ssh vm -n {host} --", ["az", "ssh", "vm", "-n", "ann@box", "--", "LINE"]),
        ("fly ssh console -a {host} -C {command}", ["fly", "ssh", "console", "-a", "ann@box", "-C", "LINE"]),
    ],
)
def test_where_a_wrapper_of_ssh_gets_host_and_line(text: str, argv: list[str]) -> None:
    assert wrapper_argv(words_of(text, "--ssh-command"), "ann@box", "LINE") == argv


@pytest.mark.parametrize("text", ["", "  ", "docker 'exec", "two\nlines", "nul\0", "''"])
def test_what_is_no_command_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        words_of(text, "--transport")


@given(st.lists(st.text(st.characters(exclude_characters="\0\n", exclude_categories=["Cs"])), min_size=1))
def test_words_are_those_of_a_shell(words: list[str]) -> None:
    words[0] = words[0] or "x"
    assert words_of(shlex.join(words), "--transport") == tuple(words)


async def test_a_pipe_carries_bytes_both_ways_and_the_exit_code() -> None:
    sent = bytes(range(256)) * 4096
    async with transport("sh -c") as box:
        pipe = await box.execute(f"head -c {len(sent)}; echo problem >&2; exit 7")
        writing = asyncio.create_task(pipe.write(sent))
        back = await everything(pipe)
        await writing
        assert back == sent and await pipe.exit_status() == 7
        assert pipe.stderr_tail() == "problem\n"
        assert not box.alive, "one that failed by itself is not the way any more"


async def test_commands_are_started_again_and_ended(tmp_path: Path) -> None:
    async with transport("sh -c") as box:
        for _ in range(2):
            pipe = await box.execute("echo $PPID")
            assert int(await pipe.read()) == os.getpid()
            assert await pipe.exit_status() == 0
            await pipe.close()
            assert box.alive
        pipe = await box.execute("setsid sleep 1000 & echo $!; exit 0")
        sleeper = psutil.Process(int(await pipe.read()))
        try:
            async with asyncio.timeout(20):
                await pipe.close()
        finally:
            sleeper.kill()
        pipe = await box.execute(f"cat >/dev/null; echo ended > {tmp_path}/ended")
        await pipe.close()
        assert (tmp_path / "ended").exists()
        pipe = await box.execute(f"sleep 1000 & echo $! > {tmp_path}/pid; echo on; wait")
        assert await pipe.read() == b"on\n"
        sleeper = psutil.Process(int((tmp_path / "pid").read_text()))
        box.abort()
        assert not box.alive
        async with asyncio.timeout(20):
            await box.close()
        await until(lambda: not sleeper.is_running() or sleeper.status() == psutil.STATUS_ZOMBIE)


async def test_a_pipe_that_breaks_is_told_to_its_writer_alone() -> None:
    logged: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: logged.append(context))
    async with transport("sh -c") as box:
        pipe = await box.execute("echo on; exec sleep 1000")
        assert await pipe.read() == b"on\n"
        writing = asyncio.create_task(pipe.write(bytes(1 << 20)))
        await asyncio.sleep(0)
        pipe.kill()
        with pytest.raises(ConnectionLost):
            await writing
    del pipe, box, writing
    gc.collect()
    assert logged == []


@pytest.mark.slow
async def test_closing_does_not_wait_for_who_does_not_read() -> None:
    here = LocalTransport()
    pipe = await here.execute("exec sleep 1000")
    writing = asyncio.create_task(pipe.write(b"x" * 1_000_000))
    await asyncio.wait({writing}, timeout=0.2)
    assert not writing.done()
    async with asyncio.timeout(60):
        await here.close()
        await asyncio.gather(writing, return_exceptions=True)


@pytest.mark.parametrize(
    ("line", "kind", "says"),
    [
        ("echo 'Error response from daemon: No such container: web' >&2; exit 1", Unreachable, "No such container"),
        ("echo 'permission denied while trying to connect to the socket' >&2; exit 1", AuthFailed, "permission denied"),
        ("echo 'error: You must be logged in to the server (Unauthorized)' >&2; exit 1", AuthFailed, "logged in"),
        ("echo 'exec: \"sh\": executable file not found in $PATH' >&2; exit 127", DeployError, "cannot run `sh`"),
        ("exit 3", Unreachable, "exit code 3"),
    ],
)
async def test_what_ends_at_once_says_why(line: str, kind: type[Exception], says: str, tmp_path: Path) -> None:
    async with transport(str(shell_script(tmp_path / "engine", line))) as box:
        with pytest.raises(kind) as caught:
            await launch(box, {"command": "ps"}, load())
        assert says in str(caught.value) and not box.alive


async def test_a_command_that_is_not_there_is_said_to_be_so() -> None:
    async with transport("no-such-engine exec") as box:
        with pytest.raises(UsageError, match="'no-such-engine'"):
            await box.execute("true")


async def test_what_a_command_says_while_it_connects_is_shown_harmlessly() -> None:
    notices: list[str] = []
    async with transport("sh -c", notices) as box:
        pipe = await box.execute(
            "printf 'open \\033[31mhttps://login\\r\\n' >&2; cat >/dev/null; echo on; echo later >&2"
        )
        await until(lambda: notices)
        assert notices == ["open https://login"]
        await pipe.close()


async def test_a_question_without_a_newline_is_shown() -> None:
    notices: list[str] = []
    async with transport("sh -c", notices) as box:
        pipe = await box.execute("printf 'first\\nGo on (Y/n)? ' >&2; read x; printf 'no\\nlast' >&2")
        await until(lambda: len(notices) == 2)
        await pipe.write(b"n\n")
        await until(lambda: len(notices) == 4)
        assert notices == ["first", "Go on (Y/n)? ", "no", "last"]
        await pipe.close()


PTY = """
import os, pty, sys, threading
pid, terminal = pty.fork()
if pid == 0:
    os.execvp(sys.argv[1], sys.argv[1:])
def feed():
    while data := os.read(0, 65536):
        os.write(terminal, data)
threading.Thread(target=feed, daemon=True).start()
try:
    while data := os.read(terminal, 65536):
        os.write(1, data)
except OSError:
    pass
os._exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""


async def test_a_terminal_that_cannot_be_made_plain_is_named(tmp_path: Path) -> None:
    (tmp_path / "terminal.py").write_text(PTY, encoding="utf-8")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "sh").symlink_to("/bin/sh")
    async with transport(f"{sys.executable} {tmp_path}/terminal.py /bin/sh", PATH=f"{tmp_path}/bin") as box:
        with pytest.raises(DeployError) as caught:
            await launch(box, {"command": "ps"}, load())
        assert "terminal instead of a pipe" in caught.value.what


@pytest.fixture
def engine(tmp_path: Path) -> Path:
    """A directory with a docker that runs what it is to run in the container `web` here."""
    path = shell_script(
        tmp_path / "engine" / "docker",
        '[ "$1 $2 $3" = "container inspect web" ] && exit 0\n'
        '[ "$1 $2 $3" = "exec -i web" ] || { echo "Error: No such container: $3" >&2; exit 1; }\n'
        'shift 3; INSIDE=yes exec "$@"',
    )
    return path.parent


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.quick_rows(3)
async def test_a_worker_starts_in_a_container_behind_any_login_shell(shell: str, engine: Path, tmp_path: Path) -> None:
    path = f"{engine}:{os.environ['PATH']}"
    text = f"{shell} -c {{command}}"
    async with transport(text, PATH=path, HOME=str(tmp_path), XDG_RUNTIME_DIR=str(tmp_path)) as host:
        launched = await launch(ContainerTransport(host, "web"), {"command": "ps"}, load())
        assert launched.uploaded
        await launched.pipe.close()


printable = st.text(st.characters(min_codepoint=32, max_codepoint=126, exclude_characters="'"))
unsafe = re.compile(r'\\(["$`\\]|$)')


@given(printable)
def test_any_script_arrives_in_the_container_as_it_was(text: str) -> None:
    """The line is read by two shells; what the inner one gets is the script."""
    if unsafe.search(text):
        with pytest.raises(ValueError, match="unchanged"):
            container_command("web", f"exec /bin/sh -c '{text}'")
        return
    line = container_command("web", f"exec /bin/sh -c '{text}'")
    docker = 'docker() { [ "$1" = container ] || printf %s "$6"; }; '
    script = line.removeprefix("exec /bin/sh -c '").removesuffix("'").replace("exec $E", "$E")
    said = subprocess.run(["bash", "-c", docker + script], capture_output=True, check=True)
    assert said.stdout.decode() == text


@given(printable)
def test_any_script_arrives_on_a_node_as_it_was(text: str) -> None:
    """Two shells read the line before the one of the node; the name of the node is one word."""
    if unsafe.search(text):
        return
    words = node_words(Node("n1", "b"), "ssh -o 'A b=$c' {node}")
    line = node_line(words, f"exec /bin/sh -c '{text}'")
    ssh = """ssh() { [ "$1 $2 $3" = '-o A b=$c n1' ] || exit 1; sh() { printf %s "$2"; }; eval "${4#exec /bin/}"; }; """
    script = line.removeprefix("exec /bin/sh -c '").removesuffix("'").replace("exec ", "", 1)
    said = subprocess.run(["bash", "-c", ssh + script], capture_output=True, check=True)
    assert said.stdout.decode() == text


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.quick_rows(3)
async def test_a_worker_starts_on_a_node_behind_any_login_shell(shell: str, tmp_path: Path) -> None:
    shell_script(tmp_path / "srun", 'while [ "$1" != sh ]; do shift; done; INSIDE=yes exec "$@"')
    path = f"{tmp_path}:{os.environ['PATH']}"
    async with transport(
        f"{shell} -c {{command}}", PATH=path, HOME=str(tmp_path), XDG_RUNTIME_DIR=str(tmp_path)
    ) as host:
        node = Node("n1", "b", job="14")
        launched = await launch(NodeTransport(host, node, node_words(node, "")), {"command": "ps"}, load())
        await launched.pipe.close()


SRUN = "srun --overlap --unbuffered --nodes=1 --ntasks=1"


@pytest.mark.parametrize(
    ("node", "command", "words"),
    [
        (Node("n1", "b", job="14"), "", f"{SRUN} --jobid 14 --nodelist n1 sh -c {{command}}"),
        (Node("n1.site", "b"), "oc rsh {node}", "oc rsh n1.site sh -c {command}"),
        (Node("n1", "b"), "go {node} {command} end", "go n1 {command} end"),
        (Node("n1", "b"), "/opt/bin/ssh -q {node}", "/opt/bin/ssh -q n1 {command}"),
        *((Node(name, "b"), "ssh {node}", "no name of a node") for name in ("", "-oA=b", "a b", "a;b", "n1\n", "é")),
        *((Node("n1", "b", job=job), "srun --jobid {job}", "is in no job") for job in ("", "1;id", "--help", "1\n")),
        (Node("n1", "b"), "ssh {node} 'a'\\''b'", "cannot be passed on"),
    ],
)  # fmt: skip
def test_the_name_that_a_host_gives_a_node_is_one_plain_word(node: Node, command: str, words: str) -> None:
    try:
        assert " ".join(node_words(node, command)) == words
    except ConfigError as error:
        assert words in error.what


@pytest.mark.parametrize("name", ["", "-it", "a b", "$(id)", "a;b", "a'b", "x\ny", "../x", "-u@x", "a b@x", "@x"])
def test_a_container_has_a_plain_name(name: str) -> None:
    with pytest.raises(UsageError):
        container_name(name)


async def test_a_container_that_is_not_there_and_a_host_without_an_engine_say_so(engine: Path) -> None:
    host = LocalTransport({"PATH": f"{engine}:{os.environ['PATH']}"})
    with pytest.raises(Unreachable) as missing:
        await launch(ContainerTransport(host, "db"), {"command": "ps"}, load())
    assert "No such container: db" in missing.value.evidence and "db on this machine" in missing.value.what
    line = container_command("web", "exec /bin/sh -c 'true'").replace("docker podman", "no-docker no-podman")
    pipe = await host.execute(line)
    error = ContainerTransport(host, "web").failure(await pipe.exit_status(), "")
    assert isinstance(error, DeployError) and "neither docker nor podman" in error.what
    await pipe.close()
    await host.close()


def test_of_a_traceback_on_stderr_only_the_last_line_is_evidence() -> None:
    tail = StderrTail()
    with pytest.raises(ValueError, match="bad") as raised:
        int("bad")
    trace = "".join(traceback.format_exception(raised.value))
    tail.feed(f"a note\n{trace}{trace}the end\n".encode())
    said = "ValueError: invalid literal for int() with base 10: 'bad'\n"
    assert tail.text() == f"a note\n{said}{said}the end\n"
