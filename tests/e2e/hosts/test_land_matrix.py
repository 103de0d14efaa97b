"""Every login shell and every sshd runs the same session, or says in one line why it cannot. Root only."""

from __future__ import annotations

import socket
import subprocess
from pathlib import Path

import pytest
from tests.support.hosts.sshd import HostUser, Sshd, host_user
from tests.support.hosts.sshd import sshd as serve
from tests.support.hosts.whole_session import Somewhere, whole_session
from tests.support.person.laptop import Here

SHELLS = {
    "bash": ("/bin/bash", ".bashrc"),
    "dash": ("/bin/dash", ""),
    "zsh": ("/usr/bin/zsh", ".zshenv"),
    "fish": ("/usr/bin/fish", ".config/fish/config.fish"),
    "tcsh": ("/usr/bin/tcsh", ".tcshrc"),
    "ash": ("/usr/bin/busybox", ""),
}
"""Each login shell, and the start-up file that it reads for a command."""

NOISE = {
    "no newline": "printf 'Welcome to devbox'",
    "JSON": """printf '{"t":"hello","protocol":1}\\n'""",
    "a megabyte": "head -c 1000000 /dev/zero | tr '\\0' 'x'",
    "reads stdin": "read -t 0.2 line",
    "slow": "sleep 1; printf slow",
    "nothing": "",
}

LANDINGS = [
    ("fish", "slow", "MaxSessions 1"),
    ("zsh", "no newline", "DisableForwarding yes"),
    ("bash", "a megabyte", "RekeyLimit 1M"),
    ("bash", "reads stdin", "AllowTcpForwarding no"),
    ("dash", "nothing", "AllowStreamLocalForwarding no"),
    ("tcsh", "JSON", "Subsystem no-sftp internal-sftp"),
    ("ash", "nothing", "MaxStartups 1"),
    ("bash", "no newline", "Compression yes"),
]
"""Every shell, every noise of a start-up file and every restriction of a server at least once."""

BULK = {"RekeyLimit 1M": 6_000_000, "Compression yes": 300_000}
"""How many bytes the model says on that server."""


def at(user: HostUser, server: Sshd, *options: str) -> Somewhere:
    app = user.home / "app"
    app.mkdir()
    app.chmod(0o777)
    where = ["ssh", f"{user.name}@127.0.0.1:~/app", *server.client_options(), "--transport", "asyncssh", *options]
    return Somewhere(where, app, "~/app", socket.gethostname())


@pytest.mark.parametrize(("shell", "noise", "option"), LANDINGS)
@pytest.mark.quick_rows(2)
async def test_the_same_session_lands(here: Here, shell: str, noise: str, option: str, tmp_path: Path) -> None:
    program, rc = SHELLS[shell]
    path = Path(program)
    if shell == "ash":
        path = tmp_path / "ash"
        path.symlink_to(program)
    with host_user(tmp_path, str(path)) as user:
        if rc:
            (user.home / rc).parent.mkdir(parents=True, exist_ok=True)
            (user.home / rc).write_text(NOISE[noise] + "\n", encoding="ascii")
        async with serve(tmp_path / "strict", [option, "LogLevel DEBUG1"]) as server:
            where = at(user, server, *(["-o", "Compression=yes"] if option == "Compression yes" else []))
            here.laptop.settings(env={"CCB_MAX_CONTEXT_TOKENS": "9000000"})  # for the bulk
            await whole_session(here.laptop, here.model, where, bulk=BULK.get(option, 0))
            log = server.log.read_text(encoding="utf-8", errors="replace")
        assert option != "Compression yes" or "compression: zlib@openssh.com" in log
        assert option != "RekeyLimit 1M" or log.count("SSH2_MSG_NEWKEYS received") > 2, "one each for two logins"


REFUSED = {
    "nologin": ("/usr/sbin/nologin", "", "This account is currently not available."),
    "a restricted shell": ("/usr/bin/rbash", "", "rbash: line 1: exec: restricted"),
    "internal-sftp": ("/bin/bash", "ForceCommand internal-sftp", "This service allows sftp connections only."),
    "ForceCommand": ("/bin/bash", "ForceCommand echo only backups here", "only backups here"),
}


@pytest.mark.parametrize("account", REFUSED)
@pytest.mark.quick_rows(2)
async def test_an_account_that_runs_no_command_says_so_in_its_words(here: Here, account: str, tmp_path: Path) -> None:
    shell, option, says = REFUSED[account]
    with host_user(tmp_path, shell) as user:
        async with serve(tmp_path / "strict", [option]) as server:
            done = await here.laptop.run([*at(user, server).where, "-p", "hi"])
    assert (done.code, done.stdout) == (76, "")
    what, evidence, way_out = done.stderr.splitlines()
    assert what.startswith(f"ccb: {user.name}@127.0.0.1 did not run our command (exit code ")
    assert evidence == f"  It said: {says}"
    assert account.removeprefix("a ").removeprefix("internal-") in way_out
    assert not here.model.requests


@pytest.mark.parametrize("transport", ["asyncssh", "ssh"])
@pytest.mark.parametrize("what", ["-d", "-E"])
@pytest.mark.quick_rows(1)
async def test_an_expired_password_or_account_is_named(here: Here, what: str, transport: str, tmp_path: Path) -> None:
    with host_user(tmp_path) as user:
        subprocess.run(["chage", what, "0" if what == "-d" else "1", user.name], check=True)
        async with serve(tmp_path / "strict", ["UsePAM yes"]) as server:
            done = await here.laptop.run([*at(user, server, "--transport", transport).where, "-p", "hi"])
    assert (done.code, done.stdout) == (77, "")
    assert "ended the login: the account or its password has expired\n" in done.stderr
    assert f"Your {'password' if what == '-d' else 'account'} has expired" in done.stderr
    assert not here.model.requests


@pytest.mark.parametrize("most", [2, 8])
async def test_a_user_who_may_start_few_processes(here: Here, most: int, tmp_path: Path) -> None:
    searches = [{"type": "tool_use", "name": "Grep", "input": {"pattern": f"{number}"}} for number in range(6)]
    here.model.add({"blocks": searches}, {"text": "ok"})
    with host_user(tmp_path) as user:
        (user.home / ".bashrc").write_text(f"ulimit -u {most}\n", encoding="ascii")
        async with serve(tmp_path / "sshd") as server:
            done = await here.laptop.run([*at(user, server).where, "-p", "look"])
    if most == 8:
        assert (done.code, done.stdout) == (0, "ok\n"), done.stderr
        return
    assert (done.code, done.stdout) == (76, "")
    assert f"{user.name}@127.0.0.1 does not let this user start more processes\n" in done.stderr
    assert "fork" in done.stderr and "ulimit -u, TasksMax" in done.stderr
