"""The requests that only clients of SDKs make: the types of the npm SDK 0.3.329, the protocol as observed."""

from __future__ import annotations

import asyncio
import base64
import re
from collections.abc import Awaitable
from dataclasses import replace
from functools import partial
from typing import Callable

from ccb.tunnel.wire.client_requests import SET_EFFORT
from ccb.tunnel.wire.control_protocol import SET_MODEL, RequestRefused, client_kind
from ccb.tunnel.wire.frames import Json
from ccb.tunnel.wire.spelling import spelled
from ccb.tunnel.wire.tool_traits import READ

from ..context.system_prompt import described_styles, style_name
from ..hooks.hook_table import ABOUT_TOOLS, EVENTS, WITHOUT_MATCHER, Hook, read_hooks
from ..mcp.mcp_client import McpError
from ..model.retry import ModelError
from ..permissions.rules import Behavior
from ..system.deadline import in_thread, within
from ..system.regular_files import NotAFile
from ..tools.agent_definitions import AgentDefinition
from ..tools.file_access import absolute
from ..tools.search_process import NameFinder
from .client_setup import Initialize, offered_models
from .session import Session, check_model, find_task

_MAX_QUESTION = 100_000  # characters
_NAMES_S = 10.0
_MAX_FILE = 512 * 1024
_MAX_OUTPUT = 64 * 1024
_MAX_PROMPT = 100_000  # characters
_WORD = re.compile("([A-Z])")
_SOURCES = {"client": "sessionHook", "managed": "policySettings"}
_REFUSED = {
    "set_cwd": "a session stays in the directory in which it was started: start another session there",
    "register_repo_root": "a session has the directories that it was started with: use additionalDirectories",
    "update_settings": "ccb writes no settings file for a program: use applyFlagSettings, or `ccb config`",
    "seed_read_state": "the agent must read a file itself before it changes it",
    "set_color": "ccb has no colours for sessions",
    "mcp_authenticate": "ccb logs in to MCP servers on the laptop: use `ccb mcp login`",
    "mcp_clear_auth": "ccb keeps the logins of MCP servers on the laptop: use `ccb mcp logout`",
    "claude_authenticate": "the laptop has the credential: use `ccb auth`",
}


def register_sdk_requests(session: Session) -> None:
    handlers: dict[str, Callable[[Session, Json], Json | Awaitable[Json]]] = {
        "file_suggestions": _file_suggestions,
        "side_question": _side_question,
        "reload_plugins": _reload_plugins,
        "reload_skills": _reload_skills,
        "reload_output_styles": _output_styles,
        "list_agents": _agents,
        "mcp_read_resource": _resource,
        "mcp_set_servers": _set_servers,
        "read_file": _read_file,
        "rename_session": _rename,
        "generate_session_title": _title,
        "list_permission_rules": _rules,
        "get_settings": _settings,
        "apply_flag_settings": _apply,
        "get_task_output": _task_output,
        "get_hooks_listing": _hooks,
        "set_has_subscribers": lambda _, __: {},
    }
    for name, handler in handlers.items():
        session.broker.register(client_kind(name, dict), partial(handler, session))
    for name, why in _REFUSED.items():
        session.broker.register(client_kind(name, dict), partial(_refuse, f"Unsupported here: {why}"))


def _refuse(why: str, _: Json) -> Json:
    raise RequestRefused(why, "unsupported_request")


async def _file_suggestions(session: Session, given: Json) -> Json:
    query, context = given.get("query"), session.agent.config.context
    if not isinstance(query, str):
        raise RequestRefused("query is missing")
    finder = NameFinder(context.cwd, context.host)
    found: asyncio.Queue[Json] = asyncio.Queue()

    async def settled() -> Json:
        for _ in range(100):
            finder.find(session, query, found.put_nowait)
            answer = await found.get()
            if answer["settled"]:
                return answer
            await asyncio.sleep(0.05)
        return answer

    try:
        names = (await within(_NAMES_S, settled()))["names"]
    except asyncio.TimeoutError:
        raise RequestRefused("the files of this directory are not listed yet: ask again") from None
    finally:
        await finder.close()
    return {"suggestions": [{"path": name, "displayText": name} for name in names], "cwd": context.cwd}


async def _side_question(session: Session, given: Json) -> Json:
    question, history = given.get("question"), given.get("history")
    if not isinstance(question, str) or not question.strip():
        raise RequestRefused("question is missing")
    earlier = [
        f"{name}: {each[key]}"
        for each in (history if isinstance(history, list) else [])
        if isinstance(each, dict)
        for name, key in (("Earlier question", "question"), ("Your answer", "response"))
        if isinstance(each.get(key), str)
    ]
    whole = "\n\n".join([*earlier, question])
    if len(whole) > _MAX_QUESTION:
        raise RequestRefused("the question is too long")
    try:
        answer = await session.agent.side_answer(whole)
    except ModelError as error:
        raise RequestRefused(error.prose(session.agent.model)) from None
    return {"response": answer, "synthetic": False}


async def _reload_plugins(session: Session, given: Json) -> Json:
    if given.get("add_plugins"):
        raise RequestRefused("a session takes its plugins when it starts: use the option plugins")
    if given.get("refuse_if_busy") and session.state != "idle":
        raise RequestRefused("the session is busy", "reload_plugins_busy")
    await session.extensions.reload()
    announced = session.agent.config.announced
    return {
        "commands": [{"argumentHint": "", **each} for each in announced.commands()],
        "agents": announced.agents(),
        "plugins": announced.plugins(),
        "mcpServers": session.clients.servers.status(),
        "error_count": len(session.hooks.problems),
    }


async def _reload_skills(session: Session, _: Json) -> Json:
    await session.extensions.reload()
    return {"skills": [{"argumentHint": "", **each} for each in session.agent.config.announced.skills()]}


async def _output_styles(session: Session, _: Json) -> Json:
    """Beside the names of the protocol, tell what the list of ccb shows, and which layer sets the one in force."""
    config = session.agent.config
    styles = await in_thread(described_styles, config.settings, config.context.cages.home)
    found = config.settings.value("outputStyle")
    return {
        "available_output_styles": [each["name"] for each in styles],
        "styles": styles,
        "output_style": style_name(config.settings),
        "set_by": found.layer.source if found is not None else "",
    }


async def _agents(session: Session, given: Json) -> Json:
    await session.extensions.define_agents()
    name = given.get("name")
    found = [each for each in session.sub_agents.definitions if name in (None, "", each.name)]
    return {"agents": [_defined(each, whole=bool(name)) for each in found]}


def _defined(agent: AgentDefinition, *, whole: bool) -> Json:
    """Return a definition in the fields of its file, and whose it is. The prompt only if it is to be `whole`."""
    fields: Json = {
        "model": agent.model,
        "tools": None if agent.tools is None else list(agent.tools),
        "disallowedTools": agent.disallowed_tools,
        "readOnly": agent.read_only,
        "permissionMode": agent.permission_mode,
        "effort": agent.effort,
        "maxTurns": agent.max_turns,
        "background": agent.background,
        "isolation": agent.isolation,
        "memory": agent.memory,
        "skills": agent.skills,
        "mcpServers": tuple(name for name, _ in agent.servers),
        "path": agent.path,
        "prompt": agent.prompt[:_MAX_PROMPT] if whole else "",
    }
    kept = {name: value for name, value in fields.items() if value not in (None, "", (), False)}
    return {"name": agent.name, "description": agent.description, "source": agent.source, **kept}


async def _resource(session: Session, given: Json) -> Json:
    name, uri = str(given.get("serverName")), str(given.get("uri"))
    client = session.clients.servers.clients.get(name)
    if client is None:
        raise RequestRefused(f"Server not found: {name[:100]}")
    if not uri.startswith("ui://"):
        raise RequestRefused("only resources whose address begins with ui:// are read for a program")
    try:
        contents = (await client.read(uri)).get("contents")
    except McpError as error:
        raise RequestRefused(f"{name[:100]} does not give it: {error}") from None
    return {"contents": contents if isinstance(contents, list) else []}


def _hooks(session: Session, _: Json) -> Json:
    sources = session.settings.current.hooks
    callbacks = [each for each in session.hooks.hooks if each.kind == "callback"]
    names = session.agent.config.names
    hooks = sorted([*read_hooks(sources, lambda _: None, names), *callbacks], key=lambda each: EVENTS.index(each.event))
    counts = {event: sum(each.event == event for each in hooks) for event in EVENTS}
    catalog = [
        {"name": each, "summary": _WORD.sub(r" \1", each).strip(), "supportsMatcher": each not in WITHOUT_MATCHER}
        for each in EVENTS
    ]
    return {
        "events": [{**each, "hookCount": counts[str(each["name"])]} for each in catalog if counts[str(each["name"])]],
        "hooks": [_listed(each) for each in hooks],
        "problems": session.hooks.problems,
        "eventCatalog": catalog,
        "policy": {
            "disabledByPolicy": False,
            "managedOnly": False,
            "pluginOnly": False,
            "allDisabled": False,
            "policyHookCount": sum(each.layer.source == "managed" for each in hooks),
        },
    }


def _listed(hook: Hook) -> Json:
    kind = hook.kind
    text = " ".join(hook.does.split())
    more = {
        "statusMessage": hook.status,
        "condition": hook.condition if hook.event in ABOUT_TOOLS else "",
        "runsOnce": hook.once,
        "runsInBackground": hook.beside,
        "content": "" if text == hook.does else hook.does,  # for ccb: as it stands in the file
    }
    return {
        "event": hook.event,
        "matcher": hook.matcher,
        "source": _SOURCES.get(hook.layer.source, f"{hook.layer.source}Settings"),
        "sourceLabel": hook.layer.path or hook.layer.source,
        "type": kind,
        "displayText": hook.status or text,
        "commandText": text,
        "contentLabel": {"http": "URL"}.get(kind, kind.capitalize()),
        "timeout": hook.timeout_s,
        **{name: given for name, given in more.items() if given},
    }


def _text(given: Json, name: str) -> str:
    value = given.get(name)
    if not isinstance(value, str) or not value.strip():
        raise RequestRefused(f"{name} is missing")
    return value


def _rename(session: Session, given: Json) -> Json:
    if given.get("session_id") not in (None, session.id):
        raise RequestRefused("only the session that runs can be renamed")
    session.name(_text(given, "title"))
    return {}


def _title(session: Session, given: Json) -> Json:
    title = " ".join(_text(given, "description").split()[:8])[:60]
    if given.get("persist"):
        session.name(title)
    return {"title": title}


def _rules(session: Session, _: Json) -> Json:
    engine = session.agent.config.permissions
    first, *added = engine.directories
    directories = [{"path": each, "source": "session"} for each in added]
    rules = {"rules": engine.listed(), "workspaceDirectories": directories}
    return {"state": {**rules, "originalCwd": first, "managedOnly": False}}


async def _settings(session: Session, _: Json) -> Json:
    layers = session.settings.current.layers
    effective: Json = {}
    for layer in layers:
        effective.update(layer.values)
    agent = session.agent
    applied: Json = {"model": agent.model, "effort": agent.config.options.effort}
    if agent.program is not None:
        applied["offered_models"] = [value for value, _ in await offered_models(agent.program)]
    sources = [{"source": f"{each.source}Settings", "settings": dict(each.values)} for each in layers]
    return {"effective": effective, "sources": sources, "applied": applied}


def _apply(session: Session, given: Json) -> Json:
    settings = given.get("settings")
    settings = settings if isinstance(settings, dict) else {}
    fixed = sorted(settings.keys() - {"model", "effortLevel"})
    if fixed:
        raise RequestRefused(f"a running session cannot change {', '.join(fixed)}")
    model = SET_MODEL.read(settings)
    check_model(session, model)
    if "effortLevel" in settings:
        level = SET_EFFORT.read({"effort": settings["effortLevel"]})
        session.reason(replace(session.options, effort=level))
    if "model" in settings:
        session.agent.set_model(model)
    return {}


def _task_output(session: Session, given: Json) -> Json:
    text = find_task(session, _text(given, "task_id")).last(10_000, _MAX_OUTPUT)
    size = len(text.encode())
    return {"output": text, "total_bytes": size, "truncated": size >= _MAX_OUTPUT}


async def _set_servers(session: Session, given: Json) -> Json:
    servers = given.get("servers")
    if not isinstance(servers, dict):
        raise RequestRefused("servers is missing")
    inside = [name for name, each in servers.items() if isinstance(each, dict) and each.get("type") == "sdk"]
    before = session.options.client_mcp
    configs = {name: servers[name] for name in inside}
    session.adopt(Initialize({"client_mcp": inside, "client_mcp_configs": configs}, replaces=True))
    await session.clients.settle(session.options, 5.0)
    failed = {each["name"]: each["error"] for each in session.clients.servers.status() if each.get("error")}
    others = dict.fromkeys(servers, "such a server is started with the session: use mcpServers")
    errors = {**others, **dict.fromkeys(inside)}
    return {
        "added": [name for name in inside if name not in before],
        "removed": [name for name in before if name not in inside],
        "errors": {name: text for name, text in {**errors, **failed}.items() if text and name in servers},
    }


async def _read_file(session: Session, given: Json) -> Json:
    agent = session.agent
    context, named = agent.config.context, _text(given, "path")
    tool = agent.config.tools.named(READ.name)
    path = absolute(named, context.cwd)
    name = spelled(path)
    allowed = tool is not None and agent.config.permissions.decide(tool, {"file_path": named})
    if not allowed or allowed.behavior is not Behavior.ALLOW:
        raise RequestRefused(f"read denied: {name}")
    limit = given.get("max_bytes")
    limit = min(limit, _MAX_FILE) if isinstance(limit, int) and limit > 0 else _MAX_FILE
    try:
        data = await context.host.read(path, 0, limit + 1)
    except (OSError, NotAFile) as error:
        raise RequestRefused(f"{name} cannot be read: {getattr(error, 'strerror', error)}") from None
    answer: Json = {"absPath": name, **({"truncated": True} if len(data) > limit else {})}
    if given.get("encoding") == "base64":
        return {**answer, "contents": base64.b64encode(data[:limit]).decode(), "encoding": "base64"}
    return {**answer, "contents": data[:limit].decode("utf-8", "replace")}
