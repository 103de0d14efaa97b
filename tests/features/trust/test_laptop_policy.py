"""What the policy of the laptop's owner holds on the host: nobody who drives the session gets around it."""

from __future__ import annotations

import json
import os
from typing import Any

import pytest
from tests.features.trust.test_trust import answer, bring
from tests.remote.agent_kit import calls, says
from tests.remote.tools_kit import write
from tests.remote.worker_process import Laptop, WorkerHost
from tests.support.model.model_script import Json
from tests.support.worker.cages import NO_CAGE

from ccb.tunnel.wire.frames import Refused
from ccb.tunnel.wire.session_options import SessionOptions, SettingsOption

CAGED: Json = {"policy": {"sandbox": "read-only"}}
NO_BYPASS: Json = {"permissions": {"disableBypassPermissionsMode": "disable"}}


def under(values: Json, *others: Json, **given: Any) -> SessionOptions:
    """Options under a policy, which no layer of the person outranks."""
    layers = [{"source": "managed", "path": "/etc/ccb/policy.json", "values": values}]
    layers += [
        {"source": source, "path": source, "values": each} for each in others for source in ("user", "flag", "kept")
    ]
    return SessionOptions(settings=SettingsOption(layers, trusted="*").to_json(), permission_prompts="stdio", **given)


async def grant(laptop: Laptop, update: Json) -> Json:
    """Answer an approval with a permission update, as a card, an SDK or an editor may. Return the next request."""
    await laptop.begin("go", calls(("toolu_1", "Bash", {"command": "mkdir made"})))
    asked = await laptop.message("control_request")
    answer = {"behavior": "allow", "updatedPermissions": [{**update, "destination": "session"}]}
    await laptop.reply(asked["request_id"], answer)
    request = await laptop.tell(says("done", "msg_end"))
    await laptop.message("result")
    return request


@pytest.mark.parametrize("policy", [NO_BYPASS, CAGED], ids=["no bypass", "sandbox"])
async def test_no_way_leads_to_bypass(host: WorkerHost, session: str, policy: Json) -> None:
    host.more_env["IS_SANDBOX"] = "1"  # else root may not bypass anyway
    bring(host.project, {"permissions": {"defaultMode": "bypassPermissions"}})
    given = {"permission_mode": "bypassPermissions", "allow_bypass": True}
    laptop = await host.drive(session, under(policy, {"permissionMode": "bypassPermissions"}, **given))
    await answer(laptop, trusted=True)
    await grant(laptop, {"type": "setMode", "mode": "bypassPermissions"})
    tried = [
        await laptop.request("set_permission_mode", mode="bypassPermissions"),
        await laptop.request("apply_flag_settings", settings={"permissions": {"defaultMode": "bypassPermissions"}}),
    ]
    assert {each["subtype"] for each in tried} == {"error"}, tried
    await laptop.request("initialize", permissionMode="bypassPermissions", allowDangerouslySkipPermissions=True)
    await laptop.say("/permissions bypassPermissions")
    again = await host.drive(session, under(policy, **given))
    assert (await again.request("set_permission_mode", mode="bypassPermissions"))["subtype"] == "error"
    shown = host.summary(session)
    assert "bypassPermissions" not in json.dumps(shown), shown


@pytest.mark.parametrize(("least", "weaker"), [("workspace", ["off"]), ("read-only", ["off", "workspace"])])
async def test_the_least_cage_holds(host: WorkerHost, session: str, least: str, weaker: list[str]) -> None:
    policy = {"policy": {"sandbox": least}}
    laptop = await host.drive(session, under(policy, {"sandbox": "off"}, sandbox="off"))
    for mode in weaker:
        answer = await laptop.request("set_sandbox", sandbox=mode)
        assert f"wants the cage {least} at least" in answer["error"], answer
    assert (await laptop.request("set_sandbox", sandbox="read-only"))["subtype"] == "success"
    await laptop.begin("go", calls(("toolu_1", "Bash", {"command": "mkdir made"})))
    asked = (await laptop.message("control_request"))["request"]
    assert asked.get("can_be_caged", False) == ("workspace" not in weaker), asked


async def test_a_host_without_cages_is_refused_where_one_is_wanted(host: WorkerHost, session: str) -> None:
    host.prelude = NO_CAGE
    laptop = await host.connect(session)
    await laptop.attach(under(CAGED))
    assert "this host cannot make one" in str(await laptop.next(Refused))


async def test_hooks_run_only_if_the_policy_names_them(host: WorkerHost, session: str) -> None:
    def stop(*commands: str) -> Json:
        return {"hooks": {"Stop": [{"hooks": [{"type": "command", "command": each} for each in commands]}]}}

    policy = {"policy": {"hooks": ["touch allowed*"]}, **stop("touch of-policy")}
    bring(host.project, stop("touch of-project", "touch allowed-too"))
    laptop = await host.drive(session, under(policy, stop("touch of-person", "touch allowed")))
    asked = {"Stop": [{"matcher": "", "hookCallbackIds": ["hook_0"]}]}
    assert (await laptop.request("initialize", hooks=asked))["subtype"] == "success"
    await laptop.turn("go", says("done"))
    made = {each.name for each in host.project.iterdir()} - {".claude"}
    assert made == {"of-policy", "allowed", "allowed-too"}
    called = [each for each in laptop.events if "hook_callback" in json.dumps(each.body)]
    assert not called, called


async def test_mcp_servers_start_only_if_the_policy_names_them(host: WorkerHost, session: str) -> None:
    servers = {name: {"command": f"/bin/{name}", "args": ["-c", "exit"]} for name in ("sh", "bash")}
    servers |= {"near": {"type": "http", "url": "http://127.0.0.1:9/mcp"}}
    servers |= {"far": {"type": "http", "url": "http://127.0.0.1:9@evil/http://127.0.0.1:9/mcp"}}
    write(host.project / ".mcp.json", json.dumps({"mcpServers": servers}))
    allowed = ["/bin/sh *", "http://127.0.0.1:9/*", "sdk mine"]
    options = under({"policy": {"mcpServers": allowed}}, client_mcp=["other"])
    laptop = await host.drive(session, options)
    await laptop.request("initialize", sdkMcpServers=["other"])
    await laptop.turn("go", says("done"))
    status: list[Json] = [{"status": "pending"}]
    while any(each["status"] == "pending" for each in status):  # no turn waits for a server of a program
        status = (await laptop.request("mcp_status"))["response"]["mcpServers"]
    refused = {each["name"] for each in status if "policy of the laptop" in each.get("error", "")}
    assert refused == {"bash", "far", "other"}, status


async def test_no_further_directory_is_added_against_the_policy(host: WorkerHost, session: str) -> None:
    (host.project.parent / "other").mkdir()
    (host.project / "link").symlink_to("/etc")
    policy = {"policy": {"directories": [f"{os.path.realpath(host.project)}/"]}}
    lent = {"permissions": {"additionalDirectories": ["/etc"]}}
    laptop = await host.drive(session, under(policy, lent, add_dirs=["/etc", "link", "../other"]))
    assert "policy" in (await laptop.request("add_directory", path="/etc"))["error"]
    await grant(laptop, {"type": "addDirectories", "directories": ["/etc"]})
    read = calls(("toolu_2", "Read", {"file_path": "/etc/hostname"}), message_id="msg_2")
    await laptop.begin("read it", read)
    assert (await laptop.message("control_request"))["request"]["tool_name"] == "Read", "it is no working directory"


async def test_an_agent_of_others_works_only_if_the_policy_names_it(host: WorkerHost, session: str) -> None:
    laptop = await host.connect(session)
    await laptop.attach(under({"policy": {"agents": ["acp:good*"]}}, foreign_agent="acp:evil --yolo"))
    assert "does not allow the agent acp:evil --yolo" in str(await laptop.next(Refused))


async def test_the_file_of_the_hosts_administrator_loosens_nothing(host: WorkerHost, session: str) -> None:
    loose = {"sandbox": "workspace", "agents": ["*"], "hooks": ["*"], "mcpServers": ["*"], "directories": ["/"]}
    theirs = host.project.parent / "managed-settings.json"
    theirs.write_text(json.dumps({"policy": loose}))
    host.prelude = f"import ccb.remote.session.session_settings as s; s.MANAGED_FILE = {str(theirs)!r}"
    laptop = await host.drive(session, under(CAGED))
    answer = await laptop.request("set_sandbox", sandbox="workspace")
    assert "wants the cage read-only at least" in str(answer.get("error")), answer
