"""The options of a session as the laptop sends them to the worker."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import asdict, field, fields
from typing import Any

from .dataclass import dataclass
from .frames import FrameError, Json, fits

MAX_BYTES = 1 << 20  # most bytes of all files together, as JSON


@dataclass(frozen=True)
class OwnFile:
    """One text file. `path` is relative to the person's `.claude` directory."""

    path: str
    text: str
    executable: bool = False


def pack(files: Iterable[OwnFile]) -> str:
    listed = [[each.path, each.text, each.executable] for each in files]
    return base64.b64encode(zlib.compress(json.dumps(listed).encode(), 9)).decode() if listed else ""


def unpack(packed: str) -> list[OwnFile]:
    """Raise ValueError for what `pack` has not made."""
    try:
        data = zlib.decompressobj().decompress(base64.b64decode(packed), MAX_BYTES + 1)
        files = [OwnFile(str(path), str(text), bool(executable)) for path, text, executable in json.loads(data)]
    except (zlib.error, TypeError, RecursionError) as error:
        raise ValueError(f"the files cannot be read: {error}") from None
    for each in files:
        if any(part in ("", ".", "..") for part in each.path.split("/")) or "\0" in each.path:
            raise ValueError(f"{each.path!r} is no path of a file")
    return files


CAGES = {"read-only": "read-only cage", "workspace": "workspace cage", "off": "no cage: the sandbox is off"}
"""What each sandbox mode means for commands that run without a question, on a host that can make the cage."""


def cage_of(sandbox: str, mode: str) -> str:
    """Return the cage of a sandbox mode while a permission mode is on, "" if there is no such sandbox mode."""
    return "no cage: permissions are bypassed" if mode == "bypassPermissions" else CAGES.get(sandbox, "")


CLAUDE_CODE_VERSION = "2.1.329"  # the version of the stream-json protocol that ccb speaks. Its clients compare it

INSTRUCTIONS, BUILT_IN_AGENTS = "instructions", "built_in_agents"  # what a program may leave out of a session

SETUP_COMMAND = "/?setup"  # a prompt that only starts a session: its hooks run, and no model is called

LAPTOP_COMMANDS = """
? add-dir agents branch btw bug config copy cost diff doctor effort exit export get help hooks hosts keys login mcp
mode model move new open output-style paste permissions ports put queue quit reconnect rename resume revoke rewind
sandbox sessions shell skills status statusline stop tasks theme thinking tools transcript trust vim"""
"""The names of the slash commands that the laptop carries out. Their lines must not reach a model as text."""


@dataclass(frozen=True)
class SessionOptions:
    """All are optional. The names follow the flags of the command line, and lists keep their order."""

    model: str | None = None
    permission_mode: str = "default"  # default | acceptEdits | plan | bypassPermissions
    permission_prompts: str = "none"  # stdio: ask the client; the name of an MCP tool: ask it; none: deny
    allow_bypass: bool = False  # --dangerously-skip-permissions was given, so set_permission_mode may choose bypass
    allowed_tools: list[str] = field(default_factory=list)
    disallowed_tools: list[str] = field(default_factory=list)
    system_prompt: str | None = None
    append_system_prompt: str | None = None
    max_turns: int | None = None
    add_dirs: list[str] = field(default_factory=list)
    partial_messages: bool = False
    replay_user_messages: bool = False
    api_key_source: str = "none"
    client: str = ""  # who drives, for `fenced.by`: "alice@laptop pid 4711"
    host: str = ""  # how the user called the host, for the system prompt
    sandbox: str = "read-only"  # read-only | workspace | off: the cage of commands that run without a question
    allow_net: bool = False  # --allow-net was given: commands in the workspace cage may use the network
    settings: Json = field(default_factory=dict)  # see `SettingsOption`
    tools: list[str] | None = None  # the built-in tools that the model is offered; None for all
    task_tools: bool | None = None  # TaskCreate and its like in place of TodoWrite; None: as the model knows them
    json_schema: Json | None = None  # each turn ends with a value that fits it
    agents: Json | None = None  # definitions of sub-agents, by name
    role: str = ""  # the agent, by its name, as which the main agent works
    foreign_agent: str = ""  # the agent of others that works in place of ccb's own: see `known_agents`
    setup: str = ""  # init | maintenance: the Setup hooks that a new session runs first
    left_out: list[str] = field(default_factory=list)  # see the constants above
    append_agent_prompt: str | None = None  # what the system prompt of every sub-agent ends with
    own_agents: Json = field(default_factory=dict)  # the person's files that define sub-agents: text by path
    own_files: str = ""  # the person's commands and skills: see `kinds.own_files`; in the journal, where they are
    client_hooks: Json | None = None  # hooks that the client answers, as `initialize` has them
    client_mcp: list[str] = field(default_factory=list)  # MCP servers inside the client
    client_mcp_configs: Json = field(default_factory=dict)  # what the client says of those servers: timeout, tools
    laptop_mcp: list[str] = field(default_factory=list)  # MCP servers on the laptop
    channels: list[str] = field(default_factory=list)  # MCP servers to whose messages the person has subscribed
    project_mcp: bool = True  # the MCP servers of a trusted project count
    max_budget_usd: float | None = None
    fallback_model: str | None = None
    model_facts: Json = field(default_factory=dict)  # what the laptop knows of models: see `ModelTable.learn_all`
    thinking_models: Json = field(default_factory=dict)  # the levels of effort of models that think, by model
    model_aliases: Json = field(default_factory=dict)  # the person's short names of models
    small_model: str = ""  # the model for small questions; "" for the one of the model's family
    compact_model: str = ""  # the model that writes summaries; "" for the one of the conversation
    max_thinking_tokens: int | None = None
    effort: str | None = None
    thinking_display: str | None = None  # summarized | omitted
    max_output_tokens: int | None = None  # the longest answer that the laptop allows
    task_budget: int | None = None  # the tokens that the model is told it may use for its task
    betas: list[str] = field(default_factory=list)  # features of the model API to switch on
    include_hook_events: bool = False
    defer_above: int | None = None  # the characters of added tools above which they are found by ToolSearch
    skills: list[str] | None = None  # the skills that the model is offered; None for all
    tool_aliases: Json = field(default_factory=dict)  # other names under which the model may call tools
    plan_instructions: str | None = None  # what a plan must say, in place of ccb's own words
    static_prompt: bool = False  # the surroundings go before the first prompt, not into the system prompt
    web: str = "host"  # host | laptop: whose network WebFetch uses
    web_allow_private: bool = False  # WebFetch may read from private addresses

    plugin_dirs: list[str] = field(default_factory=list)  # directories on the host with plugins
    titles: bool = False  # a small model gives the session a title, made of its first prompt
    forget: bool = False  # nothing of the session stays on the host
    background_after_ms: int = 0  # a foreground command goes on in the background after this time; 0: never
    background_wait_ms: int = 600_000  # how long a session that is to end waits for its tasks

    @property
    def agent_name(self) -> str:
        """The name of the agent of others, "" for ccb's own. Raise ValueError for what names none."""
        if not self.foreign_agent:
            return ""
        from .known_agents import foreign_agent  # most sessions have no such agent

        return foreign_agent(self.foreign_agent).name

    def to_json(self) -> Json:
        return _changed(self, SessionOptions())

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> SessionOptions:
        """Raise FrameError when a value has the wrong type. Unknown names are left out."""
        return SessionOptions(**_known(SessionOptions, data))


def _changed(options: Any, default: Any) -> Json:
    """Return the fields of a dataclass that differ from those of another."""
    return {k: v for k, v in asdict(options).items() if v != getattr(default, k)}


def _known(cls: Any, data: Mapping[str, Any]) -> Json:
    known = {f.name: (str(f.type), data[f.name]) for f in fields(cls) if f.name in data}
    for name, (kind, value) in known.items():
        if not fits(kind, value):
            raise FrameError(f"session option {name!r} has the wrong type", repr(value).encode())
    return {name: value for name, (_, value) in known.items()}


@dataclass(frozen=True)
class SettingsOption:
    """What the laptop knows of the settings of a session; nothing in it is secret. `layers` are objects {"source",
    "path", "values"}, the weakest first. `sources` are those of `--setting-sources`. `trusted` is the fingerprint of
    what is trusted in the session's directory, `*` for anything. `left_open` names what the person has not chosen."""

    layers: list[Json] = field(default_factory=list)
    sources: list[str] | None = None
    trusted: str = ""
    left_open: list[str] = field(default_factory=list)

    def to_json(self) -> Json:
        return _changed(self, SettingsOption())

    @staticmethod
    def from_json(data: Json) -> SettingsOption:
        """Raise FrameError when a value has the wrong type. Unknown names are left out."""
        option = SettingsOption(**_known(SettingsOption, data))
        if not all(isinstance(each.get("values"), dict) for each in option.layers):
            raise FrameError("session option 'layers' has the wrong type", repr(data).encode())
        return option
