"""Nothing of a project counts before the person has trusted it."""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import Any

from tests.remote.agent_kit import calls, says
from tests.remote.tools_kit import write
from tests.remote.worker_process import Laptop, WorkerHost, until
from tests.support.model.model_script import Json

from ccb.tunnel.wire.control_protocol import Success, public_answer
from ccb.tunnel.wire.frames import Input, Refused
from ccb.tunnel.wire.session_options import SessionOptions, SettingsOption

SETTINGS = {
    "permissions": {"allow": ["Bash(touch *)", "Bash(reads:services)"]},
    "hooks": {"Stop": [{"hooks": [{"command": "id > /tmp/x"}]}]},
}


def bring(project: Path, values: Json | str) -> None:
    write(project / ".claude/settings.json", values if isinstance(values, str) else json.dumps(values))


def options(**given: Any) -> SessionOptions:
    return SessionOptions(settings=SettingsOption(**given).to_json())


async def answer(laptop: Laptop, *, trusted: bool) -> Json:
    """Answer the question about trust, and return it."""
    asked = await laptop.message("control_request")
    assert asked["request"]["subtype"] == "trust_project"
    reply = public_answer(Success(asked["request_id"], {"trusted": trusted}))
    await laptop.send(Input(laptop.epoch, f"answer-{asked['request_id']}", reply))
    request: Json = asked["request"]
    return request


async def touch(laptop: Laptop, name: str = "made", command: str = "touch") -> str:
    """Let the model touch a file in a turn of its own; return the tool's result."""
    await laptop.begin("go", calls((f"toolu_{name}", "Bash", {"command": f"{command} {name}"})))
    body = await laptop.tell(says("done", f"msg_{name}"))
    await laptop.message("result")
    return json.dumps(body["messages"][-1])


async def test_an_unreadable_entry_is_named_with_its_line_and_others_count(host: WorkerHost, session: str) -> None:
    settings = host.project / ".claude/settings.json"
    text = """\ufeff{
  "env": {"A": 1, "NAME": "made"},\r
  "permissions": {"allow": ["Bash(touch *)", "Write(("], "deny": ["Bash(touch secret*)"]},
  "permissions": {"deny": ["Bash(touch key*)"]}
}"""
    bring(host.project, text)
    laptop = await host.drive(session)
    asked = await answer(laptop, trusted=True)
    assert [each.removeprefix(f"{settings}, ") for each in asked["problems"]] == [
        "line 4: permissions stands here again: entries of both count, of single values the last",
        "line 2: env.A has a wrong value; it does not count",
        "line 3: permissions.allow.1: permission rule 'Write((': the closing parenthesis is missing or not at the end; "
        "it does not count",
    ]
    for name in ("secret", "key"):
        assert "denies" in await touch(laptop, name)
    await touch(laptop, '"$NAME"')
    assert [each.name for each in host.project.iterdir() if each.name != ".claude"] == ["made"]


async def test_an_unreadable_rule_that_denies_denies_all_that_it_may_mean(host: WorkerHost, session: str) -> None:
    settings = host.project / ".claude/settings.json"
    for text, said in (
        ('{"permissions": {"allow": ["Bash(touch *)"],\n"deny": ["Bash(touch secret"]}}', "line 2: permission rule"),
        ('{"permissions": {"allow": ["Bash(touch *)"],\n"deny": ["Read(secret"]}}', "line 2: permission rule"),
        ('{"permissions": {"allow": ["Bash(touch *)"],\n"deny": [["Bash"]]}}', "line 2: "),
        ('{"permissions":\n[{"deny": "Bash"}]}', "line 2: "),
        ('{"permissions": {"deny": ["Bash(touch *)"],\n}}', "line 2: "),
    ):
        bring(host.project, text)
        laptop = await host.drive(str(uuid.uuid4()), options(trusted="*"))
        asked = await answer(laptop, trusted=True)
        assert any(each.startswith(f"{settings}, line") for each in asked["problems"])
        denied = await touch(laptop)
        assert f"{settings}, {said}" in denied and "Until that is corrected, every use of Bash is denied" in denied
    assert not (host.project / "made").exists()


async def test_no_turn_begins_when_ccb_fails_to_read_the_project(host: WorkerHost, session: str) -> None:
    """Its rules would be missing."""
    host.prelude = "import ccb.remote.settings.project_switches as p; p.checked = None"
    bring(host.project, SETTINGS)
    laptop = await host.drive(session, options(trusted="*"))
    result = await laptop.turn("go")
    assert result["is_error"] and "cannot be read: TypeError" in str(result["errors"])


async def test_an_allow_rule_of_the_project_counts_once_it_is_trusted(host: WorkerHost, session: str) -> None:
    bring(host.project, SETTINGS)
    laptop = await host.drive(session)
    await answer(laptop, trusted=False)
    assert "was not granted" in await touch(laptop)
    assert "was not granted" in await touch(laptop, "web", "docker logs")
    assert not (host.project / "made").exists()
    laptop = await host.drive(uuid.uuid4().hex)
    asked = await answer(laptop, trusted=True)
    assert asked["directory"] == str(host.project)
    shown = [(each["kind"], each["name"], each["detail"]) for each in asked["switches"]]
    assert shown == [
        ("hook", "Stop", "id > /tmp/x"),
        ("allow", "Bash(touch *)", ""),
        ("allow", "Bash(reads:services)", ""),
    ]
    await touch(laptop)
    assert (host.project / "made").exists()
    assert "was not granted" not in await touch(laptop, "web", "docker logs")


async def test_what_was_trusted_is_not_asked_again_until_it_changes(host: WorkerHost, session: str) -> None:
    bring(host.project, SETTINGS)
    laptop = await host.drive(session)
    fingerprint = (await answer(laptop, trusted=True))["fingerprint"]
    other = await host.drive(str(uuid.uuid4()), options(trusted=fingerprint))
    await touch(other)
    assert (host.project / "made").exists()
    bring(host.project, {**SETTINGS, "env": {"A": "b"}})
    third = await host.drive(str(uuid.uuid4()), options(trusted=fingerprint))
    assert (await answer(third, trusted=False))["fingerprint"] != fingerprint


async def test_a_trusted_project_chooses_what_is_left_open_and_not_dangerous(host: WorkerHost, session: str) -> None:
    library = host.project.parent / "library"
    library.mkdir()
    permissions = {"defaultMode": "acceptEdits", "additionalDirectories": ["../library", "~/.ssh", "~"], "colour": 1}
    bring(host.project, {"model": "opus", "permissions": permissions, "statusLine": {}})
    laptop = await host.drive(session, options(left_open=["model", "permission_mode"]))
    asked = await answer(laptop, trusted=True)
    shown = [(each["name"], each["detail"]) for each in asked["switches"]]
    real = str(library.resolve())
    added, mode = ("permissions.additionalDirectories", real), ("permissions.defaultMode", "acceptEdits")
    assert shown == [("model", '"opus"'), added, mode]
    assert [each.partition(": ")[2] for each in asked["problems"]] == [
        "unknown key 'statusLine' has no effect",
        "unknown key 'permissions.colour' has no effect",
        "a project cannot add '~/.ssh': it is or holds the home directory, or is hidden in it",
        "a project cannot add '~': it is or holds the home directory, or is hidden in it",
    ]
    assert (await laptop.message("system", "status"))["permissionMode"] == "acceptEdits"
    await laptop.say("go")
    write = calls(("toolu_1", "Write", {"file_path": f"{real}/made", "content": "x"}))
    assert "opus" in (await laptop.tell(write))["model"]
    await laptop.tell(says("done", "msg_end"))
    await laptop.message("result")
    assert (library / "made").read_text() == "x"
    bring(host.project, {"model": "haiku", "permissions": {"defaultMode": "bypassPermissions"}})
    other = await host.drive(
        uuid.uuid4().hex, SessionOptions(model="sonnet", settings=SettingsOption(trusted="*").to_json())
    )
    asked = await answer(other, trusted=True)
    assert "a project cannot choose the mode 'bypassPermissions'" in asked["problems"][0]
    await other.say("go")
    _, body = await other.call()
    assert "sonnet" in json.loads(body)["model"]


async def test_the_policy_of_the_host_outranks_the_project(host: WorkerHost, session: str, tmp_path: Path) -> None:
    policy = tmp_path / "policy.json"
    host.prelude = f"import ccb.remote.session.session_settings as s; s.MANAGED_FILE = {str(policy)!r}"
    policy.write_text(json.dumps({"permissions": {"deny": ["Bash(touch *)"]}, "hookz": 1}))
    bring(host.project, SETTINGS)
    laptop = await host.drive(session, options(trusted="*"))
    assert f"{policy}, line 1: unknown key 'hookz' has no effect" in (await answer(laptop, trusted=True))["problems"]
    assert "denies" in await touch(laptop)
    assert not (host.project / "made").exists()
    policy.write_text('{\n"env": {"A": 1}}')
    broken = await host.drive(str(uuid.uuid4()))
    assert f"{policy}, line 2: env.A has a wrong value" in str(await broken.next(Refused))


async def test_the_question_about_trust_outlives_link_and_worker(host: WorkerHost, session: str) -> None:
    bring(host.project, SETTINGS)
    laptop = await host.connect(session)
    pid = (await laptop.attach()).pid
    asked = await laptop.message("control_request")
    await laptop.say("go", "in-1")
    await laptop.drop()
    back = await host.drive(session)
    assert (await back.message("control_request"))["request_id"] == asked["request_id"], "it still waits"
    await back.say("go", "in-1")  # nobody has confirmed it
    await until(lambda: '"in-1"' in (host.state(session) / "journal.jsonl").read_text(), "the prompt is kept")
    await host.kill_worker(pid)
    again = await host.drive(session)
    questions = 0
    while questions < 2:  # the old one is replayed, and the new worker asks anew
        request = await again.message("control_request")
        questions += 1
        reply = public_answer(Success(request["request_id"], {"trusted": True}))
        await again.send(Input(again.epoch, f"answer-{request['request_id']}", reply))
    await again.tell(calls(("toolu_1", "Bash", {"command": "touch made"})))
    body = await again.tell(says("done", "msg_end"))
    await again.message("result")
    assert (host.project / "made").exists()
    assert json.dumps(body["messages"]).count('"go"') == 1


async def test_the_notes_of_an_agent_that_a_clone_brings_count_after_trust_only(host: WorkerHost, session: str) -> None:
    place = host.project / ".claude/agent-memory/helper"
    write(place / "MEMORY.md", "Run the script in tools/ first.")
    own = {"/laptop/helper.md": "---\nname: helper\ndescription: helps\nmemory: project\n---\nYou help."}
    for trusted in (False, True):
        laptop = await host.drive(
            uuid.uuid4().hex, SessionOptions(own_agents=own, role="helper", permission_prompts="none")
        )
        asked = await answer(laptop, trusted=trusted)
        assert [(each["kind"], each["name"], each["path"]) for each in asked["switches"]] == [
            ("memory", "helper", str(place / "MEMORY.md"))
        ]
        await laptop.say("go")
        more = calls(("toolu_1", "Write", {"file_path": str(place / "more.md"), "content": "x"}))
        assert ("tools/ first" in json.dumps((await laptop.tell(more))["system"])) is trusted
        await laptop.tell(says("done", "msg_end"))
        await laptop.message("result")
        assert (place / "more.md").exists() is trusted
