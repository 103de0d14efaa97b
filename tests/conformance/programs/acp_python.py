"""Drives an ACP agent with the package `agent-client-protocol`, as an editor does. Takes one JSON object of settings,
and prints one JSON line for each thing that happens: the counterpart of acp_npm.mjs."""

import asyncio
import json
import os
import sys

import acp

given = json.loads(sys.argv[1])


def tell(kind, **what):
    sys.stdout.write(json.dumps({"kind": kind, **what}) + "\n")
    sys.stdout.flush()


def plain(model):
    return model.model_dump(mode="json", by_alias=True, exclude_none=True)


async def told(word):
    """Where the test wants to cut something, say that the client is there, and wait until it may go on."""
    if word in given.get("cut_in", ()):
        tell("waits", where=word)
        await asyncio.get_running_loop().run_in_executor(None, os.read, 0, 1)


class Editor(acp.Client):
    async def session_update(self, session_id, update, **_):
        tell("update", body=plain(update))

    async def request_permission(self, session_id, tool_call, options, **_):
        tell("asked", call=plain(tool_call), options=[plain(each) for each in options])
        await told("question")
        chosen = next(each for each in options if each.kind == given.get("answer", "allow_once"))
        outcome = {"outcome": "selected", "optionId": chosen.option_id}
        return acp.RequestPermissionResponse.model_validate({"outcome": outcome})


async def main():
    command, *arguments = given["command"]
    spawned = acp.spawn_agent_process(
        Editor(), command, *arguments, env=dict(os.environ), cwd=given["cwd"], use_unstable_protocol=True,
        transport_kwargs={"stderr": None},
    )  # fmt: skip
    async with spawned as (agent, _):
        about = await agent.initialize(protocol_version=1)
        tell("agent", body=plain(about))
        if "gateway" in given:
            await agent.authenticate(method_id="gateway", gateway={"baseUrl": given["gateway"], "headers": {}})
        session = given.get("load")
        if session is None:
            begun = await agent.new_session(cwd=given["cwd"], mcp_servers=[])
            session = begun.session_id
        else:
            begun = await agent.load_session(cwd=given["cwd"], session_id=session, mcp_servers=[])
        tell("session", id=session, body=plain(begun))
        for text in given["prompts"]:
            try:
                answer = await agent.prompt(session_id=session, prompt=[acp.text_block(text)])
                tell("stop", reason=answer.stop_reason)
            except acp.RequestError as error:
                tell("error", code=error.code, text=str(error))
        await told("end")
    tell("end")


asyncio.run(main())
