"""Agents of others that can work in a session in place of ccb's own: how each is started, what it speaks, and how it
learns where its models are."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import field, replace
from typing import Any

from .dataclass import dataclass
from .model_facts import ModelNames, sent_name

URL = "{url}"
"""Stands for the address of the relay to the laptop, in the values of `KnownAgent.environment`."""
_NO_KEY = "none-on-this-host"  # agents want a key; that of the laptop is added there
_ANTHROPIC = {"ANTHROPIC_BASE_URL": URL, "ANTHROPIC_AUTH_TOKEN": _NO_KEY}
_OPENAI = {"OPENAI_BASE_URL": f"{URL}/v1", "OPENAI_API_KEY": _NO_KEY}
_GEMINI = {"GOOGLE_GEMINI_BASE_URL": URL, "GEMINI_API_KEY": _NO_KEY}
_CODEX = (  # it takes no address of its own provider from the environment
    '{"model_provider":"ccb","model_providers":{"ccb":{"name":"ccb","env_key":"OPENAI_API_KEY",'
    f'"wire_api":"responses","base_url":"{URL}/v1"}}}}}}'
)
_OPENCODE = (  # without these it takes a free model of its maker, which no proxy sees, and asks for nothing
    '{"enabled_providers":["anthropic"],"permission":{"edit":"ask","bash":"ask","webfetch":"ask"},'
    '"autoupdate":false,"share":"disabled","provider":{"anthropic":{"options":'
    f'{{"baseURL":"{URL}/v1","apiKey":"{_NO_KEY}"}}}}}}}}'
)


@dataclass(frozen=True)
class KnownAgent:
    """An agent speaks the Agent Client Protocol, or, if it `streams_json`, that of ccb's own headless runs.
    `environment` leads it to its models, with `URL` in its values; empty, it uses a login of its own on the host.
    `in_band`: it can be told the address in the protocol, and needs that environment only where it cannot. `variables`
    it has always, and those of `if_trusted` where the person trusts the project. `flags` are options of the session
    that it takes on its command line, as field of `SessionOptions` and flag. `loads`: a new process of it can go
    on with its conversation."""

    name: str
    argv: tuple[str, ...]
    streams_json: bool = False
    environment: Mapping[str, str] = field(default_factory=dict)
    in_band: bool = False
    variables: Mapping[str, str] = field(default_factory=dict)
    if_trusted: Mapping[str, str] = field(default_factory=dict)
    flags: Mapping[str, str] = field(default_factory=dict)
    loads: bool = True

    def model_instead(self, options: Any) -> str:
        """Return the model of the session if the laptop is to ask it in place of those that the agent asks for: one of
        another maker, of an agent that speaks Gemini's API. Else "". `options` is a `SessionOptions`."""
        model = sent_name(ModelNames(options.model_aliases).resolved(options.model or ""))
        return model if self.environment == _GEMINI and ("/" in model or "claude" in model) else ""


OWN_OPTIONS = {
    "allowed_tools": "--allowedTools",
    "disallowed_tools": "--disallowedTools",
    "system_prompt": "--system-prompt",
    "append_system_prompt": "--append-system-prompt",
    "max_turns": "--max-turns",
    "max_budget_usd": "--max-budget-usd",
    "add_dirs": "--add-dir",
    "tools": "--tools",
    "agents": "--agents",
    "json_schema": "--json-schema",
    "fallback_model": "--fallback-model",
    "effort": "--effort",
    "max_thinking_tokens": "--max-thinking-tokens",
    "plugin_dirs": "--plugin-dir",
    "laptop_mcp": "--mcp-config",
    "channels": "--channel",
}
"""The options about ccb's own agent, as field of `SessionOptions` and flag. Other agents take few of them."""

_CLAUDE_FLAGS = """
allowed_tools disallowed_tools system_prompt append_system_prompt max_turns max_budget_usd add_dirs fallback_model"""
_CLAUDE_ARGV = (
    *("claude", "--print", "--verbose", "--input-format", "stream-json", "--output-format", "stream-json"),
    *("--include-partial-messages", "--permission-prompt-tool", "stdio"),
)
_AGENTS = (
    KnownAgent(
        "claude",
        _CLAUDE_ARGV,
        streams_json=True,
        environment=_ANTHROPIC,
        variables={"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1"},
        flags={name: OWN_OPTIONS[name] for name in _CLAUDE_FLAGS.split()},
    ),
    KnownAgent("claude-acp", ("claude-agent-acp",), environment=_ANTHROPIC, in_band=True),
    KnownAgent(
        "gemini",
        ("gemini", "--acp"),
        environment=_GEMINI,
        in_band=True,
        variables={"GEMINI_CLI_NO_RELAUNCH": "true"},
        if_trusted={"GEMINI_CLI_TRUST_WORKSPACE": "true"},
        loads=False,  # at times it does, without the results of calls, and its models refuse that for ever
    ),
    KnownAgent("codex", ("codex-acp",), environment={**_OPENAI, "CODEX_CONFIG": _CODEX}, in_band=True),
    KnownAgent("opencode", ("opencode", "acp"), environment={"OPENCODE_CONFIG_CONTENT": _OPENCODE}),
    KnownAgent(
        "goose",
        ("goose", "acp"),
        environment={"GOOSE_PROVIDER": "anthropic", "ANTHROPIC_HOST": URL, "ANTHROPIC_API_KEY": _NO_KEY},
    ),
    KnownAgent("qwen", ("qwen", "--acp", "--auth-type", "openai"), environment=_OPENAI),
    KnownAgent("kimi", ("kimi", "acp"), environment={"KIMI_BASE_URL": f"{URL}/v1", "KIMI_API_KEY": _NO_KEY}),
    KnownAgent("copilot", ("copilot", "--acp")),
    KnownAgent("cursor", ("cursor-agent", "acp")),
    KnownAgent("auggie", ("auggie", "--acp")),
    KnownAgent("droid", ("droid", "exec", "--output-format", "acp")),
)
KNOWN_AGENTS = {agent.name: agent for agent in _AGENTS}

_RUNNERS = ("python", "python3", "node", "npx", "bunx", "uvx", "env")  # the program is what they run
_STREAM_JSON = "stream-json:"


def is_foreign(agent: str) -> bool:
    """Return whether the value of --agent is a known agent or a command line, and no agent of ccb."""
    return agent in KNOWN_AGENTS or " " in agent or "/" in agent


def stream_json_program(path: str) -> str:
    """Return the value that means a program which speaks stream-json."""
    return _STREAM_JSON + shlex.quote(path)


def foreign_agent(text: str) -> KnownAgent:
    """Return the agent that a name, a command line or `stream_json_program` means. A command line that begins as that
    of a known agent is this agent. Raise ValueError for what is no command line."""
    if text in KNOWN_AGENTS:
        return KNOWN_AGENTS[text]
    words = tuple(shlex.split(text[len(_STREAM_JSON) :] if text.startswith(_STREAM_JSON) else text))
    if not words:
        raise ValueError("the command line of the agent is empty")
    named = [each for each in words if not each.startswith("-") and each.rpartition("/")[2] not in _RUNNERS]
    program = (named or words)[0].rpartition("/")[2]
    if text.startswith(_STREAM_JSON):
        claude = KNOWN_AGENTS["claude"]
        return replace(claude, name=program, argv=(*words, *claude.argv[1:]))
    for known in _AGENTS:
        start = words[0].rpartition("/")[2], *words[1 : len(known.argv)]
        if start == known.argv and not known.streams_json:
            return replace(known, argv=words)
    return KnownAgent(program, words, environment={**_ANTHROPIC, **_OPENAI, **_GEMINI})


def environment_of(agent: KnownAgent, url: str, *, trusted: bool) -> dict[str, str]:
    """Return the variables of the agent. Without a `url`, it is told that in the protocol, or not at all."""
    led = {name: value.replace(URL, url) for name, value in agent.environment.items()} if url else {}
    return {**led, **agent.variables, **(agent.if_trusted if trusted else {})}


def options_without_effect(agent: KnownAgent, options: Any) -> list[str]:
    """Return the flags of given options that this agent does not take. `options` is a `SessionOptions`."""
    given = options.to_json()
    held_here = ("max_budget_usd",) if agent.environment else ()  # by the laptop, for the calls that go through it
    taken = {*agent.flags, *held_here}
    return [flag for name, flag in OWN_OPTIONS.items() if given.get(name) and name not in taken]


def flags_for(agent: KnownAgent, options: Any) -> list[str]:
    """Return the words of the agent's command line for the options that it takes."""
    words: list[str] = []
    for name, flag in agent.flags.items():
        value = options.to_json().get(name)
        for each in value if isinstance(value, list) else [value] if value is not None else []:
            words += [flag, str(each)]
    return words
