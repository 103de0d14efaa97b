"""/agents, /hooks, /output-style, /skills, /mcp: what person, project and client have added to the agent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from pydantic import ConfigDict, Field

from ccb.tunnel.errors import ConfigError
from ccb.tunnel.plain_text import HostText, one_line
from ccb.tunnel.wire import client_requests as requests
from ccb.tunnel.wire.control_protocol import Request, RequestRefused
from ccb.tunnel.wire.mcp_messages import MCP_RECONNECT, MCP_STATUS
from ccb.tunnel.wire.messages import as_blocks

from ..config.settings_loading import keep_setting, load_settings
from ..session.session_client import Json
from ..terminal.stdio import in_thread
from ..transcript.blocks import Level
from .registry import Choices, Page, Picker, Reply, ReplyRow, Rows, Text, command, everywhere
from .session_api import SessionApi, WorkerAnswer

if TYPE_CHECKING:
    from ..mcp.mcp_service import ServerState

_MAX_SHOWN = 50
_MAX_FACT = 300  # characters
_UNTRUSTED = "What a project brings counts once you trust it: /trust."


def _fact(text: str) -> str:
    return HostText(text).line(_MAX_FACT) if text else ""


def _described(facts: Mapping[str, str], text: str) -> list[str]:
    """Return a line for each fact that is known, and then the text as it is."""
    return [*(f"{one_line(name)[:15]:<16}{_fact(each)}" for name, each in facts.items() if each), "", *text.split("\n")]


class _Agent(WorkerAnswer):
    """The definition of a sub-agent. Only one that is asked for by its name has its `prompt`. Further fields are shown
    by the names that they have in its file."""

    model_config = ConfigDict(extra="allow", frozen=True)

    name: str
    description: str = ""
    source: str = ""
    path: str = ""
    model: str = ""
    tools: list[str] | None = None
    disallowedTools: Sequence[str] = ()
    readOnly: bool = False
    prompt: str = ""

    @property
    def whose(self) -> str:
        return _WHOSE.get(self.source, self.source)

    @property
    def model_text(self) -> str:
        return {"": "the model of the session", "small": "the small model"}.get(self.model, self.model)

    @property
    def tools_text(self) -> str:
        listed = "all tools" if self.tools is None else ", ".join(self.tools) or "no tools"
        without = f" without {', '.join(self.disallowedTools)}" if self.disallowedTools else ""
        return f"{listed}{without}{', only reads' if self.readOnly else ''}"

    @property
    def place(self) -> str:
        of_plugin = ":" in self.name  # it came to the host with the program that drives
        where = " on this laptop" if self.source == "user" and not of_plugin else " on the host"
        return f"{self.whose}: {self.path}{where}" if self.path else self.whose


class _Agents(WorkerAnswer):
    agents: Sequence[_Agent] = ()


_WHOSE = {"user": "yours", "project": "the project", "client": "the client", "built-in": "built in"}


async def _agent_names(api: SessionApi) -> Choices:
    found = (await api.read(Request(requests.LIST_AGENTS, ""), _Agents)).agents
    return {one_line(each.name): one_line(each.description) for each in found}


@command("agents [NAME]", "choose a sub-agent from a list, and read its definition", asked=_agent_names)
async def agents(api: SessionApi, name: str) -> Reply:
    found = (await api.read(Request(requests.LIST_AGENTS, name), _Agents)).agents
    if not name:
        rows = [
            ReplyRow(each.name, f"{each.whose} · {each.model_text} · {each.tools_text}", f"/agents {each.name}")
            for each in found
        ]
        after = "" if any(each.source == "project" for each in found) else _UNTRUSTED
        return Picker(_safe(rows), "No agent can be started.", after, "Sub-agents", does="shows the definition")
    if not found:
        return Text(f"There is no agent {name}. /agents lists them.", Level.WARNING)
    one = found[0]
    facts = {"for": one.description, "from": one.place, "model": one.model_text, "tools": one.tools_text}
    for key, value in (one.model_extra or {}).items():
        facts[key] = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
    return Page(_described(facts, one.prompt), title=f"Sub-agent {one_line(one.name)}")


def _safe(rows: Sequence[ReplyRow]) -> list[ReplyRow]:
    return [ReplyRow(_fact(each.name), _fact(each.text), one_line(each.choose)) for each in rows]


class _Hook(WorkerAnswer):
    event: str
    matcher: str = ""
    type: str = ""
    source: str = ""
    sourceLabel: str = ""
    commandText: str = ""
    content: str = ""
    condition: str = ""
    timeout: float = 0.0
    statusMessage: str = ""
    runsOnce: bool = False
    runsInBackground: bool = False


class _Hooks(WorkerAnswer):
    hooks: Sequence[_Hook] = ()
    problems: Sequence[str] = ()


_LAYERS = {
    "userSettings": "yours",
    "projectSettings": "the project",
    "localSettings": "the project",
    "flagSettings": "--settings",
    "policySettings": "the organisation",
    "sessionHook": "the client",
}
_NO_HOOKS = 'No hooks run on this host. They are configured under "hooks" in the settings.'


@command("hooks [N]", "choose a hook from a list, and read what it runs")
async def hooks(api: SessionApi, number: str) -> Reply:
    answer = await api.read(Request(requests.LIST_HOOKS, None), _Hooks)
    chosen = next((each for place, each in enumerate(answer.hooks, 1) if str(place) == number), None)
    if chosen is not None:
        return _hook_page(chosen)
    if number:
        return Text(f"There is no hook {number[:20]}: /hooks lists them.", Level.WARNING)
    rows = []
    for place, each in enumerate(answer.hooks, 1):
        whose, runs = _LAYERS.get(each.source, each.source), f"{each.type} {each.commandText}"
        rows.append(ReplyRow(f"{each.event} {each.matcher}".rstrip(), f"{whose} · {runs}", f"/hooks {place}"))
    broken = [f"Not used: {one_line(each)}" for each in answer.problems]
    of_project = any(_LAYERS.get(each.source) == _LAYERS["projectSettings"] for each in answer.hooks)
    after = "\n".join([*broken, *([] if of_project else [_UNTRUSTED])])
    return Picker(_safe(rows), "\n".join([_NO_HOOKS, *broken]), after, "Hooks", does="shows all of it")


def _hook_page(hook: _Hook) -> Page:
    whose = _LAYERS.get(hook.source, hook.source)
    facts = {
        "event": hook.event,
        "matcher": hook.matcher or "all",
        "if": hook.condition,
        "from": f"{whose}: {hook.sourceLabel}" if hook.sourceLabel else whose,
        "type": hook.type,
        "at most": f"{hook.timeout:g} s",
        "runs": ", ".join(["once"] * hook.runsOnce + ["in the background"] * hook.runsInBackground),
        "statusMessage": hook.statusMessage,
    }
    return Page(_described(facts, hook.content or hook.commandText), title=f"Hook of {one_line(hook.event)}")


class _Style(WorkerAnswer):
    name: str = Field(pattern=r"^\w[\w .-]{0,99}$")  # it goes into the settings file
    description: str = ""
    source: str = ""


class _Styles(WorkerAnswer):
    styles: Sequence[_Style] = ()
    output_style: str = ""
    set_by: str = ""


async def _style_names(api: SessionApi) -> Choices:
    found = (await api.read(Request(requests.LIST_STYLES, None), _Styles)).styles
    return {one_line(each.name): one_line(each.description) for each in found}


@command("output-style [NAME]", "choose the style of answers for new sessions from a list", asked=_style_names)
async def output_style(api: SessionApi, name: str) -> Reply:
    answer = await api.read(Request(requests.LIST_STYLES, None), _Styles)
    if not name:
        rows = [
            ReplyRow(
                each.name, f"{_WHOSE.get(each.source, 'built in')} · {each.description}", f"/output-style {each.name}"
            )
            for each in answer.styles
        ]
        none = "The worker of this session is too old to list its styles."
        return Picker(_safe(rows), none, title="Style of answers", current=_fact(answer.output_style))
    chosen = next((each.name for each in answer.styles if each.name.casefold() == name.casefold()), "")
    if not chosen:
        return Text(f"There is no style {name}: it stays. /output-style lists them.", Level.WARNING)
    await in_thread(lambda: keep_setting(api.environ, ["outputStyle"], chosen))
    if answer.set_by not in ("", "user") and answer.output_style != chosen:
        whose = _LAYERS.get(f"{answer.set_by}Settings", "a policy")
        kept = f"{chosen} is in your settings, but {whose} counts more here: {one_line(answer.output_style)}."
        return Text(kept, Level.WARNING)
    return Text(f"Output style: {chosen}, in new sessions. /new begins one.")


class _Named(WorkerAnswer):
    name: str
    description: str = ""


class _Skills(WorkerAnswer):
    skills: Sequence[_Named] = ()


@everywhere("skills", "list the skills that the agent may use, and you by their names")
async def skills(api: SessionApi, sought: str) -> Reply:
    found = (await api.read(Request(requests.RELOAD_SKILLS, None), _Skills)).skills
    rows = [ReplyRow(f"/{one_line(each.name)}", one_line(each.description)) for each in found]
    none = "There is no skill. One is a file .claude/skills/NAME/SKILL.md of the project, or of yours on this laptop."
    return Rows(rows, none, title="Skills" if rows else "", sought=sought)


_WHERE = {"laptop": "on this laptop", "client": "in the client", "sdk": "in the client", "stdio": "on the host"}


def _servers(api: SessionApi) -> Choices:
    others = [tool.split("__")[1] for tool in api.transcript.facts.tools if tool.startswith("mcp__")]
    return {f"reconnect {one_line(each)}": "" for each in dict.fromkeys((*api.laptop_servers, *others))}


@everywhere("mcp [reconnect NAME]", "list the MCP servers with their state, connect one again", choices=_servers)
async def mcp(api: SessionApi, argument: str) -> Reply:
    word, _, name = argument.partition(" ")
    if word == "reconnect" and name.strip():
        return await _reconnect(api, name.strip())
    if argument:
        return Text("/mcp lists the servers, /mcp reconnect NAME connects one again.", Level.WARNING)
    servers = as_blocks((await api.request(Request(MCP_STATUS, None))).get("mcpServers"))
    own = api.laptop.mcp.states() if api.laptop.mcp is not None else {}
    for name, path in (await in_thread(lambda: _imported(api.environ))).items() if own else ():
        if name in own:
            own[name] = replace(own[name], shown=f"{own[name].shown}, from {path}")
    rows = [_server_row(each, own) for each in servers[:_MAX_SHOWN]]
    missing = own.keys() - {each.get("name") for each in servers}
    unused = "not used by the agent, on this laptop: "
    rows += [ReplyRow(name, f"{unused}{state.shown}") for name, state in own.items() if name in missing]
    broken = any(each.get("status") in ("failed", "needs-auth") for each in servers)
    none = "There is no MCP server. `ccb mcp add NAME -- COMMAND` adds one to your settings."
    return Rows(rows, none, "/mcp reconnect NAME tries again." if broken else "")


def _imported(environ: Mapping[str, str]) -> Mapping[str, str]:
    try:
        return load_settings(environ).imported_servers
    except ConfigError:  # somebody has changed the file since the start
        return {}


async def _reconnect(api: SessionApi, name: str) -> Text:
    servers = api.laptop.mcp
    if servers is not None and name in api.laptop_servers:
        try:
            await servers.restart(name)
        except RequestRefused as refused:
            why = servers.states()[name].why
            return Text(f"{refused}{f': {why}' if why else ''}", Level.ERROR)
    await api.request(Request(MCP_RECONNECT, name))
    return Text(f"{name} is being connected again. Its tools count from the next turn.")


def _server_row(server: Json, own: Mapping[str, ServerState]) -> ReplyRow:
    """Return what is known of a server: the host says what the agent sees, the laptop why one of its own fails."""
    name, status = (HostText(str(server.get(each))).line(most) for each, most in (("name", 64), ("status", 20)))
    tools = server.get("tools")
    offers = f", {len(tools)} tool{'' if len(tools) == 1 else 's'}" if isinstance(tools, list) else ""
    transport = str(server.get("transport"))
    state = own.get(str(server.get("name"))) if transport == "laptop" else None
    where = _WHERE.get(transport, HostText(transport).line(20)) + (f": {state.shown}" if state is not None else "")
    why = (state.why if state is not None else "") or str(server.get("error") or "")
    wait = server.get("retryInSeconds")
    again = f"; next try in {wait} s" if isinstance(wait, int) else ""
    reason = f" ({HostText(why).line(300)}{again})" if why and status != "connected" else ""
    return ReplyRow(name, f"{status}{offers}, {where}{reason}")
