"""`--devcontainer`: which container of the host it finds or starts, and what it takes from the file.

The engine and the devcontainer CLI are stand-ins: programs called docker and devcontainer on the PATH of the host.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tests.support.machine.programs import shell_script

from ccb.local.command_line.arguments import Arguments
from ccb.local.command_line.parser import parse_arguments
from ccb.local.connect.devcontainer import without_comments
from ccb.local.connect.host_connection import HostConnection
from ccb.tunnel.errors import CcbError, DeployError, UsageError
from ccb.tunnel.transports.login_prompts import NobodyToAsk

_DOCKER = """\
echo "$@" >> {top}/asked
case "$1" in
  ps) [ "$4" = "$(cat {top}/label)" ] && [ -f {top}/state ] && echo c0ffee; exit 0;;
  container) cat {top}/state;;
esac"""
_CLI = """\
echo "$@" >> {top}/asked
echo "[1 ms] building"; {result}"""


@dataclass
class Host:
    """This machine as a host, with a folder and the stand-ins."""

    top: Path
    folder: Path
    told: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.folder.mkdir()
        shell_script(self.top / "bin/docker", _DOCKER.format(top=self.top))
        (self.top / "label").write_text(f"label=devcontainer.local_folder={self.folder}")

    def has_file(self, text: str, name: str = ".devcontainer/devcontainer.json") -> None:
        (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
        (self.folder / name).write_text(text)

    def has_container(
        self, *, running: bool = True, name: str = "sleepy", metadata: object = (), file: str = ""
    ) -> str:
        labels = {"devcontainer.metadata": json.dumps(metadata)}
        if file:
            labels["devcontainer.config_file"] = f"/elsewhere/{file}"
        described: dict[str, Any] = {"Name": f"/{name}", "State": {"Running": running}, "Config": {"Labels": labels}}
        described["Mounts"] = [{"Source": str(self.top), "Destination": "/src"}]
        (self.top / "state").write_text(json.dumps([described]))
        return json.dumps([described])

    def has_cli(self, result: str) -> None:
        shell_script(self.top / "bin/devcontainer", _CLI.format(top=self.top, result=result))

    async def enter(self, *words: str, way: Sequence[str] = ("--local",)) -> tuple[Arguments, tuple[str, ...]]:
        arguments = parse_arguments(["ssh", f"box:{self.folder}", "--devcontainer", *words, *way])
        environ = {"PATH": f"{self.top}/bin:/usr/bin:/bin", "HOME": os.environ["HOME"]}
        async with HostConnection(arguments, NobodyToAsk(tell=self.told.append), environ) as host:
            return await host.placed(arguments)

    @property
    def asked(self) -> str:
        return (self.top / "asked").read_text()


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path, tmp_path / "it's $(touch pwned) an app")


async def test_the_running_container_is_used_with_user_folder_and_ports_of_the_file(host: Host) -> None:
    host.has_container()
    host.has_file("""{
        // "remoteUser": "root",
        "remoteUser": "vscode", /* and
        more */ "workspaceFolder": "/w/${localWorkspaceFolderBasename}",
        "initializeCommand": "touch pwned", "postAttachCommand": {"a": "touch pwned"},
        "forwardPorts": [3000, 5432, "db:6379", 70000,],
    }""")
    arguments, left = await host.enter("--forward", "8080:5432")
    assert (arguments.connection.container, arguments.connection.devcontainer) == ("vscode@sleepy", False)
    assert arguments.directory == f"/w/{host.folder.name}"
    assert arguments.ports.forwards == ("8080:5432", "3000")
    assert "db:6379, 70000 is left out" in left[0] and not host.told
    assert not list(host.top.rglob("pwned"))


@pytest.mark.parametrize(
    "file, metadata, container",
    [
        ({}, [], "sleepy"),
        ({}, [{"containerUser": "app"}, {"remoteUser": "node"}, {"remoteUser": "vscode"}], "vscode@sleepy"),
        ({"remoteUser": "me"}, [{"remoteUser": "vscode"}], "me@sleepy"),
        ({"containerUser": "me"}, [{"remoteUser": "vscode"}], "vscode@sleepy"),
        (None, [{"containerUser": "app"}], "app@sleepy"),
    ],
)
async def test_the_user_comes_from_the_file_or_the_image_and_the_folder_from_where_it_is_mounted(
    host: Host, file: object, metadata: object, container: str
) -> None:
    host.has_container(metadata=metadata)
    if file is not None:
        host.has_file(json.dumps(file), ".devcontainer.json")
    arguments, _ = await host.enter()
    assert (arguments.connection.container, arguments.directory) == (container, f"/src/{host.folder.name}")


async def test_without_one_that_runs_the_cli_of_the_host_starts_it_and_the_person_is_told(host: Host) -> None:
    host.has_file("{}")
    started = host.has_container()
    host.has_container(running=False)
    (host.top / "started").write_text(started)
    host.has_cli(f"cp {host.top}/started {host.top}/state")
    arguments, _ = await host.enter()
    assert arguments.connection.container == "sleepy"
    assert f"up --workspace-folder {host.folder}\n" in host.asked
    assert "runs the commands that devcontainer.json names" in host.told[0]
    assert not list(host.top.rglob("pwned"))


async def test_a_container_of_another_file_of_the_folder_is_not_taken(host: Host) -> None:
    host.has_file("{}")
    started = host.has_container(file=".devcontainer/devcontainer.json")
    (host.top / "started").write_text(started)
    host.has_container(file=".devcontainer/old/devcontainer.json", name="other")
    host.has_cli(f"cp {host.top}/started {host.top}/state")
    arguments, _ = await host.enter()
    assert arguments.connection.container == "sleepy"


async def test_the_variables_of_the_file_are_set_as_far_as_the_line_for_the_host_can_carry_them(host: Host) -> None:
    host.has_container(metadata=[{"remoteEnv": {"A": "image", "B": "image"}}])
    refused = {"IT'S": "x", "B AD": "", "QUOTE": "it's", "LINES": "a\nb", "NONE": None}
    host.has_file(json.dumps({"remoteEnv": {"A": 'file "$(touch pwned)`${localEnv:HOME}', **refused}}))
    arguments, left = await host.enter()
    assert arguments.connection.container_env == ('A=file \\"\\$(touch pwned)\\`${HOME-}', "B=image")
    assert all(each in left[0] for each in refused)


@pytest.mark.parametrize(
    "file, state, cli, said",
    [
        (None, None, "", "has no devcontainer.json"),
        ("{}", None, "", "it has no container yet"),
        ("{}", {"running": False}, "", "“sleepy” is stopped"),
        ("{}", None, "echo no space left >&2; exit 1", "no space left"),
        ('{"remoteUser": 7}', {}, "", "remoteUser: Input should be a valid string"),
        ("{", {}, "", "devcontainer.json"),
        ('{"remoteUser": "-u root"}', {}, "", "not a name of a container"),
        ('{"workspaceFolder": "w\\u001b[2J"}', {}, "", "no path"),
        ("{}", {"name": "-it"}, "", "not a name of a container"),
    ],
)
async def test_what_cannot_be_entered_says_why(
    host: Host, file: str | None, state: dict[str, Any] | None, cli: str, said: str
) -> None:
    if file is not None:
        host.has_file(file)
    if state is not None:
        host.has_container(**state)
    if cli:
        host.has_cli(cli)
    with pytest.raises(CcbError) as refused:
        await host.enter()
    assert said in str(refused.value)


async def test_a_host_that_answers_otherwise_is_given_up(host: Host) -> None:
    (host.top / "state").write_text("x" * 5_000_000)
    with pytest.raises(DeployError, match="cannot be read"):
        await host.enter()
    mute = shell_script(host.top / "bin/mute", "echo hello")
    with pytest.raises(DeployError, match="has not said which containers"):
        await host.enter(way=["--transport", str(mute)])
    host.folder.rmdir()
    with pytest.raises(UsageError, match="there is no directory"):
        await host.enter()


@pytest.mark.parametrize(
    "text, value",
    [
        (
            '{"a": "// no /* comment */ ,]", // one\n "b": [1, 2, /* x */ ], }',
            {"a": "// no /* comment */ ,]", "b": [1, 2]},
        ),
        ('{"a": "\\"//",}', {"a": '"//'}),
        ("[/* , */ 1]", [1]),
        (f"[1, {'/' * 100_000}\n 2, {'/**/' * 10_000} 3]", [1, 2, 3]),
        (f"[1] {'/* ' * 100_000}", [1]),
    ],
)
def test_comments_and_last_commas_are_no_json_and_go(text: str, value: object) -> None:
    assert json.loads(without_comments(text)) == value
