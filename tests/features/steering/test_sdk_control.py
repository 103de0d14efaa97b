"""What programs that drive a session may say and ask: fields of `initialize`, requests, forms of prompts."""

from __future__ import annotations

import asyncio
import json
import os
import uuid
from collections.abc import Callable, Sequence
from typing import Any

from tests.remote.agent_kit import calls, says
from tests.remote.worker_process import Laptop, WorkerHost, until
from tests.support.model.model_script import Json
from tests.support.person.laptop import user_message

from ccb.tunnel.wire.frames import Event, Input
from ccb.tunnel.wire.session_options import SessionOptions


async def payload(laptop: Laptop, subtype: str, **fields: Any) -> Json:
    response = await laptop.request(subtype, **fields)
    assert response["subtype"] == "success", response
    answer: Json = response.get("response", {})
    return answer


async def say(laptop: Laptop, text: str, **fields: Any) -> str:
    """Send a user message with more fields, and return its uuid."""
    identity = str(uuid.uuid4())
    await laptop.send(Input(laptop.epoch, uuid.uuid4().hex, user_message(text, uuid=identity, **fields)))
    return identity


def _summary(host: WorkerHost, session: str) -> Json:
    summary: Json = json.loads((host.state(session) / "summary.json").read_text())
    return summary


def texts(request: Json) -> str:
    return json.dumps(request["messages"])


async def test_what_initialize_says_holds_for_the_session(host: WorkerHost, session: str) -> None:
    for name in ("deploy", "other"):
        skill = host.home / ".claude" / "skills" / name / "SKILL.md"
        skill.parent.mkdir(parents=True)
        skill.write_text(f"---\ndescription: About {name}\n---\nText of {name}\n")
    laptop = await host.drive(session, SessionOptions(permission_mode="plan", permission_prompts="stdio"))
    told = await payload(
        laptop,
        "initialize",
        title="The   nightly job",
        skills=["deploy"],
        toolAliases={"ReadTheFile": "Read"},
        planModeInstructions="Draw a picture of it.",
        excludeDynamicSections=True,
        hooks={"PreToolUse": [{"matcher": "Read", "hookCallbackIds": ["guard"], "onFailure": "block"}]},
    )
    efforts = {each["value"]: each["supportedEffortLevels"] for each in told["models"]}
    assert efforts["opus"] == ["low", "medium", "high"] and efforts["haiku"] == []
    assert told["hook_on_failure_supported"] and told["hooks_applied"]
    await laptop.say("Look.")
    first = await laptop.tell(calls(("t1", "ReadTheFile", {"file_path": str(skill)})))
    tools = {each["name"]: each["description"] for each in first["tools"]}
    assert "About deploy" in tools["Skill"] and "About other" not in tools["Skill"]
    assert {"TaskOutput", "TaskStop"} <= tools.keys() and not {"BashOutput", "KillShell"} & tools.keys()
    assert "Draw a picture of it." in texts(first) and "Say in the plan what will be changed" not in texts(first)
    assert "# Environment" in texts(first) and "# Environment" not in json.dumps(first["system"])
    asked = await laptop.message("control_request")
    failed = {"subtype": "error", "request_id": asked["request_id"], "error": "the guard is broken"}
    await laptop.send(Input(laptop.epoch, uuid.uuid4().hex, {"type": "control_response", "response": failed}))
    second = await laptop.tell(says("I cannot read it.", "m2"))
    assert "The hook failed: the guard is broken" in texts(second), "a guard that fails does not let the call through"
    result = await laptop.message("result")
    assert [each["tool_name"] for each in result["permission_denials"]] == ["Read"]
    titles = [each.body["title"] for each in laptop.events if each.body.get("subtype") == "session_title_changed"]
    assert titles == ["The nightly job"]
    await until(lambda: _summary(host, session)["prompt"] == "The nightly job", "the name in the list of sessions")


async def test_requests_that_few_programs_make_are_answered(host: WorkerHost, session: str) -> None:
    (host.project / "seen.txt").write_text("to be seen")
    laptop = await host.drive(session, SessionOptions(allowed_tools=["Bash(ls *)"], disallowed_tools=["WebFetch"]))
    await payload(laptop, "rename_session", title="Spring cleaning")
    rules = (await payload(laptop, "list_permission_rules"))["state"]["rules"]
    assert ("allow", "Bash(ls *)", "cliArg") in [(each["behavior"], each["rule"], each["source"]) for each in rules]
    assert (await payload(laptop, "apply_flag_settings", settings={"model": "opus", "effortLevel": "low"})) == {}
    assert "is no model" in (await laptop.request("set_model", model="foo bar"))["error"]
    assert "is no model" in (await laptop.request("apply_flag_settings", settings={"model": "opsu"}))["error"]
    applied = (await payload(laptop, "get_settings"))["applied"]
    assert "opus" in applied["model"] and applied["effort"] == "low"
    assert (await payload(laptop, "read_file", path="seen.txt"))["contents"] == "to be seen"
    assert (await payload(laptop, "read_file", path="seen.txt", max_bytes=5)) | {"absPath": ""} == {
        "absPath": "",
        "contents": "to be",
        "truncated": True,
    }
    assert (await payload(laptop, "generate_session_title", description="a b"))["title"] == "a b"
    os.mkfifo(host.project / "pipe")
    for subtype, fields, said in (
        ("read_file", {"path": "/etc/shadow"}, "read denied"),
        ("read_file", {"path": "pipe"}, "cannot be read: "),
        ("apply_flag_settings", {"settings": {"hooks": {}}}, "cannot change hooks"),
        ("rename_session", {"title": "x", "session_id": "another"}, "only the session that runs"),
        ("get_task_output", {"task_id": "none"}, "No task found"),
        ("mcp_set_servers", {}, "servers is missing"),
        ("no_such_request", {}, "Unsupported control request subtype: no_such_request"),
    ):
        response = await laptop.request(subtype, **fields)
        assert response["subtype"] == "error" and said in response["error"], response


async def test_prompts_that_wait_that_hurry_and_that_are_taken_literally(host: WorkerHost, session: str) -> None:
    (host.project / "notes.md").write_text("CONTENT OF THE NOTES")
    options = SessionOptions(betas=["context-1m-2025-08-07"], task_budget=50_000, max_thinking_tokens=2000)
    laptop = await host.drive(session, options)
    await say(laptop, "Keep this in mind: blue.", shouldQuery=False)
    silent = await laptop.message("result")
    assert (silent["subtype"], silent["num_turns"], silent["result"]) == ("success", 0, "")
    await say(laptop, "/hooks @notes.md", client_composed=True)
    first = await laptop.tell(calls(("t1", "Bash", {"command": "sleep 60"})))
    assert "Keep this in mind: blue." in texts(first) and "/hooks @notes.md" in texts(first)
    assert "CONTENT OF THE NOTES" not in texts(first)
    assert first["output_config"]["task_budget"] == {"type": "tokens", "total": 50_000}
    assert {"context-1m-2025-08-07", "task-budgets-2026-03-13"} <= set(first["betas"].split(","))
    await laptop.next(Event, lambda event: event.kind == "tool_start")
    assert (await payload(laptop, "get_context_usage"))["rawMaxTokens"] == 1_000_000
    later, dropped = await say(laptop, "later"), await say(laptop, "dropped")
    hurry = await say(laptop, "At once!", priority="now")
    assert (await laptop.message("result"))["subtype"] == "error_during_execution"
    second = await laptop.tell(calls(("t2", "Bash", {"command": "sleep 60"}), message_id="m2"))
    assert "At once!" in texts(second) and "later" not in texts(second)
    await laptop.next(Event, lambda event: event.kind == "tool_start")
    receipt = await payload(laptop, "interrupt", cancel_queued=True)
    assert receipt == {"still_queued": [], "cancelled": [later, dropped]} and hurry not in receipt["cancelled"]
    assert (await laptop.message("result"))["subtype"] == "error_during_execution"


def served(message: Json, tools: Sequence[str], call: Callable[[Json], str]) -> Json:
    """The answer of a server inside the client, whose tools answer with `call(arguments)`."""
    result: Json = {}
    if message["method"] == "initialize":
        result = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": {}}
    elif message["method"] == "tools/list":
        result = {"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in tools]}
    elif message["method"] == "tools/call":
        result = {"content": [{"type": "text", "text": call(message["params"]["arguments"])}]}
    return {"mcp_response": {"jsonrpc": "2.0", "id": message.get("id"), "result": result}}


async def serve(laptop: Laptop, messages: int, tools: list[str], call: Callable[[Json], str]) -> None:
    """Answer messages of the worker to such a server."""
    for _ in range(messages):
        request = await laptop.message("control_request")
        await laptop.reply(request["request_id"], served(request["request"]["message"], tools, call))


async def test_a_tool_of_the_client_decides_and_nothing_of_the_session_stays(host: WorkerHost, session: str) -> None:
    verdicts: dict[str, Json | str] = {
        "touch one": {"behavior": "allow", "updatedInput": {"command": "touch two"}},
        "touch three": {"behavior": "deny", "message": "not this one"},
        "touch four": "whatever you like",
    }
    asked: list[Json] = []

    def decide(arguments: Json) -> str:
        asked.append(arguments)
        verdict = verdicts[arguments["input"]["command"]]
        return verdict if isinstance(verdict, str) else json.dumps(verdict)

    options = SessionOptions(permission_prompts="mcp__guard__decide", client_mcp=["guard"], forget=True)
    laptop = await host.drive(session, options)
    await laptop.say("Touch them.")

    await serve(laptop, 3, ["decide"], decide)
    uses = [(f"t{number}", "Bash", {"command": command}) for number, command in enumerate(verdicts)]
    await laptop.tell(calls(*uses))
    await serve(laptop, 3, ["decide"], decide)
    told = texts(await laptop.tell(says("Done.", "m2")))
    assert "not this one" in told and "its answer is no JSON object" in told
    assert sorted(path.name for path in host.project.iterdir()) == ["two"]
    assert asked[0] == {"tool_name": "Bash", "input": {"command": "touch one"}, "tool_use_id": "t0"}
    assert len((await laptop.message("result"))["permission_denials"]) == 2
    assert host.state(session).exists()
    await laptop.stop()
    await until(lambda: not host.state(session).exists(), "the end of what was kept")


async def test_a_plugin_brings_commands_skills_agents_and_hooks(host: WorkerHost, session: str) -> None:
    kit = host.project / "kit"
    hook = {"type": "command", "command": "touch ${CLAUDE_PLUGIN_ROOT}/hooked"}
    for name, text in (
        (".claude-plugin/plugin.json", '{"name": "tools"}'),
        ("commands/greet.md", "Greet $ARGUMENTS in Latin."),
        ("skills/deploy/SKILL.md", "---\ndescription: About deploying\n---\nText\n"),
        ("agents/critic.md", "---\nname: critic\ndescription: Finds faults\n---\nYou find faults.\n"),
        ("hooks/hooks.json", json.dumps({"hooks": {"PreToolUse": [{"matcher": "Bash", "hooks": [hook]}]}})),
    ):
        (kit / name).parent.mkdir(parents=True, exist_ok=True)
        (kit / name).write_text(text)
    laptop = await host.drive(session, SessionOptions(plugin_dirs=["kit", "missing"], allowed_tools=["Bash"]))
    await laptop.say("/tools:greet the world")
    first = await laptop.tell(calls(("t1", "Bash", {"command": "true"})))
    assert "Greet the world in Latin." in texts(first)
    tools = {each["name"]: each["description"] for each in first["tools"]}
    assert "tools:deploy: About deploying" in tools["Skill"] and "tools:critic" in tools["Task"]
    await laptop.tell(says("Salve.", "m2"))
    await laptop.message("result")
    assert (kit / "hooked").exists()
    opened = [each.body for each in laptop.events if each.body.get("subtype") in ("init", "informational")]
    told = [each["content"] for each in opened if "content" in each]
    assert told == [f"There is no plugin {host.project / 'missing'} on this host."]
    (plugins,) = [each["plugins"] for each in opened if "plugins" in each]
    assert plugins == [{"name": "tools", "path": str(kit), "source": "tools@inline"}]


async def test_a_client_limits_the_tools_of_its_own_servers(host: WorkerHost, session: str) -> None:
    tools = ["free", "asked", "denied"]
    asks = SessionOptions(permission_prompts="stdio", allowed_tools=["mcp__kit"], permission_mode="default")
    laptop = await host.drive(session, asks)
    policies = [("asked", "always_ask"), ("denied", "always_deny"), ("free", "always_allow")]
    config = {"tools": [{"name": name, "permission_policy": policy} for name, policy in policies], "timeout": 5}
    request = await laptop.control("initialize", sdkMcpServers=["kit"], sdkMcpServerConfigs={"kit": config, "x": 1})
    await serve(laptop, 3, tools, lambda _: "done")
    await laptop.next(Event, lambda each: (each.body.get("response") or {}).get("request_id") == request)
    rules = (await payload(laptop, "list_permission_rules"))["state"]["rules"]
    mine = {(each["behavior"], each["rule"]) for each in rules if each["source"] == "session"}
    assert mine == {("ask", "mcp__kit__asked"), ("deny", "mcp__kit__denied")}
    await laptop.say("Call them.")
    first = await laptop.tell(calls(("t1", "mcp__kit__free", {}), ("t2", "mcp__kit__asked", {})))
    assert "mcp__kit__denied" not in {each["name"] for each in first["tools"]}
    await serve(laptop, 1, tools, lambda _: "done")
    question = await laptop.message("control_request")
    assert (question["request"]["subtype"], question["request"]["tool_name"]) == ("can_use_tool", "mcp__kit__asked")
    await laptop.reply(question["request_id"], {"behavior": "deny", "message": "not now"})
    told = texts(await laptop.tell(says("Well.", "m2")))
    assert "not now" in told and "done" in told
    await laptop.message("result")
    changed = {"kit": {"type": "sdk", "name": "kit", "tools": [{"name": "free", "permission_policy": "always_ask"}]}}
    await payload(laptop, "mcp_set_servers", servers=changed)
    rules = (await payload(laptop, "list_permission_rules"))["state"]["rules"]
    assert [each["rule"] for each in rules if each["source"] == "session"] == ["mcp__kit__free"]


async def test_the_main_agent_works_as_the_agent_that_was_named(host: WorkerHost, session: str) -> None:
    critic = {"description": "Finds faults", "prompt": "You find faults.", "tools": ["Read", "Task"], "model": "haiku"}
    short = {"quick": "openai/gpt-5-mini"}
    options = SessionOptions(role="critic", agents={"critic": critic}, system_prompt="", model_aliases=short)
    laptop = await host.drive(session, options)
    told = await payload(laptop, "initialize", appendSubagentSystemPrompt="Write in Latin.")
    own = told["models"][-1]
    assert (own["value"], own["displayName"], own["description"]) == ("quick", "quick", "openai/gpt-5-mini")
    assert own["supportedEffortLevels"] == []
    await laptop.say("Look.")
    task = {"description": "look", "prompt": "Look around", "subagent_type": "general-purpose"}
    first = await laptop.tell(calls(("t1", "Task", task)))
    system = json.dumps(first["system"])
    assert "You find faults." in system and "# Environment" in system and "You are ccb" not in system
    assert "Write in Latin." not in system and {each["name"] for each in first["tools"]} == {"Read", "Task"}
    assert "haiku" in first["model"]
    of_agent = await laptop.tell(says("Nothing.", "a1"))
    assert "Write in Latin." in json.dumps(of_agent["system"])
    await laptop.tell(says("No faults.", "m2"))
    assert (await laptop.message("result"))["result"] == "No faults."


async def test_an_unknown_agent_starts_no_turn_and_near_ones_are_named(host: WorkerHost, session: str) -> None:
    critic = {"description": "Finds faults", "prompt": "You find faults."}
    marker = host.project / "started"
    hooks = {"SessionStart": [{"hooks": [{"type": "command", "command": f"touch {marker}"}]}]}
    settings = {"layers": [{"source": "user", "path": "~/settings.json", "values": {"hooks": hooks}}]}
    laptop = await host.drive(session, SessionOptions(role="critc", settings=settings))
    for name, near in (("Look.", "general-purpose, Explore, Plan"), ("Look again.", "Did you mean critic?")):
        if "again" in name:
            await payload(laptop, "initialize", agents={"critic": critic})
        refused = await laptop.turn(name)
        assert refused["is_error"] and refused["terminal_reason"] == "turn_setup_failed" and refused["num_turns"] == 0
        assert "There is no agent 'critc'." in refused["errors"][0] and near in refused["errors"][0]
    assert not marker.exists(), "no hook runs for it"
    await laptop.say("/agents")
    assert (await laptop.message("result"))["subtype"] == "success", "what needs no model works"
    await laptop.stop()
    again = await host.drive(session, SessionOptions(role="critic", agents={"critic": critic}))
    await again.say("Look.")
    request = await again.tell(says("Found.", "m1"))
    assert "You find faults." in json.dumps(request["system"]) and "again" not in texts(request)
    assert (await again.message("result"))["result"] == "Found."


async def test_short_names_of_models_hold_for_the_next_client_of_the_session(host: WorkerHost, session: str) -> None:
    await host.drive(session, SessionOptions(model_aliases={"quick": "openai/gpt-5-mini"}))
    second = await host.drive(session, SessionOptions())
    assert "is no model" in (await second.request("set_model", model="slow"))["error"]
    await payload(second, "set_model", model="quick")
    assert (await second.sent("Look.", says("Seen.", "m1")))["model"] == "openai/gpt-5-mini"


async def test_a_program_leaves_out_instruction_files_and_built_in_agents(host: WorkerHost, session: str) -> None:
    (host.project / "CLAUDE.md").write_text("Speak Latin.")
    critic = {"critic": {"description": "Finds faults", "prompt": "You find faults."}}
    laptop = await host.drive(session, SessionOptions(agents=critic, left_out=["instructions", "built_in_agents"]))
    await laptop.say("Look.")
    task = {"description": "look", "prompt": "Look around"}
    first = await laptop.tell(calls(("t1", "Task", task)))
    assert "Speak Latin." not in json.dumps(first)
    (offered,) = (each for each in first["tools"] if each["name"] == "Task")
    assert "- critic: Finds faults" in offered["description"] and "- Explore" not in offered["description"]
    refused = texts(await laptop.tell(says("Well.", "m2")))
    assert "There is no agent 'general-purpose'. The agents are: critic." in refused
    await laptop.message("result")


async def test_programs_get_lists_reload_files_and_ask_beside_the_work(host: WorkerHost, session: str) -> None:
    (host.project / "src").mkdir()
    (host.project / "src" / "engine.py").write_text("")
    hooks = {"Stop": [{"hooks": [{"type": "command", "command": "true", "once": True}]}]}
    layer = {"source": "user", "path": "~/settings.json", "values": {"hooks": hooks}}
    own = {"/laptop/r.md": "---\nname: r\ndescription: d\ntools: Read\n---\nReview."}
    laptop = await host.drive(session, SessionOptions(settings={"layers": [layer]}, own_agents=own))
    agents = (await payload(laptop, "list_agents"))["agents"]
    assert [each["name"] for each in agents] == ["general-purpose", "Explore", "Plan", "r"]
    definition = {"name": "r", "description": "d", "source": "user", "path": "/laptop/r.md", "tools": ["Read"]}
    assert agents[3] == definition, "before the first turn, and without the prompt"
    assert (await payload(laptop, "list_agents", name="r"))["agents"] == [{**definition, "prompt": "Review."}]
    usage = {each["name"]: each["tokens"] for each in (await payload(laptop, "get_context_usage"))["categories"]}
    assert usage["System prompt"] > 500 and usage["Tools"] > 500, "before the first turn, by estimate"
    assert (await payload(laptop, "side_question", question="What for?"))["response"] is None
    async with asyncio.timeout(60):  # names that a busy host has not read in time come with a later answer
        while not (found := await payload(laptop, "file_suggestions", query="engine"))["suggestions"]:
            pass
    assert [each["path"] for each in found["suggestions"]] == ["src/engine.py"]
    assert found["cwd"] == os.path.realpath(host.project)
    await payload(laptop, "initialize", hooks={"PreToolUse": [{"matcher": "Read", "hookCallbackIds": ["guard"]}]})
    listing = await payload(laptop, "get_hooks_listing")
    rows = [(each["event"], each["matcher"], each["type"], each["source"]) for each in listing["hooks"]]
    assert rows == [("PreToolUse", "Read", "callback", "sessionHook"), ("Stop", "", "command", "userSettings")]
    assert listing["hooks"][1]["runsOnce"] and [each["hookCount"] for each in listing["events"]] == [1, 1]

    await laptop.begin("Begin.", calls(("t1", "Bash", {"command": "sleep 60"})))
    await laptop.next(Event, lambda event: event.kind == "tool_start")
    asked = await laptop.control("side_question", question="What are you doing?")
    aside = await laptop.tell(says("I wait for a command.", "m2"))
    assert "What are you doing?" in texts(aside) and "t1" not in texts(aside), "an open call is in no request"
    event = await laptop.next(Event, lambda each: (each.body.get("response") or {}).get("request_id") == asked)
    assert event.body["response"]["response"] == {"response": "I wait for a command.", "synthetic": False}
    assert (await laptop.request("reload_plugins", refuse_if_busy=True))["error_code"] == "reload_plugins_busy"
    await payload(laptop, "interrupt")
    result = await laptop.message("result")
    assert result["usage"]["cache_creation"].keys() == {"ephemeral_1h_input_tokens", "ephemeral_5m_input_tokens"}
    assert result["usage"]["output_tokens_details"] == {"thinking_tokens": 0}

    skill = host.home / ".claude" / "skills" / "deploy" / "SKILL.md"
    skill.parent.mkdir(parents=True)
    skill.write_text("---\ndescription: About deploying\n---\nText\n")
    (host.home / ".claude" / "output-styles").mkdir()
    (host.home / ".claude" / "output-styles" / "Terse.md").write_text("---\ndescription: In few words\n---\nBe terse.")
    assert [each["name"] for each in (await payload(laptop, "reload_skills"))["skills"]] == ["deploy"]
    assert "deploy" in [each["name"] for each in (await payload(laptop, "reload_plugins"))["commands"]]
    styles = await payload(laptop, "reload_output_styles")
    assert {"default", "Explanatory", "Terse"} <= set(styles["available_output_styles"])
    assert (styles["output_style"], styles["set_by"]) == ("default", "")
    assert {"name": "Terse", "description": "In few words", "source": "user"}.items() <= styles["styles"][-1].items()
    refused = await laptop.request("set_cwd", path="/tmp")
    assert refused["error_code"] == "unsupported_request" and "start another session" in refused["error"]


SUBTYPES = (
    *("apply_flag_settings", "background_tasks", "cancel_async_message", "channel_enable", "claim_session"),
    *("claude_authenticate", "claude_oauth_callback", "export_conversation", "file_suggestions"),
    *("generate_session_title", "get_chrome_dialog", "get_context_usage", "get_hooks_listing", "get_memory_dialog"),
    *("get_plan", "get_sandbox_dialog", "get_settings", "get_skills_dialog", "get_status", "get_task_output"),
    *("initialize", "list_permission_rules", "mcp_authenticate", "mcp_call", "mcp_clear_auth", "mcp_message"),
    *("mcp_oauth_callback_url", "mcp_read_resource", "mcp_reconnect", "mcp_set_servers", "mcp_status", "mcp_toggle"),
    *("message_rated", "read_file", "register_repo_root", "reload_output_styles", "reload_plugins", "reload_skills"),
    *("remote_control", "rename_session", "rewind_files", "seed_read_state", "set_color", "set_cwd"),
    *("set_has_subscribers", "set_max_thinking_tokens", "set_mcp_permission_mode_override", "set_model"),
    *("set_permission_mode", "set_prompt_suggestions_paused", "side_question", "stop_task", "submit_feedback"),
    *("ultrareview_launch", "update_settings", "interrupt", ""),
)
"""What the official SDKs can ask of an agent, and nothing."""

_FIELDS = (
    *("model", "mode", "settings", "servers", "serverName", "path", "title", "max_thinking_tokens", "message"),
    *("skills", "task_id", "user_message_id", "agents", "toolAliases", "planModeInstructions"),
)


async def test_every_request_of_the_official_sdks_is_answered_at_once(host: WorkerHost, session: str) -> None:
    laptop = await host.drive(session)
    for value in (None, 7, "x", [1], {"a": [None]}):
        fields = {} if value is None else dict.fromkeys(_FIELDS, value)
        asked = [await laptop.control(subtype, **fields) for subtype in SUBTYPES]
        asked += [await laptop.control("initialize", **{name: value}) for name in _FIELDS]
        answered: set[str] = set()
        while answered != set(asked):
            event = await laptop.next(Event, lambda each: "response" in each.body)
            answered.add(event.body["response"]["request_id"])
    assert (await laptop.turn("Still there?", says("Yes.", "m1")))["is_error"] is False
