"""The requests that few clients make: this module is loaded with the first of them.

Source: section 6.1 of the stream-json protocol as observed.
"""

from __future__ import annotations

import base64
from dataclasses import replace
from functools import partial
from typing import Any, Callable

from ccb.tunnel.wire.kinds.reasoning import SET_EFFORT
from ccb.tunnel.wire.requests import SET_MODEL, RequestRefused, client_kind
from ccb.tunnel.wire.spelling import spelled
from ccb.tunnel.wire.tool_traits import READ

from ...permissions.decision import Behavior
from ...system.regular_files import NotAFile
from ...tools.files.paths import absolute
from ..broker import Handled
from ..session import Session
from .client_requests import check_model
from .client_setup import Initialize
from .task_requests import find_task

Json = dict[str, Any]

_MAX_TITLE = 200
_MAX_FILE = 512 * 1024
_MAX_OUTPUT = 64 * 1024


def register_rare_requests(session: Session) -> None:
    """Register the handlers with the session's broker."""
    handlers: dict[str, Callable[[Session, Json], Handled]] = {
        "rename_session": _rename,
        "generate_session_title": _title,
        "list_permission_rules": _rules,
        "get_settings": _settings,
        "apply_flag_settings": _apply,
        "get_task_output": _task_output,
    }
    for name, handler in handlers.items():
        session.broker.register(client_kind(name, dict), partial(handler, session))
    session.broker.register_slow(client_kind("mcp_set_servers", dict), lambda given: _set_servers(session, given))
    session.broker.register_slow(client_kind("read_file", dict), lambda given: _read_file(session, given))


def _text(given: Json, name: str) -> str:
    value = given.get(name)
    if not isinstance(value, str) or not value.strip():
        raise RequestRefused(f"{name} is missing")
    return value


def _rename(session: Session, given: Json) -> Handled:
    if given.get("session_id") not in (None, session.id):
        raise RequestRefused("only the session that runs can be renamed")
    session.name(_text(given, "title"))
    return Handled({})


def _title(session: Session, given: Json) -> Handled:
    """A title made of the description's first words. It costs no model call."""
    title = " ".join(_text(given, "description").split()[:8])[:60]
    if given.get("persist"):
        session.name(title)
    return Handled({"title": title})


def _rules(session: Session, _: Json) -> Handled:
    engine = session.agent.config.permissions
    first, *added = engine.directories
    state: Json = {
        "rules": engine.listed(),
        "workspaceDirectories": [{"path": each, "source": "session"} for each in added],
        "originalCwd": first,
        "managedOnly": False,
    }
    return Handled({"state": state})


def _settings(session: Session, _: Json) -> Handled:
    """The settings in force: all layers, the weakest first, and merged."""
    layers = session.settings.current.layers
    effective: Json = {}
    for layer in layers:
        effective.update(layer.values)
    agent = session.agent
    applied = {"model": agent.model, "effort": agent.config.reasoning.effort}
    sources = [{"source": f"{each.source}Settings", "settings": dict(each.values)} for each in layers]
    return Handled({"effective": effective, "sources": sources, "applied": applied})


def _apply(session: Session, given: Json) -> Handled:
    settings = given.get("settings")
    settings = settings if isinstance(settings, dict) else {}
    fixed = sorted(settings.keys() - {"model", "effortLevel"})
    if fixed:
        raise RequestRefused(f"a running session cannot change {', '.join(fixed)}")
    model = SET_MODEL.read(settings)
    check_model(session, model)
    if "effortLevel" in settings:
        level = SET_EFFORT.read({"effort": settings["effortLevel"]})
        session.reason(replace(session.agent.config.reasoning, effort=level))
    if "model" in settings:
        session.agent.set_model(model)
    return Handled({})


def _task_output(session: Session, given: Json) -> Handled:
    text = find_task(session, _text(given, "task_id")).read(10_000, _MAX_OUTPUT)
    size = len(text.encode())
    return Handled({"output": text, "total_bytes": size, "truncated": size >= _MAX_OUTPUT})


async def _set_servers(session: Session, given: Json) -> Json:
    """Replace the servers inside the client. Others are started with a session."""
    servers = given.get("servers")
    if not isinstance(servers, dict):
        raise RequestRefused("servers is missing")
    inside = [name for name, each in servers.items() if isinstance(each, dict) and each.get("type") == "sdk"]
    before = session.options.client_mcp
    configs = {name: servers[name] for name in inside}
    session.adopt(Initialize({"client_mcp": inside, "client_mcp_configs": configs}, replaces=True))
    await session.clients.settle(session.options, 5.0)
    failed = {each["name"]: each["error"] for each in session.clients.status if each.get("error")}
    others = dict.fromkeys(servers, "such a server is started with the session: use mcpServers")
    errors = {**others, **dict.fromkeys(inside)}
    return {
        "added": [name for name in inside if name not in before],
        "removed": [name for name in before if name not in inside],
        "errors": {name: text for name, text in {**errors, **failed}.items() if text and name in servers},
    }


async def _read_file(session: Session, given: Json) -> Json:
    """A file, if Read may read it without a question."""
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
