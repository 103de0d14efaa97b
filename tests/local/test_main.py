"""The command as a process: what it imports, what it says, its exit codes, before anything is connected."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import ccb
from ccb.local.command_line.arguments import OPTIONS
from ccb.local.command_line.subcommands import COMMANDS, HOST_COMMANDS, help_text, topics
from ccb.tunnel.wire.session_options import CLAUDE_CODE_VERSION

pytestmark = pytest.mark.programs

NEVER_START = (
    "import asyncio\nlater = asyncio.BaseEventLoop.call_later\n"
    "def never_start(loop, delay, call, *rest, **named):\n"
    "    late = 3600 if getattr(call, '__name__', '') == 'start' else delay\n"
    "    return later(loop, late, call, *rest, **named)\n"
    "asyncio.BaseEventLoop.call_later = never_start\n"
)
"""Nothing is loaded because a machine is so slow that there would be time for it."""

ROOT = Path(__file__).resolve().parents[2]
HEAVY = ("asyncssh", "textual", "anthropic", "openai", "aiohttp", "pydantic", "keyring")


def environ(home: Path | str, **more: str) -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "HOME": str(home), "PYTHONPATH": os.pathsep.join(sys.path), **more}


def python(code: str, home: Path | str = "/nonexistent", **more: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-c", code]
    return subprocess.run(argv, check=False, capture_output=True, text=True, timeout=60, env=environ(home, **more))


def ccb_run(home: Path, *argv: str, **more: str) -> subprocess.CompletedProcess[str]:
    argv = (sys.executable, "-m", "ccb", *argv)
    return subprocess.run(
        argv, check=False, input="", capture_output=True, text=True, timeout=30, env=environ(home, **more)
    )


def ccb_shell(home: Path, line: str, **more: str) -> subprocess.CompletedProcess[str]:
    """Run a line of bash in which `ccb` is this one; its stdout is where the line sends it."""
    argv = ["bash", "-c", f'ccb() {{ "{sys.executable}" -m ccb "$@"; }}\n{line}']
    return subprocess.run(argv, check=False, capture_output=True, text=True, timeout=60, env=environ(home, **more))


@pytest.mark.parametrize("argv", [["--help"], ["help"], ["ssh", "h", "--nonsense"], ["--version"], ["ssh", "h", "-v"]])
def test_understanding_the_command_line_imports_nothing_heavy(argv: list[str], tmp_path: Path) -> None:
    code = (
        "import sys\nfrom ccb.__main__ import main\n"
        f"sys.argv = ['ccb', *{argv!r}]\nmain()\n"
        f"sys.stderr.write(repr([name for name in {HEAVY!r} if name in sys.modules]))"
    )
    assert python(code, tmp_path).stderr.endswith("[]")


def test_the_memory_of_ccb_is_never_written_to_the_disk(tmp_path: Path) -> None:
    code = (
        "import resource\nfrom ccb.local.main import run\n"
        "resource.setrlimit(resource.RLIMIT_CORE, (resource.getrlimit(resource.RLIMIT_CORE)[1],) * 2)\n"
        "run(['config', 'show'])\nprint(resource.getrlimit(resource.RLIMIT_CORE)[0])"
    )
    assert python(code, tmp_path).stdout.splitlines()[-1] == "0"


KEYS = {"HOME": "/nonexistent", "ANTHROPIC_API_KEY": "k"}


@pytest.mark.parametrize(
    ("code", "never"),
    [
        ("import ccb.local.headless.headless_run", HEAVY),
        (
            "from ccb.local.connect.startup import load_startup\nfrom ccb.local.config.settings import EVERYTHING\n"
            "load_startup({'HOME': '/nonexistent'}, EVERYTHING)",
            ("aiohttp", "pydantic", "ccb.tunnel.proxy"),
        ),
        (
            "from ccb.local.config.settings import EVERYTHING\n"
            "from ccb.local.connect.startup import load_session_startup, load_startup\n"
            f"started = load_session_startup({KEYS!r}, load_startup({KEYS!r}, EVERYTHING))\n"
            "from ccb.local.ledger.proxy_control import call_policy\n"
            "from ccb.tunnel.proxy.auth_proxy import AuthProxy\n"
            "AuthProxy(started.provider, call_policy(started.settings, 'host'))",
            (*HEAVY, "http.client"),
        ),
    ],
    ids=["a headless run", "host commands without settings", "a session that is not attached yet"],
)
def test_nothing_heavy_is_loaded_before_it_is_needed(code: str, never: tuple[str, ...]) -> None:
    loaded = f"print([name for name in sys.modules if name.startswith({never!r})])"
    assert python(f"import sys\n{code}\n{loaded}").stdout == "[]\n"


def test_the_worker_is_on_its_way_before_what_its_session_needs_is_loaded(tmp_path: Path) -> None:
    code = (
        f"import os, sys\nfrom ccb.__main__ import main\n{NEVER_START}"
        "def hook(event, arguments):\n"
        "    if event == 'subprocess.Popen' and arguments[1][-1].startswith('exec /bin/sh -c '):\n"
        "        os.write(1, repr(sorted(sys.modules)).encode())\n"
        "        os._exit(0)\n"
        "sys.addaudithook(hook)\n"
        "sys.argv = ['ccb', '-p', 'go']\nmain()\n"
    )
    loaded = ast.literal_eval(python(code, tmp_path, ANTHROPIC_API_KEY="k").stdout)
    later = (
        *("ccb.tunnel.proxy", "ccb.tunnel.wire.journal_records", "ccb.local.ledger", "ccb.local.providers"),
        *("ccb.local.mcp", "ccb.local.credentials"),
        *("ccb.local.session.remote_session", "ccb.local.session.session_client"),
        *("ccb.local.headless.event_printer", "ccb.local.connect.project_trust"),
    )
    assert "ccb.deploy.bootstrap" in loaded
    assert not [name for name in loaded if name.startswith(later) or name in {*HEAVY, "yarl", "sqlite3"}]


def test_nothing_that_a_connection_can_wait_for_is_loaded_before_it_is_asked_for(tmp_path: Path) -> None:
    """What is loaded before the first packet delays every session; behind it there is time, and while `ssh -G` runs."""
    code = (
        f"import sys\nfrom ccb.__main__ import main\n{NEVER_START}"
        "def hook(event, arguments):\n"
        "    if event == 'socket.connect' and arguments[1] == ('127.0.0.1', 1):\n"
        "        sys.stdout.write(repr(sorted(sys.modules)))\n"
        "sys.addaudithook(hook)\n"
        "sys.argv = ['ccb', 'ssh', '127.0.0.1:~', '-P', '1', '-o', 'ConnectionAttempts=1', '-p', 'go']\nmain()\n"
    )
    loaded = ast.literal_eval(python(code, tmp_path, ANTHROPIC_API_KEY="k").stdout.splitlines()[0])
    later = ("ccb.tunnel.proxy", "ccb.deploy", "ccb.local.ledger", "ccb.local.providers", "ccb.local.credentials")
    also = ("ccb.local.files", "ccb.local.mcp", "ccb.local.connect.dialer", "ccb.tunnel.ssh.ssh_login", "sqlite3")
    assert "ccb.tunnel.ssh.carrier" in loaded
    assert not [
        name for name in loaded if name.startswith((*later, *also)) or name in {*HEAVY, "platform", "difflib", "uuid"}
    ]


def test_version(tmp_path: Path) -> None:
    for argv in (["--version"], ["-v"], ["ssh", "host", "--version"]):
        done = ccb_run(tmp_path, *argv)
        assert (done.returncode, done.stdout) == (0, f"{ccb.VERSION_ANSWER}\n")
    assert ccb.VERSION_ANSWER.split()[0] == CLAUDE_CODE_VERSION and ccb.__version__ in ccb.VERSION_ANSWER


@pytest.mark.parametrize("width", [80, 100, 120])
def test_the_overview_fits_on_60_lines_and_names_every_command(width: int) -> None:
    lines = help_text(width).splitlines()
    assert len(lines) <= 60 and max(map(len, lines)) <= width
    assert all(any(line.startswith(f"  ccb {name}") for line in lines) for name in COMMANDS)


def test_every_option_is_in_the_help_of_what_takes_it(tmp_path: Path) -> None:
    shown = "".join(help_text(100, name) for name in ("sdk", *COMMANDS)) + help_text(100)
    assert not [name for option in OPTIONS for name in option.names if name not in shown]
    assert "--json-schema" not in help_text(100, "ssh") and "--json-schema" in ccb_run(tmp_path, "help", "sdk").stdout


@pytest.mark.parametrize("command", ("ssh", "resume", *HOST_COMMANDS))
def test_the_help_of_a_command_is_its_own(command: str) -> None:
    one = help_text(100, command)
    assert f"ccb {command}" in one.splitlines()[0]
    own = {"view": "attach", "older_than": "gc", "yes": "clean trust", "lines": "logs", "session_id": "ssh"}
    for option in OPTIONS:
        if option.field in own:
            assert (option.names[0] in one) == (command in own[option.field].split())


def test_a_topic_is_a_page_of_the_guide(tmp_path: Path) -> None:
    assert ccb_run(tmp_path, "help").stdout == ccb_run(tmp_path, "--help").stdout
    done = ccb_run(tmp_path, "help", "sandbox")
    assert (done.returncode, done.stdout) == (0, (ROOT / "docs" / "guide" / "sandbox.md").read_text())
    assert ccb_run(tmp_path, "help", "--man").stdout == (ROOT / "docs" / "ccb.1").read_text()
    both = ccb_run(tmp_path, "help", "mcp").stdout
    assert both.startswith("Usage: ccb mcp add") and (ROOT / "docs" / "guide" / "mcp.md").read_text() in both
    assert "# " not in ccb_run(tmp_path, "mcp", "--help").stdout
    sources = "".join(path.read_text() for path in (ROOT / "local").rglob("*.py"))
    assert {"settings", "sdk"} <= {*re.findall(r"`ccb help ([a-z-]+)`", sources)} <= {*topics(), "sdk"}


def test_a_broken_settings_file_is_named(tmp_path: Path) -> None:
    settings = tmp_path / ".config" / "ccb" / "settings.json"
    settings.parent.mkdir(parents=True)
    settings.write_text("{nonsense")
    done = ccb_run(tmp_path, "-p", "hi", ANTHROPIC_API_KEY="sk-ant-x")
    assert done.returncode == 78
    assert str(settings) in done.stderr and "Traceback" not in done.stderr


def test_an_unwritable_home_does_not_matter_for_what_needs_none(tmp_path: Path) -> None:
    done = ccb_run(tmp_path / "missing", "ssh", "h", "--locl", XDG_STATE_HOME="/dev/null/x")
    assert done.returncode == 2


def test_an_interrupt_during_the_imports_is_code_130_without_a_traceback() -> None:
    done = python(
        "import os, signal, sys\n"
        "class Interrupting:\n"
        "    def find_spec(self, name, *_):\n"
        "        if name == 'ccb.local.command_line.parser': os.kill(os.getpid(), signal.SIGINT)\n"
        "from ccb.__main__ import main\n"
        "sys.meta_path.insert(0, Interrupting()); sys.argv = ['ccb', 'help']\n"
        "sys.exit(main())"
    )
    assert (done.returncode, done.stderr) == (130, "")


EVERY_EXCEPTION = """
import asyncio, os, sys
sys.stderr.write("")
from ccb.__main__ import main

class Raising:
    def find_spec(self, name, *_):
        if name == "ccb.local.main": raise self.error
finder = Raising()
sys.meta_path.insert(0, finder)
sys.argv = ["ccb", "help"]
for error in (RuntimeError("x"), RecursionError(), MemoryError(), OSError(5, "no"), BrokenPipeError(), UnicodeError(),
              UnicodeDecodeError("utf-8", b"x", 0, 1, "bad"), asyncio.CancelledError(), GeneratorExit(), EOFError(),
              BaseExceptionGroup("g", [ValueError()]), ModuleNotFoundError("No module named 'pydantic'"),
              SyntaxError("bad"), ValueError(chr(27) + "]52;c;eA==" + chr(7))):
    finder.error = error
    print(type(error).__name__, main())
"""


def test_every_exception_during_the_imports_is_a_message_with_code_70(tmp_path: Path) -> None:
    done = python(EVERY_EXCEPTION, tmp_path)
    assert done.returncode == 0, done.stderr
    names = [line.split() for line in done.stdout.splitlines()]
    assert len(names) == 14 and all(code == "70" for _, code in names)
    assert "Traceback" not in done.stderr and "\x1b" not in done.stderr
    assert done.stderr.count("  -> ") == 14
    assert "there is not enough memory" in done.stderr
    assert "damaged: ModuleNotFoundError\n  No module named 'pydantic'\n  -> Install ccb again." in done.stderr
    (log,) = (tmp_path / ".local" / "state" / "ccb").glob("*.log")
    assert "RecursionError" in log.read_text() and f"The details are in {log}" in done.stderr


def test_without_a_place_for_a_log_a_bug_names_its_place_in_the_code(tmp_path: Path) -> None:
    code = EVERY_EXCEPTION.replace('RuntimeError("x"),', 'RuntimeError("a detail"),')
    done = python(code, XDG_STATE_HOME="/dev/null/x")
    assert "a bug in ccb: RuntimeError\n  a detail (<string>:8)\n" in done.stderr
    assert "Traceback" not in done.stderr


def test_what_threads_and_finalizers_raise_does_not_reach_the_terminal(tmp_path: Path) -> None:
    done = python(
        "import logging, sys, threading\n"
        "from ccb.__main__ import main\n"
        f"sys.argv = ['ccb', '-p', 'hi']; sys.path.insert(0, {str(tmp_path)!r}); main()\n"
        "class Dying:\n"
        "    def __del__(self): raise ValueError('from a finalizer')\n"
        "def run(): raise ValueError('from a thread')\n"
        "sys.stderr.write('here:')\n"
        "thread = threading.Thread(target=run); thread.start(); thread.join(); Dying()\n"
        "logging.getLogger('asyncio').error('Task was destroyed but it is pending!')\n"
        "sys.stdout = open('/dev/full', 'w'); sys.stdout.write('x')"
    )
    assert done.stderr.endswith("here:"), done.stderr


def test_a_stderr_that_cannot_be_written_changes_nothing(tmp_path: Path) -> None:
    assert ccb_shell(tmp_path, "ccb ssh -p x 2>/dev/full").returncode == 2
    done = ccb_shell(tmp_path, "exec 3>&2; (ccb help nosuch; echo $? >&3) 2>&1 | true")
    assert done.stderr == "2\n"


def test_a_stdout_that_lacks_a_character_gets_another_one(tmp_path: Path) -> None:
    done = ccb_run(tmp_path, "help", "ssh", PYTHONIOENCODING="ascii")
    assert (done.returncode, done.stderr) == (0, "")
    binary = subprocess.run(
        [sys.executable, "-m", "ccb", "auth", "login", "--api-key-stdin"],
        check=False,
        input=b"\xff\xfe\x80",
        capture_output=True,
        timeout=30,
        env=environ(tmp_path, PYTHON_KEYRING_BACKEND="keyring.backends.null.Keyring"),
    )
    assert binary.returncode in (77, 78), binary.stderr
    assert b"Traceback" not in binary.stderr and b"a bug" not in binary.stderr


def test_an_interrupt_while_the_interpreter_ends_is_quiet() -> None:
    done = python(
        "import atexit, os, signal, sys\n"
        "from ccb.__main__ import main\n"
        "atexit.register(lambda: os.kill(os.getpid(), signal.SIGINT))\n"
        "sys.argv = ['ccb', 'help']; sys.exit(main())"
    )
    assert (done.returncode, done.stderr) == (-2, "")


def test_an_interrupt_after_the_result_changes_nothing() -> None:
    done = python(
        "import asyncio, os, signal, sys\n"
        "from ccb.local.terminal.signals import Interrupts\n"
        "async def work():\n"
        "    with Interrupts(last=True): pass\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n"
        "asyncio.run(work()); os.kill(os.getpid(), signal.SIGINT); sys.exit(7)"
    )
    assert (done.returncode, done.stderr) == (7, "")


@pytest.mark.parametrize("argv", [["auth", "status"], ["auth", "login", "--api-key-stdin"], ["-p", "hi"]])
def test_a_keyring_that_cannot_be_loaded_is_named_with_code_78(argv: list[str], tmp_path: Path) -> None:
    done = ccb_run(tmp_path, *argv, PYTHON_KEYRING_BACKEND="nosuch.Backend")
    assert done.returncode == 78, done.stderr
    assert "keyring backend nosuch.Backend cannot be loaded" in done.stderr
    assert "Correct PYTHON_KEYRING_BACKEND" in done.stderr and "Traceback" not in done.stderr


def test_a_reader_that_has_left_is_no_bug_where_python_does_not_buffer(tmp_path: Path) -> None:
    done = ccb_shell(tmp_path, "(ccb auth status --json; echo $? >&2) | true", PYTHONUNBUFFERED="1")
    assert done.stderr == "129\n"


@pytest.mark.parametrize("command", ["--version", "help", "ssh --help", "ps --local", "auth --help", "doctor --local"])
@pytest.mark.quick_rows(2)
def test_a_full_disk_behind_stdout_is_said_with_code_73(command: str, tmp_path: Path) -> None:
    small = {"COLUMNS": "40"}  # makes the help larger than the buffer
    done = ccb_shell(tmp_path, f"ccb {command} >/dev/full", XDG_RUNTIME_DIR=str(tmp_path), **small)
    assert done.returncode == 73, done.stderr
    assert done.stderr.count("stdout cannot be written: No space left on device") == 1
    assert "Traceback" not in done.stderr and "a bug" not in done.stderr and "Exception ignored" not in done.stderr


@pytest.mark.parametrize("sent", [">&-", "| true"])
@pytest.mark.parametrize("command", ["--version", "help", "auth --help"])
@pytest.mark.quick_rows(2)
def test_nobody_reading_stdout_is_code_129_without_a_word(command: str, sent: str, tmp_path: Path) -> None:
    done = ccb_shell(tmp_path, f'ccb {command} {sent}; exit "${{PIPESTATUS[0]}}"')
    assert done.returncode == 129, done.stderr
    assert done.stderr == ""
