"""Which transport the command line chooses, which flags exclude each other, and the command that comes back."""

from __future__ import annotations

import os
import shlex
from dataclasses import replace
from pathlib import Path

import pytest
from tests.local.command_line.test_parser import DOCKER, parse

from ccb.local.command_line.transport_choice import (
    TransportKind,
    host_label,
    open_chosen_transport,
    public_host,
    resume_command,
    transport_kind,
)
from ccb.tunnel.secret import SECRET_VARIABLES
from ccb.tunnel.transports.login_prompts import NobodyToAsk

ID = "3f2a9c1e-0000-4000-8000-000000000000"


@pytest.mark.parametrize(
    ("argv", "kind", "host"),
    [
        (["ssh", "h"], TransportKind.ASYNCSSH, "h"),
        (["ssh", "h", "--transport", "asyncssh"], TransportKind.ASYNCSSH, "h"),
        (["ssh", "h", "--local"], TransportKind.LOCAL, "h"),
        (["ssh", "ann@h", "--transport=ssh", "-P", "22", "-i", "k", "-o", "A=b"], TransportKind.OPENSSH, "ann@h"),
        (["ssh", "h", "--ssh-command", "/opt/bin/ssh -F x", "-P", "22"], TransportKind.OPENSSH, "h"),
        (["ssh", "ann@h", "--ssh-command", "gcloud compute ssh"], TransportKind.WRAPPER, "ann@h"),
        (["ssh", "h", "--ssh-command", "tsh ssh", "--transport", "ssh"], TransportKind.WRAPPER, "h"),
        (["ssh", "web:/srv", "--transport", DOCKER], TransportKind.COMMAND, "web"),
        (["ssh", "--transport", DOCKER], TransportKind.COMMAND, DOCKER),
        (["ps", "--transport", DOCKER], TransportKind.COMMAND, DOCKER),
        (["ssh", "h:/srv", "--container", "web"], TransportKind.ASYNCSSH, "web on h"),
        (["ssh", "h:/srv", "--container", "web", "--transport", "ssh"], TransportKind.OPENSSH, "web on h"),
        (["ssh", "h:/srv", "--container", "web", "--local"], TransportKind.LOCAL, "web on h"),
        (["ssh", "--container", "web", "--transport", "sudo"], TransportKind.COMMAND, "web on sudo"),
    ],
)
def test_the_transport_and_what_the_host_is_called(argv: list[str], kind: TransportKind, host: str) -> None:
    connection = parse(*argv).connection
    assert (transport_kind(connection), host_label(connection)) == (kind, host)
    is_command = kind is TransportKind.COMMAND and connection.target is None
    assert public_host(connection) == ("a command" if is_command else host)


@pytest.mark.parametrize(
    ("argv", "directory", "prompt"),
    [
        (["ssh", "/srv", "do", "it"], "/srv", "do it"),
        (["ssh"], None, None),
        (["ssh", "-p", "/cost"], None, "/cost"),
        (["ssh", "/srv", "-p", "go"], "/srv", "go"),
        (["ssh", "~", "-p", "hi"], "~", "hi"),
        (["ssh", "web:/srv", "do it"], "/srv", "do it"),
        (["ssh", "web", "/srv", "do it"], "/srv", "do it"),
    ],
)
def test_a_command_leads_to_one_place_without_a_host(
    argv: list[str], directory: str | None, prompt: str | None
) -> None:
    arguments = parse(*argv, "--transport", DOCKER)
    assert (arguments.command, arguments.directory, arguments.prompt) == ("ssh", directory, prompt)


def test_host_commands_take_a_way_as_well() -> None:
    assert parse("stop", "3f2a", "--transport", DOCKER).session.resume == "3f2a"
    named = parse("stop", "cafe", "3f2a", "--transport", DOCKER)
    assert (host_label(named.connection), named.session.resume) == ("cafe", "3f2a")
    assert parse("attach", "--transport", DOCKER).session.resume == ""
    assert parse("clean", "--yes", "--transport", DOCKER).connection.target is None
    assert parse("ps", "h", "--container", "web").connection.container == "web"


@pytest.mark.parametrize(
    "argv",
    [
        ["ssh", "ann@h", "--transport", "ssh", "-P", "22", "-i", "a key", "-o", "ProxyJump=j"],
        ["ssh", "h", "--ssh-command", "gcloud compute ssh --zone 'my zone'"],
        ["ssh", "web:/x", "--transport", "docker exec -i 'my web'", "do it"],
        ["ssh", "/x", "--transport", DOCKER, "do it"],
        ["ssh", "--transport", DOCKER],
        ["attach", "3f2a", "--transport", DOCKER],
        ["ssh", "h:/x", "--container", "web", "--transport", "ssh"],
        ["ssh", "h", "--container", "web", "--local"],
        ["ssh", "ann@h:/srv/my app", "-P", "2222", "-i", "a key", "-o", "ProxyJump=j", "do it", "--model", "opus"],
        ["ssh", "[::1]:~/it's", "--continue"],
        ["ssh", "h"],
        ["attach", "ann@h", "3f2a", "-P", "22"],
        ["ssh", "h", "--local"],
        ["ssh", "h", "--no-pipelined-login"],
    ],
)
def test_the_command_that_comes_back_goes_the_same_way(argv: list[str]) -> None:
    before = parse(*argv)
    words = shlex.split(resume_command(before, ID, directory="/srv/it's here"))
    assert words[0] == "ccb"
    after = parse(*words[1:])
    assert replace(after.connection, target=None) == replace(before.connection, target=None)
    assert host_label(after.connection) == host_label(before.connection)
    assert (after.directory, after.session.resume, after.prompt) == ("/srv/it's here", ID, None)


async def test_no_secret_is_in_the_environment_of_what_leads_to_a_host(tmp_path: Path) -> None:
    secrets = dict.fromkeys(SECRET_VARIABLES, "sk-secret")
    for argv in (["ssh", "--transport", "sh -c"], ["ssh", "h", "--ssh-command", "env HOST={host} sh -c {command}"]):
        environ = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), **secrets}
        transport = await open_chosen_transport(parse(*argv).connection, NobodyToAsk(), environ)
        pipe = await transport.execute("env")
        said = b""
        while data := await pipe.read():
            said += data
        await pipe.close()
        await transport.close()
        assert b"PATH=" in said and b"sk-secret" not in said
