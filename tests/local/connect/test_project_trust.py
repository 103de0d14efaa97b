"""What the worker is told about settings, and the answers to its question whether a project counts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import cast

import pytest

from ccb.local.command_line.parser import parse_arguments
from ccb.local.config.project_records import HostIdentity, Projects
from ccb.local.config.settings import Settings, SettingsChoice
from ccb.local.config.settings_loading import load_settings
from ccb.local.connect.project_trust import ProjectDesk
from ccb.local.connect.session_request import session_options
from ccb.local.session.remote_session import RemoteSession
from ccb.remote.hooks.hook_table import read_hooks
from ccb.remote.settings.worker_settings import Layer, Sourced
from ccb.tunnel.errors import ConfigError, UsageError
from ccb.tunnel.link.link import limited_hello
from ccb.tunnel.wire.control_protocol import ProjectTrust, Request, RequestFailed
from ccb.tunnel.wire.frames import Hello

HELLO = limited_hello(Hello(1, "bundle", "session", 1, "3.11", "linux", "/srv/shop", 0, 0, "idle"), "devbox")
QUESTION = ProjectTrust("/srv/shop", "mark", [{"kind": "hook", "name": "Stop", "detail": "make"}], ["it is broken"])
LOCAL = HostIdentity("local", ("local",))


class Reader:
    """The reader of a session's events, who gives these answers; without them it answers no such question."""

    def __init__(self, answers: list[bool]) -> None:
        self.answers = answers
        self.asked: list[ProjectTrust] = []
        self.told: list[str] = []

    async def ask_reader(self, request: Request[ProjectTrust, bool]) -> bool:
        if not self.answers:
            raise RequestFailed("nobody answers")
        self.asked.append(request.payload)
        return self.answers.pop(0)

    def warn(self, text: str) -> None:
        self.told.append(text)


@pytest.fixture
def desk(projects: Projects) -> ProjectDesk:
    return ProjectDesk(parse_arguments([]), Settings(), projects)


@pytest.fixture
def projects(tmp_path: Path) -> Projects:
    return Projects({"HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path / "config")})


def settings_with(values: object, tmp_path: Path) -> Settings:
    choice = SettingsChoice(user=False, flag=json.dumps(values))
    return load_settings({"HOME": str(tmp_path)}, choice)


async def test_the_worker_is_told_what_concerns_it_and_nothing_else(projects: Projects, tmp_path: Path) -> None:
    given = {"permissions": {"deny": ["Read(/a)"]}, "apiKeyHelper": "pass", "mcpServers": {"x": {"command": "y"}}}
    projects.change_rules(LOCAL, "/srv/shop", "allow", ["Bash(make)"], add=True)
    projects.trust(LOCAL, "/srv/shop", "mark")
    desk = ProjectDesk(parse_arguments(["--setting-sources", "user"]), settings_with(given, tmp_path), projects)
    option = await desk.option(HELLO)
    assert [(each["source"], each["values"]) for each in option.layers] == [
        ("flag", {"permissions": {"deny": ["Read(/a)"]}}),
        ("kept", {"permissions": {"allow": ["Bash(make)"]}}),
    ]
    assert (option.sources, option.trusted) == (["user"], "mark")


async def test_the_worker_that_checks_hooks_is_told_where_they_stand(projects: Projects, tmp_path: Path) -> None:
    text = '{"hooks": {\n"Stop": [\n{"hooks": [{"type": "command"}]}]}}'
    settings = load_settings({"HOME": str(tmp_path)}, SettingsChoice(user=False, flag=text))
    (layer,) = (await ProjectDesk(parse_arguments([]), settings, projects).option(HELLO)).layers
    problems: list[str] = []
    source = Layer("flag", layer["path"], {}, lines=layer["lines"])
    read_hooks([Sourced(layer["values"]["hooks"], source)], problems.append)
    assert len(problems) == 1 and problems[0].startswith("--settings, line 3: hooks.Stop.0.hooks.0: ")


async def test_settings_that_are_too_large_for_the_worker_are_refused(projects: Projects, tmp_path: Path) -> None:
    settings = settings_with({"permissions": {"deny": ["Read(/a)" * 20_000]}}, tmp_path)
    with pytest.raises(ConfigError, match="the settings for the worker are larger than"):
        await ProjectDesk(parse_arguments([]), settings, projects).option(HELLO)


async def test_a_yes_is_kept_and_not_asked_for_again(projects: Projects) -> None:
    session = Reader([False, True])
    for expected in (False, True, True):
        desk = ProjectDesk(parse_arguments([]), Settings(), projects)
        assert await desk.answer(cast(RemoteSession, session), QUESTION) == {"trusted": expected}
    assert session.asked == [QUESTION, QUESTION] and session.told == ["on the host: “it is broken”"] * 3


async def test_what_nobody_can_be_asked_about_does_not_count_and_is_said(desk: ProjectDesk) -> None:
    session = Reader([])
    assert await desk.answer(cast(RemoteSession, session), QUESTION) == {"trusted": False}
    assert session.told[1:] == [
        "“/srv/shop” is not trusted, so this does not count: hook Stop make (--trust lets it count)"
    ]


async def test_always_keeps_a_rule_under_the_directory_of_the_session(projects: Projects, desk: ProjectDesk) -> None:
    await desk.option(HELLO)
    rule = {"type": "addRules", "behavior": "allow", "rules": [{"toolName": "Bash", "ruleContent": "make *"}]}
    await desk.keep([{**rule, "destination": "session"}, {"type": "setMode", "destination": "localSettings"}])
    assert not projects.path.exists()
    await desk.keep([{**rule, "destination": "localSettings"}])
    assert projects.find(LOCAL, "/srv/shop").permissions == desk.kept_rules == {"allow": ["Bash(make *)"]}
    layers = (await desk.option(HELLO)).layers
    assert [(each["source"], each["values"]) for each in layers] == [
        ("kept", {"permissions": {"allow": ["Bash(make *)"]}})
    ]
    other = {"type": "addDirectories", "directories": ["/srv/lib"], "destination": "userSettings"}
    replaced = {**rule, "rules": [{"toolName": "Read"}], "type": "replaceRules", "destination": "projectSettings"}
    added = {**other, "directories": ["/x"]}
    await desk.keep([replaced, other, added, {**added, "type": "removeDirectories"}])
    kept = projects.find(LOCAL, "/srv/shop").permissions
    assert kept == {"allow": ["Read"], "additionalDirectories": ["/srv/lib"]}
    await desk.keep([{**replaced, "type": "removeRules"}])
    assert not desk.kept_rules.get("allow"), "it counts on this laptop at once"


async def test_the_rule_for_what_operators_read_is_kept_for_the_whole_host(
    projects: Projects, desk: ProjectDesk
) -> None:
    reading = {"toolName": "Bash", "ruleContent": "reads:services"}
    update = {"type": "addRules", "behavior": "allow", "destination": "localSettings", "rules": [reading]}
    await desk.option(HELLO)
    await desk.keep([update])
    assert desk.kept_rules == {"allow": ["Bash(reads:services)"]}
    assert projects.find(LOCAL, "/another").permissions == {"allow": ["Bash(reads:services)"]}
    assert projects.find(HostIdentity("other", ("key 2",)), "/another").permissions == {}
    await desk.keep([{**update, "type": "removeRules"}])
    assert projects.find(LOCAL, "/another").permissions == {}


async def test_a_policy_can_rule_out_that_permissions_are_bypassed(projects: Projects, tmp_path: Path) -> None:
    settings = settings_with({"permissions": {"disableBypassPermissionsMode": "disable"}}, tmp_path)
    with pytest.raises(UsageError, match="the settings do not allow the permission mode bypassPermissions"):
        session_options(parse_arguments(["--dangerously-skip-permissions"]), settings)
    assert session_options(parse_arguments(["--permission-mode", "dontAsk"]), settings).permission_mode == "dontAsk"
