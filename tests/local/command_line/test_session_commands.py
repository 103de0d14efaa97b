"""Command lines about sessions that exist: what they mean, and the one that comes back."""

from __future__ import annotations

import shlex
from dataclasses import replace

import pytest

from ccb.local.command_line.arguments import Arguments, ConnectionOptions
from ccb.local.command_line.parser import parse_arguments
from ccb.local.command_line.transport_choice import host_command, resume_command
from ccb.tunnel.errors import UsageError

ID = "3f2a9c1e-0000-4000-8000-000000000001"


def given(arguments: Arguments) -> dict[str, object]:
    """The fields of all groups."""
    groups = (arguments, arguments.connection, arguments.session, arguments.agent, arguments.streams)
    return {name: value for group in (*groups, arguments.host_command) for name, value in vars(group).items()}


@pytest.mark.parametrize(
    ("argv", "fields"),
    [
        (["ssh", "h:/p", "--continue"], {"continue_latest": True}),
        (["ssh", "h:/p", "-c", "-p", "go"], {"continue_latest": True, "prompt": "go", "print": True}),
        (["ssh", "h", "--resume", ID], {"resume": ID, "prompt": None}),
        (["ssh", "h", "-r", "3F2A", "go on"], {"resume": "3f2a", "prompt": "go on"}),
        (["ssh", "h", "--resume", "fix it"], {"resume": "", "prompt": "fix it"}),
        (["ssh", "h", "--resume"], {"resume": ""}),
        (["ssh", "h", f"--resume={ID}", "--fork-session"], {"resume": ID, "fork_session": True}),
        (["--resume", ID], {"command": "", "resume": ID, "target": None}),
        (["ssh", "h", "--reconnect-timeout", "0.5"], {"reconnect_timeout": 0.5}),
        (["ps"], {"command": "ps", "target": None}),
        (["attach", "h"], {"command": "attach", "resume": ""}),
        (["attach", "h", "3f2a", "--view"], {"resume": "3f2a", "view": True}),
        (["logs", "h", "3f2a", "-n", "7"], {"resume": "3f2a", "lines": 7}),
        (["stop", "h", "--all"], {"all": True, "resume": None}),
        (["stop", "--local", ID], {"local": True, "resume": ID, "target": None}),
        (["gc", "h", "--dry-run", "--older-than", "7"], {"dry_run": True, "older_than": 7.0}),
        (["clean", "h", "--yes"], {"yes": True}),
    ],
)
def test_it_is_understood(argv: list[str], fields: dict[str, object]) -> None:
    assert given(parse_arguments(argv)).items() >= fields.items()


@pytest.mark.parametrize("command", ["ps", "attach", "logs", "stop", "gc", "clean"])
def test_every_command_takes_the_connection_options(command: str) -> None:
    more = {"stop": ["--all"], "logs": [ID]}.get(command, [])
    connection = parse_arguments([command, "ssh://ann@h:2222", "-i", "key", "-o", "ProxyJump=j", *more]).connection
    assert connection.target is not None
    assert (connection.target.login, connection.port) == ("ann@h", 2222)
    assert (connection.identities, connection.ssh_options) == (("key",), ("ProxyJump=j",))


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["ssh", "h", "--continue", "--resume", ID], "cannot be used together"),
        (["ssh", "h", "--fork-session"], "needs --continue or --resume"),
        (["ssh", "h", "--session-id", ID, "--continue"], "--fork-session is also specified"),
        (["ssh", "h", "--view"], "belongs to"),
        (["ssh", "h", "--resume=nonsense"], "not a session ID"),
        (["ssh", "h", "-p", "go", "--resume"], "needs the ID"),
        (["ssh", "h", "--reconnect-timeout", "soon"], "not a number"),
        (["ssh", "h", "--reconnect-timeout=-1"], "not a number"),
        (["attach"], "needs a host"),
        (["logs", "h"], "needs the ID"),
        (["logs", "h", ID, "-n", "99999999999"], "not a number from 1 to 999999"),
        (["stop", "h"], "or --all"),
        (["stop", "h", ID, "--all"], "cannot be used together"),
        (["ps", "h:/path"], "without a path"),
        (["ps", "h", "what"], "does not take"),
        (["gc", "h", "--yes"], "belongs to `ccb clean`"),
        (["ps", "h", "-P", "1", "ssh://h:2"], "does not take"),
        (["ps", "ssh://h:2", "-P", "1"], "port 2"),
        (["ps", "-P", "1"], "-P needs a host"),
        (["stop", "--local", "--all", "-i", "key"], "-i needs a host"),
        (["pss"], "Did you mean `ccb ps`"),
        (["attch", "devbox"], "Did you mean `ccb attach`"),
        (["stpo", "devbox", ID], "Did you mean `ccb stop`"),
        (["attach", "h", "--veiw"], "Did you mean --view"),
    ],
)
def test_what_makes_no_sense_is_said(argv: list[str], said: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_arguments(argv)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    "argv", [["step", "through", "it"], ["clear the cache"], ["--", "clear", "it"], ["learn"], ["-p", "clear"]]
)
def test_a_prompt_that_resembles_a_command_is_a_prompt(argv: list[str]) -> None:
    assert parse_arguments(argv).prompt == " ".join(word for word in argv if not word.startswith("-"))


def without_target(arguments: Arguments) -> ConnectionOptions:
    return replace(arguments.connection, target=None)


@pytest.mark.parametrize(
    "argv",
    [
        ["ssh", "ann@h:/srv/my app", "-P", "2222", "-i", "a key", "-o", "ProxyJump=j", "do it", "--model", "opus"],
        ["ssh", "[::1]:~/it's", "--continue"],
        ["ssh", "h"],
        ["attach", "ann@h", "3f2a", "-P", "22"],
        ["ssh", "h", "--local"],
        ["ssh", "h", "--no-pipelined-login"],
    ],
)
def test_the_command_that_comes_back_reaches_the_same_session_the_same_way(argv: list[str]) -> None:
    before = parse_arguments(argv)
    words = shlex.split(resume_command(before, ID, directory="/srv/it's here"))
    assert words[0] == "ccb"
    after = parse_arguments(words[1:])
    assert without_target(after) == without_target(before)
    assert after.connection.target is not None and before.connection.target is not None
    assert after.connection.target.login == before.connection.target.login
    assert (after.directory, after.session.resume, after.prompt) == ("/srv/it's here", ID, None)


def test_on_this_machine_the_path_comes_back() -> None:
    words = shlex.split(resume_command(Arguments(directory="/tmp"), ID))
    assert words == ["ccb", "/tmp", "--resume", ID]


def test_who_only_watched_comes_back_to_watch() -> None:
    before = parse_arguments(["attach", "ann@h", "3f2a", "--view", "-P", "22", "-i", "a key"])
    words = shlex.split(resume_command(before, ID, directory="/srv/it's here"))
    assert words == ["ccb", "attach", "ann@h", ID, "-P", "22", "-i", "a key", "--view"]
    assert parse_arguments(words[1:]).host_command.view


@pytest.mark.parametrize(
    ("argv", "command"),
    [
        (
            ["ssh", "ann@h:/srv/my app", "-P", "2222", "-o", "ProxyJump=j"],
            ["ann@h", ID, "-P", "2222", "-o", "ProxyJump=j"],
        ),
        (["ssh", "[::1]:~/x"], ["[::1]", ID]),
        (["ssh", "h", "--container", "web"], ["h", ID, "--container", "web"]),
        (["ssh", "/x", "--transport", "docker exec -i web"], [ID, "--transport", "docker exec -i web"]),
        (["ssh", "h:/x", "--local"], ["--local", ID]),
        (["ssh", "h", "--local", "--container", "web"], ["--local", ID, "--container", "web"]),
        (["/tmp"], ["--local", ID]),
    ],
)
def test_the_command_for_the_host_of_a_session_reaches_it_the_same_way(argv: list[str], command: list[str]) -> None:
    before = parse_arguments(argv)
    for name in ("logs", "stop"):
        words = shlex.split(host_command(before, name, ID))
        assert words == ["ccb", name, *command]
        after = parse_arguments(words[1:])
        assert (after.session.resume, after.connection.container) == (ID, before.connection.container)
