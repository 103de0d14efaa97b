"""What programs ask that show a session to a person: lists to draw, files to read again, a question beside the work.

Source: the types of the npm SDK 0.3.329."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable
from functools import partial
from typing import Any, Callable

from ccb.tunnel.wire.requests import RequestRefused, client_kind

from ...hooks.table import ABOUT_TOOLS, EVENTS, WITHOUT_MATCHER, Hook, read_hooks, sources_of
from ...mcp.client import McpError
from ...model.errors import ModelError
from ...system.deadline import within
from ...tools.search.name_finder import NameFinder
from ..broker import Handled
from ..session import Session
from .client_setup import output_styles

Json = dict[str, Any]

_MAX_QUESTION = 100_000  # characters
_NAMES_S = 10.0
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
"""Why requests that another agent of this family answers make no sense here."""


def register_app_requests(session: Session) -> None:
    """Register the handlers with the session's broker."""
    slow: dict[str, Callable[[Session, Json], Awaitable[Json]]] = {
        "file_suggestions": _file_suggestions,
        "side_question": _side_question,
        "reload_plugins": _reload_plugins,
        "reload_skills": _reload_skills,
        "reload_output_styles": _output_styles,
        "mcp_read_resource": _resource,
    }
    for name, handler in slow.items():
        session.broker.register_slow(client_kind(name, dict), partial(handler, session))
    session.broker.register(client_kind("get_hooks_listing", dict), lambda _: Handled(_hooks(session)))
    session.broker.register(client_kind("set_has_subscribers", dict), lambda _: Handled({}))
    for name, why in _REFUSED.items():
        session.broker.register(client_kind(name, dict), partial(_refuse, f"Unsupported here: {why}"))


def _refuse(why: str, _: Json) -> Handled:
    raise RequestRefused(why, "unsupported_request")


async def _file_suggestions(session: Session, given: Json) -> Json:
    """The names of files that `query` may mean, best first."""
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
    announced = session.agent.config.disclosure.announced
    return {
        "commands": [{"argumentHint": "", **each} for each in announced.entries("commands")],
        "agents": announced.entries("agents"),
        "plugins": announced.entries("plugins"),
        "mcpServers": session.clients.status,
        "error_count": len(session.hooks.problems) if session.hooks is not None else 0,
    }


async def _reload_skills(session: Session, _: Json) -> Json:
    await session.extensions.reload()
    skills = session.agent.config.disclosure.announced.entries("skills")
    return {"skills": [{"argumentHint": "", **each} for each in skills]}


async def _output_styles(session: Session, _: Json) -> Json:
    return {"available_output_styles": await output_styles(session.agent)}


async def _resource(session: Session, given: Json) -> Json:
    name, uri = str(given.get("serverName")), str(given.get("uri"))
    known = name in {each["name"] for each in session.clients.status}
    client = session.clients.servers.clients.get(name) if known else None
    if client is None:
        raise RequestRefused(f"Server not found: {name[:100]}")
    if not uri.startswith("ui://"):
        raise RequestRefused("only resources whose address begins with ui:// are read for a program")
    try:
        contents = (await client.read(uri)).get("contents")
    except McpError as error:
        raise RequestRefused(f"{name[:100]} does not give it: {error}") from None
    return {"contents": contents if isinstance(contents, list) else []}


def _hooks(session: Session) -> Json:
    """The hooks in force, in the shape of a menu."""
    sources = sources_of(session.settings.current)
    callbacks = [each for each in (session.hooks.hooks if session.hooks is not None else ()) if each.callback]
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
        "eventCatalog": catalog,
        "policy": {
            "disabledByPolicy": False,
            "managedOnly": False,
            "pluginOnly": False,
            "allDisabled": False,
            "policyHookCount": sum(each.source == "managed" for each in hooks),
        },
    }


def _listed(hook: Hook) -> Json:
    kind = hook.kind
    text = " ".join(hook.does.split())
    row: Json = {
        "event": hook.event,
        "matcher": hook.matcher,
        "source": _SOURCES.get(hook.source, f"{hook.source}Settings"),
        "sourceLabel": hook.path or hook.source,
        "type": kind,
        "displayText": hook.status or text,
        "commandText": text,
        "contentLabel": {"http": "URL"}.get(kind, kind.capitalize()),
        "timeout": hook.timeout_s,
    }
    if hook.status:
        row["statusMessage"] = hook.status
    if hook.condition and hook.event in ABOUT_TOOLS:
        row["condition"] = hook.condition
    for name, given in (("runsOnce", hook.once), ("runsInBackground", hook.beside)):
        if given:
            row[name] = True
    return row
