"""Names that would do harm if anything put them into a command line are only names, over every kind of transport."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.e2e.transports.test_transports import somewhere
from tests.support.hosts.sshd import Sshd, make_key
from tests.support.hosts.whole_session import Somewhere
from tests.support.model.model_script import uses
from tests.support.person.laptop import Here, Laptop

assert somewhere  # a fixture

NAME = '-rf it\'s "x" $(touch pwned) `touch pwned` ${IFS} ; touch pwned & | !a ~ * ünïcödé ☃ %h \\n\ntwo\\'


@pytest.mark.parametrize("way", ["asyncssh", "docker", "ssh", "wrapper", "sh -c", "srun --pty", "container over ssh"])
@pytest.mark.quick_rows(2)
async def test_a_directory_of_any_name_is_where_a_session_works_on(here: Here, way: str, somewhere: Somewhere) -> None:
    directory = somewhere.app / NAME
    directory.mkdir()
    directory.chmod(0o777)
    (directory / "here").touch()
    here.model.add(uses("Bash", command="ls; pwd"), {"text": "ok"})
    where = [f"{each}/{NAME}" if number == 1 else each for number, each in enumerate(somewhere.where)]
    done = await here.laptop.run([*where, "-p", "look", "--allowedTools", "Bash"])
    assert (done.code, done.stdout) == (0, "ok\n"), done.stderr
    said = here.model.requests[1].tool_result_text
    assert said.startswith("here\n") and NAME in said
    assert not list(somewhere.app.rglob("pwned")) and not list(here.laptop.home.rglob("pwned"))


@pytest.mark.quick_rows(3)
@pytest.mark.parametrize("way", [[], ["--transport", "ssh"], ["--ssh-command", "ssh"], ["--ssh-command", "fleet ssh"]])
@pytest.mark.parametrize("command", ["ssh", "doctor"])
async def test_a_host_or_a_user_is_never_an_option_or_a_command(laptop: Laptop, way: list[str], command: str) -> None:
    touch = f"touch {laptop.home}/pwned"
    for target in (f"-oProxyCommand={touch}", f"-oProxyCommand={touch}@host", "-lroot@host", f"a`{touch}`@h", "a$(id)"):
        done = await laptop.run([command, *way, "--", target])
        assert done.code == 2 and "Traceback" not in done.stderr, (target, done.stderr)
    assert not (laptop.home / "pwned").exists()


async def test_a_key_file_of_any_name_is_only_a_key_file(laptop: Laptop, sshd: Sshd, tmp_path: Path) -> None:
    odd = make_key(tmp_path / "odd")
    odd = odd.rename(tmp_path / "-oProxyCommand=touch pwned $(touch pwned) 'x'")
    for way in ([], ["--transport", "ssh"]):
        words = ["-P", str(sshd.port), "-i", str(odd), "-o", "IdentitiesOnly=yes", "-o", "StrictHostKeyChecking=no"]
        done = await laptop.run(["ps", "nobody@127.0.0.1", *words, *way])
        assert done.code == 77, done.stderr
    assert not list(tmp_path.rglob("pwned")) and not list(laptop.home.rglob("pwned"))
