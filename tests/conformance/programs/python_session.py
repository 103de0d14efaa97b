"""Drives ccb with the official Python SDK, as its users do. Takes one JSON object of settings as its argument, and
prints one JSON line for each thing that happens. Runs in the environment of the SDK."""

import asyncio
import json
import os
import sys

from claude_agent_sdk import (
    AgentDefinition,
    ClaudeAgentOptions,
    ClaudeSDKClient,
    HookMatcher,
    InMemorySessionStore,
    PermissionResultAllow,
    PermissionResultDeny,
    create_sdk_mcp_server,
    get_session_messages_from_store,
    query,
    tool,
)

given = json.loads(sys.argv[1])
IMAGE = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


def tell(kind, **what):
    sys.stdout.write(json.dumps({"kind": kind, **what}, default=str) + "\n")
    sys.stdout.flush()


async def told(word):
    """Where the test wants to cut something, say that the program is there, and wait until it may go on."""
    if word not in given.get("cut_in", ()):
        return
    tell("waits", where=word)
    await asyncio.get_running_loop().run_in_executor(None, os.read, 0, 1)  # one line for each, however many wait


@tool("add", "Add two numbers", {"a": float, "b": float})
async def add(numbers):
    tell("tool", name="add", given=numbers)
    await told("tool")
    return {"content": [{"type": "text", "text": f"the sum is {numbers['a'] + numbers['b']:g}"}]}


@tool("picture", "Draw a picture", {})
async def picture(_):
    return {"content": [{"type": "image", "data": IMAGE, "mimeType": "image/png"}]}


@tool("fail", "Fail", {})
async def fail(_):
    raise RuntimeError("it failed on purpose")


async def may(name, wanted, context):
    tell("asked", name=name, input=wanted, suggestions=len(context.suggestions), id=context.tool_use_id)
    await told("question")
    if "forbidden" in json.dumps(wanted):
        return PermissionResultDeny(message="not this one")
    if wanted.get("command") == "touch asked":
        return PermissionResultAllow(updated_input={**wanted, "command": "touch changed"})
    return PermissionResultAllow()


async def hook(event, tool_use_id, _):
    tell("hook", event=event["hook_event_name"], tool=event.get("tool_name"), id=tool_use_id)
    if event["hook_event_name"] == "PreToolUse":
        await told("hook")
    if event.get("tool_input", {}).get("command") == "touch hooked":
        return {
            "hookSpecificOutput": {
                "hookEventName": "PreToolUse",
                "permissionDecision": "deny",
                "permissionDecisionReason": "the hook says no",
            }
        }
    return {}


session_ids = []


async def show(messages):
    async for message in messages:
        session_ids.extend([message.session_id] if hasattr(message, "session_id") else [])
        tell("message", type=type(message).__name__, body=vars(message))


async def interrupted(session):
    """Begin a long answer, and interrupt it at its first words."""
    await session.query(given["long"])
    async for message in session.receive_response():
        tell("message", type=type(message).__name__, body=vars(message))
        if type(message).__name__ == "StreamEvent" and message.event["type"] == "content_block_delta":
            await told("stream")
            await session.interrupt()
            break
    await show(session.receive_response())


async def client():
    store = InMemorySessionStore()
    options = ClaudeAgentOptions(
        cli_path=given["cli"],
        cwd=given["cwd"],
        model="haiku",
        mcp_servers={"calc": create_sdk_mcp_server("calc", "1.2.3", [add, picture, fail])},
        allowed_tools=["mcp__calc__add", "mcp__calc__picture", "mcp__calc__fail"],
        can_use_tool=may,
        hooks={
            "PreToolUse": [HookMatcher(matcher="Bash", hooks=[hook], on_failure="block")],
            "Stop": [HookMatcher(hooks=[hook])],
        },
        agents={"reviewer": AgentDefinition(description="Reviews code", prompt="You review.", tools=["Read"])},
        system_prompt={"type": "preset", "preset": "claude_code", "append": "APPENDED"},
        setting_sources=[],
        include_partial_messages=True,
        env=given.get("env", {}),
        session_store=store,
        thinking={"type": "disabled"},
        betas=["context-1m-2025-08-07"],
        task_budget={"total": 50_000},
        extra_args={"a-flag-of-the-future": "x"},
        stderr=lambda line: tell("stderr", line=line),
    )
    async with ClaudeSDKClient(options) as session:
        info = await session.get_server_info()
        tell("info", agents=[each["name"] for each in info["agents"]], commands=len(info["commands"]))
        for prompt in given["prompts"]:
            await session.query(prompt)
            await show(session.receive_response())
        if given.get("controls"):
            tell("mcp", status=await session.get_mcp_status())
            tell("usage", usage=await session.get_context_usage())
            await session.set_permission_mode("acceptEdits")
            await session.set_model("sonnet")
            try:
                await session.set_permission_mode("nonsense")
            except Exception as error:  # noqa: BLE001 - the test looks at it
                tell("refused", error=str(error))
        if "long" in given:
            await interrupted(session)
        if given.get("controls"):
            kept = await get_session_messages_from_store(store, session_ids[0], directory=given["cwd"])
            tell("kept", messages=[each.message for each in kept])
    tell("end")


async def once():
    options = ClaudeAgentOptions(cli_path=given["cli"], cwd=given["cwd"], env=given.get("env", {}), **given["options"])
    try:
        await show(query(prompt=given["prompts"][0], options=options))
    except Exception as error:  # noqa: BLE001 - the test looks at it
        tell("error", name=type(error).__name__, text=str(error))
    tell("end")


asyncio.run(once() if "options" in given else client())
