"""Decides on this laptop which calls of its MCP servers may run: by answers given here, its rules and its mode."""

from __future__ import annotations

import hashlib
import json
import re
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import field
from typing import Any

from ccb.tunnel.plain_text import one_line
from ccb.tunnel.wire import control_protocol as control
from ccb.tunnel.wire.client_requests import CHANGE_RULES
from ccb.tunnel.wire.dataclass import dataclass
from ccb.tunnel.wire.frames import Json
from ccb.tunnel.wire.mcp_messages import rule_tool, server_name, unmarked
from ccb.tunnel.wire.messages import ControlRequest, ControlResponse, PublicMessage, UserMessage, as_blocks, as_dict
from ccb.tunnel.wire.tool_traits import READ_MCP_RESOURCE, mcp_rule_covers, split_rules

from ..session.newest import MAX_ID, Newest

Ask = Callable[[control.ToolApproval], Awaitable[control.ToolPermission]]

READ_RESOURCE = READ_MCP_RESOURCE.name  # reads resources of servers; its input names server and URI
_BYPASS, _DONT_ASK = "bypassPermissions", "dontAsk"
_WHY = control.AskedBecause("The host wants to run this and did not ask you here.", "other")
_PUSHES = control.AskedBecause("May this server put messages into the session? This is the first one.", "other")
_MAX_CALLS = 1_000
_MAX_TYPED = 100
_MAX_ASKED = 50_000
_COMMAND = re.compile(r"/(mcp__\S{1,200})")
_NAMES = re.compile(r"[A-Za-z0-9_|]+")
_DECIDING = ("PreToolUse", "PermissionRequest")
_YES, _NO = frozenset(("allow", "approve")), frozenset(("deny", "block", "ask"))


def mcp_rules(rules: Mapping[str, Sequence[str]]) -> dict[str, set[str]]:
    """Return the rules about MCP tools, by what they do: allow, deny, ask. `rules` are lists as the command line and
    the settings have them. A rule with parentheses allows nothing here: what it is limited to is not known of these
    tools. One that denies or asks counts for the whole tool."""
    found: dict[str, set[str]] = {"allow": set(), "deny": set(), "ask": set()}
    for kind, texts in rules.items():
        for rule in (each for text in texts for each in split_rules(text)[0]):
            tool, limit, _ = rule.partition("(")
            if kind != "allow" or not limit or rule.endswith("(*)"):
                found[kind].add(rule_tool(tool))
    return found


@dataclass(frozen=True)
class _Shown:
    """A request as the reader got it: the tool, the id of the call, what it would do, and the hook that it calls."""

    kind: str
    tool: str
    tool_use_id: str
    input: bytes
    callback: str = ""


@dataclass
class _LaptopCall:
    """What was decided about a call: the input that a person `allowed`, or what a `hook` said about one of `inputs`."""

    tool: str
    allowed: bytes = b""
    denied: str = ""
    hook: str = ""
    inputs: set[bytes] = field(default_factory=set)

    def allows(self, tool: str, digest: bytes) -> bool:
        return tool == self.tool and (digest == self.allowed or (self.hook == "allow" and digest in self.inputs))


@dataclass(eq=False)
class LaptopPermissions:
    """A `Witness` that decides with `check`. `ask` puts a question to the person, None if nobody is there.
    `prompt_tool` answers in place of the person, "" for none."""

    rules: Callable[[], Mapping[str, Sequence[str]]]
    ask: Ask | None
    mode: str
    may_bypass: bool
    prompt_tool: str = ""
    _session: dict[str, set[str]] = field(default_factory=lambda: mcp_rules({}))
    _digests: dict[str, bytes] = field(default_factory=dict)  # of every request by id: one id must not mean two things
    _open: Newest[str, _Shown] = field(default_factory=lambda: Newest(_MAX_CALLS))
    _calls: Newest[str, _LaptopCall] = field(default_factory=lambda: Newest(_MAX_CALLS))
    _callbacks: Mapping[str, Sequence[str]] = field(default_factory=dict)  # matchers by hook of the client
    _channels: set[str] = field(default_factory=set)  # those that were allowed for this session
    _typed: OrderedDict[str, None] = field(default_factory=OrderedDict)  # commands and mentions of our prompts

    # What this laptop was asked, and says.

    def asked(self, line: ControlRequest) -> None:
        if line.subtype == control.CAN_USE_TOOL.name:
            shown = _shown(line.subtype, line.request, line.request, "input")
        elif line.subtype == control.HOOK_CALLBACK.name:
            shown = _shown(line.subtype, line.request, as_dict(line.request.get("input")), "tool_input")
        else:
            return
        digest = _digest(line.request)
        if line.request_id not in self._digests and len(self._digests) < _MAX_ASKED:
            self._digests[line.request_id] = digest
        if self._digests.get(line.request_id) == digest:
            self._open[line.request_id] = shown
        else:  # nobody can tell which of the two an answer is about
            self._open.pop(line.request_id, None)

    def withdrawn(self, request_id: str) -> None:
        self._open.pop(request_id, None)

    def said(self, line: PublicMessage) -> None:
        if isinstance(line, ControlResponse):
            shown = self._open.pop(line.request_id, None)
            if shown is not None and shown.kind == control.CAN_USE_TOOL.name:
                self._answered(shown, control.ToolPermission.from_answer(control.answer_in(line)))
            elif shown is not None:
                answer = control.answer_in(line)
                self._hooked(shown, (answer.payload if isinstance(answer, control.Success) else None) or {})
        elif isinstance(line, ControlRequest):
            if line.subtype == control.INTERRUPT.name:
                self._calls.clear()
            elif line.subtype == control.SET_PERMISSION_MODE.name:
                self._set_mode(line.request.get("mode"))
            elif line.subtype == CHANGE_RULES.name:
                with suppress(control.RequestRefused):  # the worker refuses it, too
                    self._update(CHANGE_RULES.read(line.request))
            elif line.subtype == "initialize" and isinstance(line.request.get("hooks"), dict):
                self._callbacks = _callbacks(line.request["hooks"])
        elif isinstance(line, UserMessage):
            self._typed_by_person(line.text("\n"))

    def _typed_by_person(self, text: str) -> None:
        command = _COMMAND.match(text.strip())
        for typed in (*([command[1]] if command else ()), *re.findall(r"@(\S{1,2000})", text)[:_MAX_TYPED]):
            self._typed.update(dict.fromkeys((typed, typed.rstrip(".,;:!?)]'"))))
        while len(self._typed) > _MAX_TYPED:
            self._typed.popitem(last=False)

    def replied(self, tool: str, question: Json, result: Json) -> None:
        """Note what a server has answered to a call, if the tool is the one that answers in place of the person."""
        if not self.stands_for_person(tool):
            return
        parts = result.get("content")
        texts = [str(each.get("text")) for each in (parts if isinstance(parts, list) else ()) if isinstance(each, dict)]
        try:
            answer = json.loads("\n".join(texts))
        except (ValueError, RecursionError):
            return
        if isinstance(answer, dict) and result.get("isError") is not True:
            shown = _shown(control.CAN_USE_TOOL.name, question, question, "input")
            self._answered(shown, control.ToolPermission.from_answer(control.Success("", answer)))

    def _answered(self, shown: _Shown, permission: control.ToolPermission) -> None:
        call = self._call(shown)
        call.denied = "" if permission.allow else permission.message or "The person refused this call."
        if permission.allow:
            changed = permission.updated_input
            call.allowed = shown.input if changed is None else _digest(changed)
        self._update(permission.updates)

    def _hooked(self, shown: _Shown, answer: Json) -> None:
        """Note what a hook of the client decided: the strictest holds. It allows only tools it was registered for."""
        own = as_dict(answer.get("hookSpecificOutput"))
        inner = as_dict(own.get("decision"))
        word = str(own.get("permissionDecision") or inner.get("behavior") or answer.get("decision") or "")
        call = self._call(shown)
        call.inputs.add(shown.input)
        for updated in (own.get("updatedInput"), inner.get("updatedInput")):
            if isinstance(updated, dict):
                call.inputs = {_digest(updated)}
        if word in _NO:
            call.hook = "ask"
        matchers = self._callbacks.get(shown.callback, ())
        if word in _YES and not call.hook and any(_matches(each, shown.tool) for each in matchers):
            call.hook = "allow"

    def _call(self, shown: _Shown) -> _LaptopCall:
        call = self._calls.get(shown.tool_use_id)
        if call is None or call.tool != shown.tool:
            call = self._calls[shown.tool_use_id] = _LaptopCall(shown.tool)
        return call

    def _update(self, updates: Sequence[Json]) -> None:
        for update in updates:
            kind, rules, behavior = update.get("type"), update.get("rules"), str(update.get("behavior"))
            if kind == "setMode":
                self._set_mode(update.get("mode"))
            elif kind in ("addRules", "removeRules") and isinstance(rules, list) and behavior in self._session:
                found = mcp_rules({behavior: [_rule_text(each) for each in rules if isinstance(each, dict)]})[behavior]
                if kind == "addRules":
                    self._session[behavior] |= found
                else:
                    self._session[behavior] -= found

    def _set_mode(self, mode: object) -> None:
        if isinstance(mode, str) and (mode != _BYPASS or self.may_bypass):
            self.mode = mode

    # What the worker wants.

    async def check(self, tool: str, arguments: Json, tool_use_id: str) -> Json:
        """Return the arguments with which a call may run, which an answer may have changed. Raise RequestRefused."""
        if self._covered("deny", tool):
            raise control.RequestRefused(f"A rule of this laptop denies {one_line(tool)[:200]}.")
        if self.stands_for_person(tool):
            return arguments
        call = self._calls.pop(tool_use_id, None)
        if call is not None and call.tool == tool and call.denied:
            raise control.RequestRefused(call.denied)
        if call is not None and call.allows(tool, _digest(arguments)):
            return arguments
        return arguments if self._allows(tool) else await self._asked_here(tool, arguments, tool_use_id)

    async def check_reading(self, server: str, uri: str) -> None:
        arguments = {"server": server, "uri": uri}
        digest = _digest(arguments)
        tools = f"mcp__{server_name(server)}__"
        if self._covered("deny", READ_RESOURCE) or self._covered("deny", tools):
            raise control.RequestRefused("A rule of this laptop denies reading resources of this server.")
        if f"{server}:{uri}" in self._typed:
            return
        found = next((each for each, call in self._calls.items() if call.allows(READ_RESOURCE, digest)), None)
        if found is not None:
            del self._calls[found]
            return
        if not (self._allows(READ_RESOURCE) or self._allows(tools)):
            await self._asked_here(READ_RESOURCE, arguments, "")

    async def check_prompt(self, server: str, command: str, arguments: Json) -> None:
        """Raise RequestRefused unless the prompt may be fetched that people call with `/command`."""
        if self._covered("deny", command):
            raise control.RequestRefused("A rule of this laptop denies this prompt.")
        if command in self._typed:
            del self._typed[command]
        elif not self._allows(f"mcp__{server_name(server)}__"):
            await self._asked_here(command, arguments, "")

    async def check_channel(self, server: str, text: str) -> None:
        """Raise RequestRefused unless a server may put messages into the session. Only a rule of just that name allows
        it without a question, neither one for the tools of the server nor a mode; one yes holds for the session."""
        tool = f"mcp__{server_name(server)}__channel"
        if self._covered("deny", tool):
            raise control.RequestRefused(f"A rule of this laptop denies {tool}.")
        if tool not in mcp_rules(self.rules())["allow"] | self._channels:
            await self._asked_here(tool, {"message": text}, "", _PUSHES)
            self._channels.add(tool)

    def stands_for_person(self, tool: str) -> bool:
        return tool == self.prompt_tool

    def _allows(self, tool: str) -> bool:
        if self._covered("ask", tool):
            return False
        return self.mode == _BYPASS or self._covered("allow", tool)

    def _covered(self, kind: str, tool: str) -> bool:
        rules = mcp_rules(self.rules())[kind]
        names = (tool,) if kind == "allow" else (tool, unmarked(tool))
        return any(mcp_rule_covers(rule, each) for rule in rules | self._session[kind] for each in names)

    async def _asked_here(self, tool: str, arguments: Json, tool_use_id: str, why: control.AskedBecause = _WHY) -> Json:
        shown = one_line(tool)[:200]
        if self.ask is None or self.mode == _DONT_ASK:
            raise control.RequestRefused(
                f"The laptop has not allowed {shown}, and nobody can be asked there. "
                f"Allow it on the laptop: --allowedTools {shown}, or a rule in its settings."
            )
        rules = [{"toolName": tool}]
        suggestions = [{"type": "addRules", "rules": rules, "behavior": "allow", "destination": "session"}]
        question = control.ToolApproval(tool, tool, arguments, tool_use_id, suggestions, why)
        permission = await self.ask(question)
        if not permission.allow:
            raise control.RequestRefused(permission.message or "The person refused this call.")
        self._update(permission.updates)
        return arguments if permission.updated_input is None else permission.updated_input


def _shown(kind: str, request: Json, about: Json, key: str) -> _Shown:
    tool_input = about.get(key)
    tool_use_id = request.get("tool_use_id") or about.get("tool_use_id") or ""
    callback = str(request.get("callback_id") or "")
    tool = str(about.get("tool_name") or "")
    return _Shown(kind, tool[:MAX_ID], str(tool_use_id)[:MAX_ID], _digest(tool_input), callback[:MAX_ID])


def _callbacks(hooks: Json) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for event in _DECIDING:
        for entry in as_blocks(hooks.get(event)):
            ids = entry.get("hookCallbackIds")
            for each in ids if isinstance(ids, list) else ():
                found.setdefault(str(each), []).append(str(entry.get("matcher") or ""))
    return found


def _matches(matcher: str, tool: str) -> bool:
    if matcher in ("", "*"):
        return True
    if _NAMES.fullmatch(matcher):
        return tool in matcher.split("|")
    try:
        return re.search(matcher, tool) is not None
    except re.error:
        return False


def _digest(value: object) -> bytes:
    """Return a digest by which two JSON values can be compared: it is the same only for equal ones."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, ensure_ascii=True).encode()).digest()


def _rule_text(rule: Mapping[str, Any]) -> str:
    content = rule.get("ruleContent")
    return f"{rule.get('toolName')}({content})" if content else str(rule.get("toolName"))
