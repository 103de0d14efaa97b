"""The command line as a table: what is understood, what is refused and how."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccb.local.command_line.arguments import Arguments, Group
from ccb.local.command_line.option_values import read_rules
from ccb.local.command_line.parser import parse_arguments
from ccb.local.command_line.target import Target
from ccb.local.command_line.transport_choice import host_command, resume_command
from ccb.tunnel.errors import UsageError
from ccb.tunnel.wire.tool_traits import BUILT_IN

UUID = "0a1b2c3d-1111-4222-8333-444455556666"
ID = "3f2a9c1e-0000-4000-8000-000000000001"
DOCKER = "docker exec -i web"


def parse(*argv: str) -> Arguments:
    return parse_arguments(argv)


@pytest.mark.parametrize(
    ("argv", "directory", "prompt"),
    [
        (["ssh", "h"], None, None),
        (["ssh", "h:/srv"], "/srv", None),
        (["ssh", "h:/srv", "do", "it"], "/srv", "do it"),
        (["ssh", "h:/srv", "/compact it"], "/srv", "/compact it"),
        (["ssh", "h", "/srv/app", "do it"], "/srv/app", "do it"),
        (["ssh", "h", "~/app"], "~/app", None),
        (["ssh", "h", "./app", "go"], "~/./app", "go"),
        (["ssh", "h", "fix it"], None, "fix it"),
        (["ssh", "h:/srv", "-p", "do it"], "/srv", "do it"),
        (["ssh", "h", "-p", "/cost"], None, "/cost"),
        (["ssh", "h", "-p", "/review 123\nand /srv"], None, "/review 123\nand /srv"),
        (["ssh", "h", "--print", "--model", "opus", "/compact", "it"], None, "/compact it"),
        (["ssh", "h", "-p", "/srv/app", "do it"], "/srv/app", "do it"),
        (["ssh", "h", "/srv", "-p", "do it"], "/srv", "do it"),
        (["ssh", "-p", "h", "/srv", "do it"], "/srv", "do it"),
        (["ssh", "-p", "h:/srv", "do it"], "/srv", "do it"),
        (["-p", "ssh", "h:/srv", "do it"], "/srv", "do it"),
        (["ssh", "h:/srv", "-p", "--", "--help me"], "/srv", "--help me"),
        (["ssh", "h:/srv", "-p", "a", "--model", "opus", "b"], "/srv", "a b"),
    ],
)
def test_words_are_host_directory_prompt(argv: list[str], directory: str | None, prompt: str | None) -> None:
    arguments = parse(*argv)
    target = arguments.connection.target
    assert arguments.command == "ssh" and target is not None and target.host == "h"
    assert (arguments.directory, arguments.prompt) == (directory, prompt)


def test_with_print_a_word_that_can_be_a_slash_command_is_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert parse("-p", "/cost").prompt == "/cost" and parse("-p", "/model", "opus").prompt == "/model opus"
    assert (parse("-p", "/tmp", "go").directory, parse("-p", "/tmp", "go").prompt) == ("/tmp", "go")
    assert (parse("/cost").directory, parse("-p", "/nowhere/at/all", "go").directory) == ("/cost", "/nowhere/at/all")


def test_without_ssh_an_existing_directory_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "app").mkdir()
    monkeypatch.chdir(tmp_path)
    assert parse("app", "go").directory == str(tmp_path / "app")
    assert parse("app", "go").prompt == "go"
    assert (parse("fix", "it").directory, parse("fix", "it").prompt) == (str(tmp_path), "fix it")
    assert parse().connection.target is None
    assert parse("--", "ssh", "is broken").prompt == "ssh is broken"


@pytest.mark.parametrize("first", ["x" * 300, "ä" * 200, "~nosuchuser is what I typed", "~0", "a/" * 3000, "\udcff"])
def test_a_prompt_that_names_no_file_is_a_prompt(first: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    parsed = parse("-p", first, "go")
    assert (parsed.directory, parsed.prompt) == (str(tmp_path), f"{first} go")


def test_a_current_directory_that_is_gone_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    for argv in (["-p", "fix it"], [], ["./app"]):
        with pytest.raises(UsageError, match="current directory cannot be used") as refused:
            parse(*argv)
        assert refused.value.evidence == "No such file or directory"
    assert parse(str(tmp_path), "-p", "fix it").directory == str(tmp_path)
    assert parse("ssh", "h", "-p", "fix it").prompt == "fix it"


@pytest.mark.parametrize(
    ("topic", "says"),
    [
        (["docter"], "Did you mean `ccb help doctor`?"),
        (["nosuch"], "`ccb help` lists commands and topics."),
        (["sandbx"], "Did you mean `ccb help sandbox`?"),
        (["ssh", "host"], "Write `ccb help ssh`."),
        (["x" * 500], "`ccb help` lists commands and topics."),
    ],
)
def test_help_on_what_is_no_command_is_a_usage_error(topic: list[str], says: str) -> None:
    with pytest.raises(UsageError) as refused:
        parse("help", *topic)
    assert refused.value.do == says and len(refused.value.what) < 200


@pytest.mark.parametrize(
    "argv",
    [
        ["--model", "opus", "--max-turns", "3", "--allowedTools", "Bash(git *),Read", "--", "go"],
        ["--model=opus", "--max-turns=3", "--allowed-tools=Bash(git *) Read", "go"],
        ["go", "--allowed-tools", "Bash(git *)", "Read", "--max-turns", "3", "--model", "opus"],
    ],
)
def test_both_ways_to_give_values_and_both_spellings_mean_the_same(argv: list[str]) -> None:
    arguments = parse("ssh", "h:/x", "-p", *argv)
    assert (arguments.agent.model, arguments.agent.max_turns, arguments.prompt) == ("opus", 3, "go")
    assert arguments.permissions.allowed_tools == ("Bash(git *)", "Read")


def test_ssh_options_keep_their_order_and_may_be_attached() -> None:
    given = parse("ssh", "h", "-P2222", "-i", "a", "-ib", "-oUser = x", "-o", "Port 1").connection
    assert (given.port, given.identities, given.ssh_options) == (2222, ("a", "b"), ("User = x", "Port 1"))
    assert parse("ssh", "ssh://h:2222/x").connection.port == 2222
    assert parse("ssh", "ssh://h:2222/x", "-P", "2222").connection.target == Target("h", None, 2222, "/x")


def test_a_command_keeps_its_words_and_the_words_behind_the_dashes() -> None:
    login = parse("--model", "opus", "auth", "login", "--api-key-stdin", "openai")
    assert (login.rest, login.host_command.api_key_stdin) == (("login", "openai"), True)
    added = parse("mcp", "add", "-e", "KEY=-x", "notes", "--", "npx", "-y", "notes", "--model")
    assert (added.rest, added.host_command.env) == (("add", "notes", "npx", "-y", "notes", "--model"), ("KEY=-x",))
    shown = parse("config", "show", "h:/srv", "--origin", "-P", "22")
    assert shown.connection.target == Target("h", None, None, "/srv") and shown.directory == "/srv"


def test_a_value_may_start_with_a_dash_and_short_options_may_stand_together() -> None:
    text = "---\nrole: tester\n---"
    given = parse("ssh", "h", "--system-prompt", text, "--append-system-prompt", "-platform", "-cp", "go")
    assert (given.agent.system_prompt, given.agent.append_system_prompt) == (text, "-platform")
    assert given.session.continue_latest and given.streams.print and given.prompt == "go"


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["ssh"], "needs a host"),
        (["ssh", "--allowedTools", "Bash", "h:/x"], "--allowedTools"),
        (["ssh", "h", "--modle", "x"], "unknown option '--modle'"),
        (["ssh", "h", "--model"], "argument missing"),
        (["ssh", "h", "--model", "--print"], "argument missing"),
        (["ssh", "h", "--print=yes"], "takes no value"),
        (["ssh", "h", "--output-format", "xml"], "Allowed choices are text, json, stream-json."),
        (["ssh", "h", "--max-turns", "0"], "not a number from 1 to 999999"),
        (["ssh", "h", "--max-turns", "9" * 5000], "not a number from 1 to 999999"),
        (["ssh", "h", "--session-id", "42"], "Error: Invalid session ID. Must be a valid UUID."),
        (["ssh", "h", "-P", "70000"], "is not a port number"),
        (["ssh", "h", "--forward", "8080:70000"], "argument '8080:70000' is no port"),
        (["acp", "h", "--map", "srv=/mnt"], "argument 'srv=/mnt' does not name two absolute paths"),
        (["ssh", "h", "--map", "/srv=/mnt", "-p", "x"], "--map belongs to `ccb acp`"),
        (["ports", "h", "--reverse", "80:8080"], "is not one port, which is the same on both machines"),
        (["ssh", "ssh://h:1/x", "-P", "2"], "port 1"),
        (["ssh", "h", "-o", ""], "not an ssh option"),
        (["ssh", "h", "-p", "x", "--output-format", "stream-json"], "requires --verbose"),
        (["ssh", "h", "-p", "--input-format", "stream-json"], "requires output-format=stream-json"),
        (["ssh", "h", "-p", "x", "--include-partial-messages"], "requires --print and --output-format=stream-json"),
        (["ssh", "h", "-p", "x", "--replay-user-messages"], "requires both"),
        (["ssh", "h", "-p", "x", "--permission-prompt-tool", "stdio"], "requires --input-format=stream-json"),
        (["--permission-prompt-tool", "mcp__guard__decide"], "is for headless runs"),
        (["-p", "go", "--effort", "huge"], "--effort <level>' argument 'huge' is invalid. Allowed choices are low"),
        (["-i", "key"], "-i needs a host"),
        (["auth"], "ccb auth needs login, status, logout"),
        (["mcp", "fly"], "ccb mcp needs add, list, get, remove, test, login, logout, not 'fly'"),
        (["mcp", "add", "x"], "ccb mcp add does not go with 1 words"),
        (["usage", "all"], "ccb usage does not go with 1 words"),
        (["audit"], "ccb audit does not go with 0 words"),
        (["usage", "--by", "week"], "Allowed choices are host, model, day, session"),
        (["usage", "--days", "0"], "must be more than 0"),
        (["auth", "status", "--file"], "--file belongs to `ccb auth login`"),
        (["auth", "login", "--api-key-stdin", "--oauth-stdin"], "cannot be used together"),
        (["proxy", "list", "--all"], "--all belongs to"),
        (["models", "--colour"], "unknown option '--colour'"),
        (["import", "f.tar"], "a file and a place, not 1"),
        (["import", "f.tar", "app"], "'app' is no place for a session"),
        (["import", "--from", "other", "f.tar", "h:/a"], "Allowed choices are claude"),
        (["move"], "needs a place to move to"),
        (["send", "devbox:", "hello"], "needs a session"),
        (["move", "h", ID, "app"], "'app' is no place for a session"),
        (["move", "h", "nothing", "g:/a"], "'nothing' is not a session ID"),
        (["move", "--local", ID, "more", "h:/a"], "does not take 'more'"),
        (["move", "h", ID, "g:/a", "--with-files", "--no-files"], "cannot be used together"),
        (["cp", "h:/a"], "a source and a target, not 1"),
        (["cp", "h:/a", "b", "c"], "a source and a target, not 3"),
        (["cp", "a", "b"], "neither on a host"),
        (["cp", "h:a", "g:b"], "both on a host"),
        (["cp", "h:a", ""], "is empty"),
        (["cp", ":a", "b"], "neither on a host"),
        (["cp", "h:a", "b", "-p"], "no headless mode"),
        (["shell"], "ccb shell needs a host"),
        (["shell", "h", "0"], "takes one number"),
        (["shell", "h", "1", "2"], "takes one number"),
        (["shell", "h", "-p"], "no headless mode"),
        (["ps", "h", "--recursive"], "--recursive belongs to `ccb cp`"),
        (["ssh", "h", "--continue", "--resume", ID], "cannot be used together"),
        (["ssh", "h", "--fork-session"], "needs --continue or --resume"),
        (["--init-only", "-p", "go"], "--init-only starts a new session without a prompt"),
        (["--init-only", "--continue"], "--init-only starts a new session without a prompt"),
        (["--maintenance", "--init"], "cannot be used together"),
        (["--remote-bin", "claude", "--agent", "gemini"], "--remote-bin and --agent cannot be used together"),
        (["ssh", "h", "--session-id", ID, "--continue"], "--fork-session is also specified"),
        (["ssh", "h", "--view"], "belongs to"),
        (["ssh", "h", "--resume=nonsense"], "not a session ID"),
        (["ssh", "h", "-p", "go", "--resume"], "needs the ID"),
        (["ssh", "h", "--reconnect-timeout", "soon"], "not a number"),
        (["ssh", "h", "--reconnect-timeout=-1"], "not a number"),
        (["attach"], "needs a host"),
        (["logs", "h", "nope!"], "is not a session ID"),
        (["ps", "h", "--continue"], "belong to `ccb ssh`"),
        (["ssh", "h", "-o", "Foo", "-p", "x"], "argument 'Foo' is not an ssh option"),
        (["ssh", "h", "--forward", "80:0", "-p", "x"], "argument '80:0' is no port"),
        (["-p", "x", "--model", ""], "--model"),
        (["-p", "x", "--perm", "plan"], "unknown option '--perm'"),
        (["ssh", "-p", "hi there", "h"], "the host comes first"),
        (["stop", "h", ID, "--all"], "cannot be used together"),
        (["ps", "h:/path"], "without a path"),
        (["ps", "h", "what"], "does not take"),
        (["gc", "h", "--yes"], "belongs to `ccb clean`"),
        (["ps", "h", "-P", "1", "ssh://h:2"], "does not take"),
        (["ps", "ssh://h:2", "-P", "1"], "port 2"),
        (["stop", "--local", "--all", "-i", "key"], "-i needs a host"),
        (["pss"], "Did you mean `ccb ps`"),
        (["attch", "devbox"], "Did you mean `ccb attach`"),
        (["resumee"], "Did you mean `ccb resume`"),
        (["completion"], "ccb completion needs bash, zsh, fish"),
        (["completion", "csh"], "ccb completion needs bash, zsh, fish, not 'csh'"),
        (["completions", "bash"], "Did you mean `ccb completion`"),
        (["login", "openai"], "Did you mean `ccb auth login`"),
        (["update"], "Did you mean `ccb upgrade`? If it is a prompt: `ccb -- update`."),
        (["resume", "the", "work"], "ccb resume does not take 'work'"),
        (["resume", "h", "--continue"], "do not go with it"),
        (["resume", "h", "--worktree", "x"], "do not go with it"),
        (["stpo", "devbox", ID], "Did you mean `ccb stop`"),
        (["attach", "h", "--veiw"], "Did you mean --view"),
        (["--transport", "ssh", "say hi"], "belong to `ccb ssh`"),
        (["--container", "web", "say hi"], "belong to `ccb ssh`"),
        (["ssh", "h", "--local", "--transport", "ssh"], "--local excludes"),
        (["ps", "--local", "--ssh-command", "tsh ssh"], "--local excludes"),
        (["ssh", "h", "--transport", DOCKER, "--ssh-command", "tsh ssh"], "--ssh-command goes with"),
        (["ssh", "h", "--transport", "asyncssh", "--ssh-command", "tsh ssh"], "--ssh-command goes with"),
        (["ssh", "h", "--transport", DOCKER, "-P", "22"], "-P is for ssh"),
        (["ssh", "h", "--transport", DOCKER, "-i", "key"], "-i is for ssh"),
        (["ssh", "ann@h", "--transport", DOCKER], "user@ is for ssh"),
        (["ssh", "h", "--ssh-command", "tsh ssh", "-o", "A=b"], "-o is for ssh"),
        (["ssh", "h", "--transport", "docker 'exec"], "--transport cannot be read"),
        (["ssh", "h", "--transport", ""], "--transport names no command"),
        (["ssh", "h", "--ssh-command", " "], "--ssh-command names no command"),
        (["ssh", "h", "--container", "-it"], "is not a name of a container"),
        (["ssh", "h", "--devcontainer"], "--devcontainer needs the folder"),
        (["ssh", "h:/a", "--devcontainer", "--container", "web"], "--devcontainer excludes --container"),
        (["ssh", "--transport", "ssh"], "ccb ssh needs a host"),
        (["ps", "--transport", "ssh"], "needs a host"),
        (["gc", "--container", "web"], "needs a host"),
    ],
)
def test_what_makes_no_sense_is_refused(argv: list[str], says: str) -> None:
    with pytest.raises(UsageError) as refused:
        parse(*argv)
    assert says in str(refused.value) and "\n" not in refused.value.what


def test_a_prompt_swallowed_by_a_list_is_hinted_at() -> None:
    arguments = parse("ssh", "h:/x", "-p", "--allowedTools", "Bash", "fix it")
    assert arguments.prompt is None
    assert "--allowedTools" in arguments.hints[0]


def test_formats_make_a_run_headless_without_p() -> None:
    streams = ["--output-format", "stream-json", "--verbose", "--input-format", "stream-json"]
    assert parse("ssh", "h", *streams).headless
    assert parse("ssh", "h", "-p", "x").headless
    assert not parse("ssh", "h", "x").headless


@given(st.lists(st.text(max_size=12), max_size=8))
def test_any_words_are_arguments_or_a_usage_error(words: list[str]) -> None:
    try:
        parse_arguments(["ssh", "h", *words])
    except UsageError as error:
        assert error.what


@given(st.lists(st.from_regex(r"[A-Z][a-z]{1,5}(\([a-z ,*:]{0,8}\))?", fullmatch=True), max_size=6))
def test_rules_survive_being_joined_by_commas_or_spaces(rules: list[str]) -> None:
    assert read_rules(",".join(rules), "") == tuple(rules)
    assert read_rules(" ".join(rules), "") == tuple(rules)


def test_a_first_word_that_is_written_like_a_path_is_one_even_when_nothing_is_there() -> None:
    for word in ("/no/such/place", "./nowhere", "~/nowhere", ".."):
        arguments = parse_arguments([word, "-p", "look"])
        assert (arguments.prompt, Path(arguments.directory or "").is_absolute()) == ("look", True)
    arguments = parse_arguments(["-p", "/etc/hosts is wrong"])
    assert arguments.prompt == "/etc/hosts is wrong"


@pytest.mark.parametrize("word", ["h:/srv", "me@h:/srv/app", "h:~/app", "h:~", "ssh://h/srv"])
def test_a_place_on_a_host_without_ssh_is_no_prompt(word: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse(word, "-p", "x")
    assert f"Did you mean `ccb ssh {word}`" in caught.value.do
    assert parse("-p", "--", word).prompt == word


@pytest.mark.parametrize("option", ["--allowedTools", "--disallowedTools"])
def test_a_rule_for_a_tool_that_there_is_not_is_told(option: str) -> None:
    assert parse("-p", "x", option, *BUILT_IN).hints == ()
    hints = parse("-p", "x", option, "Nope(x)", "Bsh(git *)", "Bash(git *)", "Read").hints
    assert [hint for hint in hints if "no tool" in hint] == [
        f"{option} Nope(x): there is no tool of that name",
        f"{option} Bsh(git *): there is no tool of that name (did you mean Bash?)",
    ]


@pytest.mark.parametrize(
    ("argv", "host", "upload", "local", "remote"),
    [
        (["cp", "h:/a", "b"], "h", False, "b", "/a"),
        (["cp", "b", "h:/a"], "h", True, "b", "/a"),
        (["cp", "-r", "ann@h:a", "."], "h", False, ".", "~/a"),
        (["cp", "h:", "-R", "/tmp"], "h", False, "/tmp", "~"),
        (["cp", "./a:b", "[::1]:~/c"], "::1", True, "./a:b", "~/c"),
        (["cp", "ssh://h:22/a", "b", "-i", "key"], "h", False, "b", "/a"),
        (["cp", "--", "-b", "h:a"], "h", True, "-b", "~/a"),
    ],
)
def test_a_copy_has_one_side_on_a_host(argv: list[str], host: str, upload: bool, local: str, remote: str) -> None:
    arguments = parse(*argv)
    assert arguments.command == "cp" and arguments.connection.target is not None
    assert arguments.connection.target.host == host
    assert arguments.copy == (upload, local, remote)


@pytest.mark.parametrize(
    ("argv", "directory", "number"),
    [
        (["shell", "h"], None, ()),
        (["shell", "h:/p", "2"], "/p", ("2",)),
        (["shell", "--local"], os.getcwd(), ()),
        (["shell", "--transport", "x ssh", "3"], None, ("3",)),
    ],
)
def test_a_shell_is_in_a_place_and_may_have_a_number(
    argv: list[str], directory: str | None, number: tuple[str, ...]
) -> None:
    arguments = parse(*argv)
    assert (arguments.command, arguments.directory, arguments.rest) == ("shell", directory, number)


def fields_of(arguments: Arguments) -> dict[str, object]:
    groups = (arguments, *(getattr(arguments, each.attribute) for each in Group if each.attribute))
    return {name: value for group in groups for name, value in vars(group).items()}


@pytest.mark.parametrize(
    ("argv", "fields"),
    [
        (["ssh", "h:/p", "--continue"], {"continue_latest": True}),
        (["ssh", "h", "--session-id", UUID.upper()], {"session_id": UUID}),
        (["ssh", "h:/p", "-c", "-p", "go"], {"continue_latest": True, "prompt": "go", "print": True}),
        (["ssh", "h", "--resume", ID], {"resume": ID, "prompt": None}),
        (["ssh", "h", "-r", "3F2A", "go on"], {"resume": "3f2a", "prompt": "go on"}),
        (["ssh", "h", "--resume", "fix it"], {"resume": "", "prompt": "fix it"}),
        (["ssh", "h", "--resume"], {"resume": ""}),
        (["ssh", "h", f"--resume={ID}", "--fork-session"], {"resume": ID, "fork_session": True}),
        (["--resume", ID], {"command": "", "resume": ID, "target": None}),
        (["ssh", "h", "--reconnect-timeout", "0.5"], {"reconnect_timeout": 0.5}),
        (["resume", "h:/srv"], {"command": "ssh", "directory": "/srv", "continue_latest": True, "resume": None}),
        (["resume", "h", "-p", "go"], {"command": "ssh", "resume": "", "newest": True, "prompt": "go"}),
        (["resume", "-p", "go on"], {"command": "", "continue_latest": True, "prompt": "go on"}),
        (["resume", "h", "3f2a", "-p", "/compact"], {"resume": "3f2a", "directory": None, "prompt": "/compact"}),
        (["resume", "h", "3F2A"], {"command": "ssh", "resume": "3f2a", "newest": False, "prompt": None}),
        (["resume", ID], {"command": "", "resume": ID, "target": None}),
        (["resume"], {"command": "", "continue_latest": True, "directory_is_current": True}),
        (["resume", "/tmp", "--fork-session"], {"command": "", "continue_latest": True, "directory": "/tmp"}),
        (["resume", "--transport", DOCKER], {"command": "ssh", "continue_latest": True, "directory": None}),
        (["ps"], {"command": "ps", "target": None}),
        (["sessions", "h", "--json"], {"command": "ps", "json": True}),
        (["logs", "h"], {"resume": ""}),
        (["stop", "--transport", DOCKER], {"resume": "", "all": False}),
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
    assert fields_of(parse(*argv)).items() >= fields.items()


@pytest.mark.parametrize("command", ["ps", "attach", "logs", "stop", "gc", "clean"])
def test_every_command_takes_the_connection_options(command: str) -> None:
    more = {"stop": ["--all"], "logs": [ID]}.get(command, [])
    connection = parse_arguments([command, "ssh://ann@h:2222", "-i", "key", "-o", "ProxyJump=j", *more]).connection
    assert connection.target is not None
    assert (connection.target.login, connection.port) == ("ann@h", 2222)
    assert (connection.identities, connection.ssh_options) == (("key",), ("ProxyJump=j",))


@pytest.mark.parametrize(
    "argv",
    [
        *(["step", "through", "it"], ["clear the cache"], ["--", "clear", "it"], ["-p", "clear"]),
        *(["--", "resume"], ["--", "completion"], ["complete the tests"], ["fix", "it"], ["Why?"], ["-p", "resumee"]),
        *(["-p", "https://example.org"], ["-p", "note: /etc is odd"], ["-p", "a:b"], ["-p", "why h:/srv"]),
    ],
)
def test_a_prompt_that_resembles_a_command_or_a_host_is_a_prompt(argv: list[str]) -> None:
    assert parse(*argv).prompt == " ".join(word for word in argv if not word.startswith("-"))


def test_the_path_on_this_machine_comes_back_and_who_only_watched_watches_again() -> None:
    assert shlex.split(resume_command(Arguments(directory="/tmp"), ID)) == ["ccb", "/tmp", "--resume", ID]
    before = parse_arguments(["attach", "ann@h", "3f2a", "--view", "-P", "22", "-i", "a key"])
    words = shlex.split(resume_command(before, ID, directory="/srv/it's here"))
    assert words == ["ccb", "attach", "ann@h", ID, "-i", "a key", "-P", "22", "--view"]
    assert parse_arguments(words[1:]).host_command.view


@pytest.mark.parametrize(
    ("argv", "command"),
    [
        (["ssh", "ann@h:/srv/my app", "-P", "22", "-o", "ProxyJump=j"], ["ann@h", ID, "-P", "22", "-o", "ProxyJump=j"]),
        (["ssh", "[::1]:~/x"], ["[::1]", ID]),
        (["ssh", "h", "--container", "web"], ["h", ID, "--container", "web"]),
        (["ssh", "/x", "--transport", "docker exec -i web"], [ID, "--transport", "docker exec -i web"]),
        (["ssh", "h:/x", "--local"], ["--local", ID]),
        (["ssh", "h", "--local", "--container", "web"], ["--local", ID, "--container", "web"]),
        (["/tmp"], ["--local", ID]),
    ],
)
def test_the_command_for_the_host_of_a_session_reaches_it_the_same_way(argv: list[str], command: list[str]) -> None:
    before = parse(*argv)
    for name in ("logs", "stop"):
        words = shlex.split(host_command(before, name, ID))
        assert words == ["ccb", name, *command]
        after = parse_arguments(words[1:])
        assert (after.session.resume, after.connection.container) == (ID, before.connection.container)
