"""The settings with their sections. The limits are for pydantic, which is loaded only if there is a file."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import field, fields, is_dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeVar

from ccb.tunnel.wire.dataclass import dataclass
from ccb.tunnel.wire.settings_text import line_of, lines_in

from ..command_line.arguments import Arguments
from ..command_line.option_values import nearest
from .settings_file import rules_without_tool

Kind = Literal[
    "anthropic", "openai", "azure", "gemini", "grok", "deepseek", "openrouter", "ollama", "vllm", "llamacpp",
    "bedrock", "vertex", "foundry", "compatible", "anthropic-compatible",
]  # fmt: skip
Dialect = Literal["anthropic", "chat", "responses"]
Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]

_URL = r"^https?://[^@\s]+$"  # a key stands in no file
_PLACE = r"^[a-z0-9][a-z0-9.:-]{0,62}$"
_PROJECT = r"^[A-Za-z0-9][A-Za-z0-9._:-]{0,62}$"
POLICY = "policy"
CLAUDE, USER, FLAG, KEPT, MANAGED = "claude", "user", "flag", "kept", "managed"
"""The sources of settings on this machine. `kept` are the rules that "always" has added. The worker, which has the same
names, takes those of Claude Code as the user's."""
POLICY_FILES = (Path("/etc/ccb/policy.json"), Path("/etc/ccb/managed-settings.json"))  # the first that is there counts
MAX_KEEP = 24 * 60  # minutes


@dataclass(frozen=True)
class ModelSettings:
    """What the person says of one model. It outranks what ccb knows."""

    contextWindow: int | None = field(default=None, metadata={"gt": 0})
    maxOutput: int | None = field(default=None, metadata={"gt": 0})
    tools: bool | None = None
    images: bool | None = None
    documents: bool | None = None
    thinking: bool | None = None
    efforts: list[Effort] | None = None
    inputPrice: float | None = field(default=None, metadata={"ge": 0})
    outputPrice: float | None = field(default=None, metadata={"ge": 0})
    cacheReadPrice: float | None = field(default=None, metadata={"ge": 0})


@dataclass(frozen=True)
class ProviderSettings:
    """One provider. `kind` is the name of the provider if it is not set; `dialect` replaces that of its kind. The key
    comes from the variable `keyVariable`, or from the command `keyHelper`; `keyHeader` carries it. In a cloud,
    `region`, `project` and `profile` say where and as whom."""

    kind: Kind | None = None
    dialect: Dialect | None = None
    baseUrl: str | None = field(default=None, metadata={"min_length": 1})
    keyVariable: str | None = field(default=None, metadata={"min_length": 1})
    keyHelper: str | None = field(default=None, metadata={"min_length": 1})
    keyHeader: Literal["authorization", "api-key", "x-api-key"] | None = None
    region: str | None = field(default=None, metadata={"pattern": _PLACE})
    project: str | None = field(default=None, metadata={"pattern": _PROJECT})
    profile: str | None = field(default=None, metadata={"min_length": 1})
    models: dict[str, ModelSettings] = field(default_factory=dict)


PermissionMode = Literal["default", "acceptEdits", "plan", "dontAsk", "bypassPermissions"]

Limits = TypeVar("Limits", bound="HostBudget | HostCalls")


def key(description: str, default: Any = None, **limits: Any) -> Any:
    """`default` is the value, or a class that makes it; `limits` are those of pydantic's `Field`."""
    made = {"default_factory": default} if callable(default) else {"default": default}
    return field(**made, metadata={"description": description, **limits})


@dataclass(frozen=True)
class RuleSettings:
    """Permission rules of every session, spelt as for `--allowedTools` and `--disallowedTools`."""

    allow: list[str] = key("Rules that allow a tool call without asking, as for `--allowedTools`.", list)
    deny: list[str] = key("Rules that deny a tool call, as for `--disallowedTools`.", list)
    ask: list[str] = key("Rules that want a question before a tool call, whatever allows it.", list)
    defaultMode: PermissionMode | None = key("Permission mode of new sessions, if `permissionMode` is not set.")
    additionalDirectories: list[str] = key("Directories of the host that tools may use too, as for `--add-dir`.", list)
    disableBypassPermissionsMode: Literal["disable"] | None = key("`disable`: nobody can choose bypassPermissions.")


@dataclass(frozen=True)
class HostBudget:
    dayUsd: float | None = key("Dollars for the host since midnight.", gt=0)
    dayTokens: int | None = key("Tokens for the host since midnight.", gt=0)


@dataclass(frozen=True)
class BudgetSettings:
    """What model calls may cost. This machine keeps account of them itself, whatever a host says."""

    sessionUsd: float | None = key("Dollars for one session.", gt=0)
    sessionTokens: int | None = key("Tokens of all kinds for one session.", gt=0)
    dayUsd: float | None = key("Dollars for all sessions of this machine since midnight.", gt=0)
    dayTokens: int | None = key("Tokens of all kinds for all sessions of this machine since midnight.", gt=0)
    strict: bool = key("Refuse each call that might pass a budget. Else one call may pass it.", False)
    hosts: dict[str, HostBudget] = key("`dayUsd` and `dayTokens` of single hosts, by patterns such as `gpu-*`.", dict)

    def of_host(self, host: str) -> HostBudget:
        """Return what holds for a host: of several patterns that match, the last one for each key."""
        return _of_host(HostBudget(), self.hosts, host)


@dataclass(frozen=True)
class HostCalls:
    models: list[str] | None = key(
        "Patterns of the models that may be asked, such as `claude-*`; all without it.", min_length=1
    )
    maxOutputTokens: int | None = key("Largest length of an answer that a call may ask for, in tokens.", ge=1_000)
    maxRequestBytes: int | None = key("Largest request, in bytes.", ge=100_000, le=32 * 1024 * 1024)
    maxResponseBytes: int | None = key("Largest answer, in bytes.", ge=100_000)
    maxConcurrent: int | None = key("Calls at the same time.", ge=1, le=64)
    perMinute: int | None = key("Calls in a minute.", ge=1, le=300)
    expiresHours: float | None = key("Hours after which a connected ccb lets a session call no models any more.", gt=0)


@dataclass(frozen=True)
class ModelCallSettings(HostCalls):
    """Which model calls every host may make, and what differs for single hosts."""

    hosts: dict[str, HostCalls] = key("The other keys for single hosts, by patterns of names such as `gpu-*`.", dict)

    def of_host(self, host: str) -> HostCalls:
        """Return what holds for a host: of several patterns that match, the last one for each key."""
        general = HostCalls(**{each.name: getattr(self, each.name) for each in fields(HostCalls)})
        return _of_host(general, self.hosts, host)


@dataclass(frozen=True)
class CredentialSettings:
    """Where stored credentials are, and which account a session takes. No secret is in here."""

    store: Literal["auto", "keyring", "file"] = key(
        "`keyring`, `file` (encrypted), or `auto`: the keyring if any.", "auto"
    )
    passphraseHelper: str | None = key("Shell command that prints the passphrase of the encrypted file.", min_length=1)
    helperSeconds: float = key("Seconds for which the output of `apiKeyHelper` is used again.", 300, ge=0, le=86_400)
    workspace: str | None = key("Anthropic's workspace for keys that are not stored, as `anthropic-workspace-id`.")
    account: dict[str, str] = key('The account for each provider, such as `{"anthropic": "work"}`.', dict)
    hosts: dict[str, dict[str, str]] = key("`account` for single hosts, by patterns of names such as `gpu-*`.", dict)

    def account_for(self, provider: str, host: str) -> str | None:
        """Return the account of a provider for the sessions of a host: of several patterns, the last one counts."""
        fit = [each for pattern, each in self.hosts.items() if fnmatchcase(host, pattern)]
        own = [each[provider] for each in fit if provider in each]
        return own[-1] if own else self.account.get(provider)


@dataclass(frozen=True)
class PortSettings:
    """Which ports of the host are offered when a program of the session listens on them."""

    offer: bool = key("Offer each new port in one line. Without it, `/ports` still lists them.", True)
    ignore: list[int] = key("Ports that are not offered.", list)
    labels: dict[str, str] = key('Names for ports, such as `{"5173": "web"}`, instead of the program\'s.', dict)


@dataclass(frozen=True)
class StatusLineSettings:
    """What the REPL's status line shows besides ccb's own facts."""

    command: str = key("Shell command, run on this machine with the session's facts as JSON on its input.", "")
    type: Literal["command"] = key("What it is: there are commands only.", "command")


@dataclass(frozen=True)
class NetworkSettings:
    """The way to the providers. A variable of the environment outranks each key."""

    caFile: str | None = key("File of the CAs to trust instead of the system's, as SSL_CERT_FILE.", min_length=1)
    clientCertificate: str | None = key("Certificate that this machine shows, as CCB_CLIENT_CERT.", min_length=1)
    clientKey: str | None = key("Key of that certificate, if it is in another file; CCB_CLIENT_KEY.", min_length=1)

    def over(self, environ: Mapping[str, str]) -> dict[str, str]:
        """Return `environ` with these settings as variables, where it does not set them itself."""
        files = (self.caFile, self.clientCertificate, self.clientKey)
        named = zip(("SSL_CERT_FILE", "CCB_CLIENT_CERT", "CCB_CLIENT_KEY"), files, strict=True)
        own = {name: str(Path(file).expanduser()) for name, file in named if file}
        return {**own, **{name: value for name, value in environ.items() if value or name not in own}}


OTEL_ENDPOINTS = tuple(f"OTEL_EXPORTER_OTLP_{each}ENDPOINT" for each in ("", "TRACES_", "METRICS_"))


@dataclass(frozen=True)
class OtelSettings:
    """Where traces and metrics of sessions go. The variables of OpenTelemetry outrank `endpoint`, unless a policy sets
    this section."""

    endpoint: str | None = key("Address of an OTLP receiver (HTTP), such as `http://localhost:4318`.", pattern=_URL)
    metrics: bool = key("Send metrics, too.", True)
    content: bool = key("Send prompts, answers, and inputs and results of tools, too.", False)


def _of_host(general: Limits, hosts: Mapping[str, Limits], host: str) -> Limits:
    values = {each.name: getattr(general, each.name) for each in fields(general)}
    for pattern, own in hosts.items():
        if fnmatchcase(host, pattern):
            values |= {name: value for each in fields(own) if (value := getattr(own, name := each.name)) is not None}
    return type(general)(**values)


SandboxMode = Literal["read-only", "workspace", "off"]


@dataclass(frozen=True)
class PolicySettings:
    """What nobody can pass who uses ccb on this machine. It counts only in the policy of the machine's owner."""

    remoteOnly: bool = key("No session works on this machine (`--local`, a directory, a container here).", False)
    hosts: list[str] | None = key("Patterns of the hosts, as ssh_config resolves them, and jump hosts to connect to.")
    commands: list[str] | None = key(
        "With `hosts` or `remoteOnly`: patterns of commands that may make a connection (ProxyCommand, `--transport`)."
    )
    directories: list[str] | None = key("Patterns of directories on hosts (real paths) in which sessions may work.")
    providers: list[str] | None = key("The providers to ask: a kind (`anthropic`), or a pattern of their servers.")
    agents: list[str] = key("Patterns of the agents of others that may work (`--agent acp:…`, `--remote-bin`).", list)
    sandbox: Literal["read-only", "workspace"] | None = key("The least cage of a session, whatever is asked for.")
    budgets: BudgetSettings = key("The most that `budgets` may allow. Smaller ones of a person count.", BudgetSettings)
    ledger: str | None = key("Directory of the ledger; `~` is the account's home, `%u` its name.", pattern="^[~/]")
    ledgerCommand: list[str] | None = key(
        "Program, by its path, and arguments, that gets each row of the ledger as a line of JSON.", min_length=1
    )
    mcpServers: list[str] | None = key("Patterns of MCP servers: a command, a URL, `sdk NAME`, or `group NAME`.")
    hooks: list[str] | None = key("Patterns of more hooks that may run: a command, a URL, a prompt, `callback *`.")
    retentionDays: float | None = key("Days for which ended sessions, and texts about them here, are kept.", gt=0)


@dataclass(frozen=True)
class SettingsLayer:
    """The settings of one source. `path` is the file, or the option. `unknown` are the keys without effect, `notes`
    sentences about what does not count."""

    source: str
    path: str
    text: str
    values: Mapping[str, Any]
    unknown: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class SettingsChoice:
    """Which sources count. `flag` is the value of --settings; `draft` is a text in the place of the user's file."""

    user: bool = True
    draft: str | None = None
    flag: str | None = None


EVERYTHING = SettingsChoice()


@dataclass(frozen=True)
class Settings:
    """The content of the settings file. An option on the command line outranks it."""

    __pydantic_config__: ClassVar[Mapping[str, object]] = {"strict": True, "extra": "forbid"}

    apiKeyHelper: str | None = key("Shell command that prints the model credential.", min_length=1)
    model: str | None = key("Model of new sessions: an alias (`opus`, `sonnet`, `haiku`) or a full name.", min_length=1)
    smallModel: str | None = key(
        "Model for small questions (pages that are read, hooks of type `prompt`, the agent `Explore`) and for the "
        "summary of a compaction. By default the small one of the model's provider; the model itself compacts.",
        min_length=1,
    )
    sessionTitles: bool = key("Whether the small model gives a session of the REPL a title, made of its prompt.", True)
    modelAliases: dict[str, str] = key("Short names of models, and what each stands for.", dict)
    agent: str | None = key("The agent that leads new sessions, built-in or your own, like `--agent`.", min_length=1)
    permissionMode: PermissionMode | None = key("Permission mode of new sessions.")
    sandbox: SandboxMode | None = key("Sandbox mode of new sessions: the cage of commands that run without a question.")
    web: Literal["host", "laptop"] | None = key("Whose network WebFetch uses: `host` (default) or `laptop`.")
    webAllowPrivate: bool = key("Whether WebFetch may read from private, loopback and link-local addresses.", False)
    permissions: RuleSettings = key("Permission rules of every session.", RuleSettings)
    budgets: BudgetSettings = key("What model calls may cost before this machine refuses more.", BudgetSettings)
    modelCalls: ModelCallSettings = key("Which model calls this machine lets a host make.", ModelCallSettings)
    credentials: CredentialSettings = key("Where credentials are, and which a session takes.", CredentialSettings)
    network: NetworkSettings = key("The way from this machine to the providers.", NetworkSettings)
    otel: OtelSettings = key("Traces and metrics for OpenTelemetry (with `ccb[otel]`).", OtelSettings)
    recordModelCalls: bool = key("Keep the requests to models and their answers in files, as for `--record`.", False)
    providers: dict[str, ProviderSettings] = key(
        "Providers of models, by the name in front of a model: `NAME/MODEL`.", dict
    )
    backgroundAfterSeconds: float = key(
        "In the REPL, seconds after which a command that runs on goes to the background; 0 for never.", 15, ge=0, le=600
    )
    connectTimeoutSeconds: float = key(
        "Seconds to reach the host and log in. Set here, it limits a headless run as a whole.", 30, gt=0, le=600
    )
    pipelinedLogin: bool = key("Whether a login sends at once the one key that was enough for the last one.", True)
    graceHours: float = key("Hours that a session goes on without a connected client.", 24, gt=0, le=24 * 365)
    idleMinutes: float = key("Minutes that an idle worker without client stays on the host.", 30, ge=0, le=60 * 24 * 7)
    controlMaster: bool = key("Run over a ControlMaster of yours that is alive, instead of logging in.", True)
    keepConnection: float = key("Minutes to keep an SSH connection for later runs (0: none).", 0, ge=0, le=MAX_KEEP)
    nodeCommand: str = key(
        "Command, run on the host, that leads to another node of its cluster: `ssh {node}`, `srun --jobid {job} "
        "--overlap`. Without it, srun if the session is in a job of Slurm, else ssh.",
        "",
    )
    hooks: dict[str, Any] = key("Commands that run on the host at certain events of a session.", dict)
    notify: Literal["auto", "bell", "osc9", "osc777", "off"] = key(
        "How the REPL calls you when you look elsewhere: `bell`, a notification of the terminal (`osc9`, "
        "`osc777`), `off`, or `auto`: the bell, and a notification where the terminal is known to show one.",
        "auto",
    )
    keys: dict[str, str | list[str]] = key(
        'Keys of the REPL by their ids, each one key or a list: `{"details": "Ctrl+Y"}`. `/keys` and '
        "[keys](repl.md#keys) list the ids.",
        dict,
    )
    editorMode: Literal["normal", "emacs", "vim"] = key(
        "Keys of the input: `vim` or `normal` (also `emacs`).", "normal"
    )
    mouse: bool = key("Whether the REPL uses the mouse; `false` leaves it to the terminal.", True)
    images: Literal["on", "off"] = key("Whether the REPL draws images (with `ccb[images]`) or names them.", "on")
    statusLine: StatusLineSettings = key("A command whose first line stands in the status line.", StatusLineSettings)
    ports: PortSettings = key("Which ports of the host are offered, and their names.", PortSettings)
    openWith: str = key("Command that `/open` starts with a file, instead of `open` or `xdg-open`.", "", min_length=1)
    disableAllHooks: bool = key("Run no hooks at all.", False)
    allowManagedHooksOnly: bool = key("In a managed policy: run only the hooks of the policy.", False)
    env: dict[str, str] = key("Variables for the environment of the tools on the host.", dict)
    autoCompactEnabled: bool = key("Compact a conversation before it is too long for the model.", True)
    outputStyle: str | None = key("Style of answers: `Explanatory`, `Learning`, or of `.claude/output-styles`.")
    language: str | None = key("Language of the answers.")
    mcpServers: dict[str, dict[str, Any]] = key("MCP servers of yours. They run on this machine.", dict)
    importClaudeSettings: Literal["on", "off", "hooks"] = key(
        "What counts of your settings of Claude Code here: `on` takes model, permission rules, style and language, MCP "
        "servers, agents, commands and skills; `hooks` also its hooks, which then run on the host; `off` nothing.",
        "on",
    )
    policy: PolicySettings = key(
        "In `/etc/ccb/policy.json` only: what nobody can pass who uses ccb on this machine.", PolicySettings
    )
    given: frozenset[str] = frozenset()  # the keys that a source sets
    layers: tuple[SettingsLayer, ...] = ()  # the sources, the weakest first

    @property
    def warnings(self) -> list[str]:
        """Sentences about keys that stand twice, unknown keys, and rules about tools that there are not."""
        twice, unknown, rules = [], [], []
        notes = [note for layer in self.layers for note in layer.notes]
        for layer in self.layers:
            if layer.source == CLAUDE:  # its keys are for another program
                continue
            for name, line in lines_in(layer.text)[1].items():
                said = "stands here again: entries of both count, of single values the last"
                twice.append(f"{layer.path}, line {line}: {name} {said}")
            for name in layer.unknown:
                place = f"{layer.path}, line {line_of(layer.text, name.split('.'))}"
                near = near_setting(name)
                meant = f"; did you mean {near!r}?" if near else ""
                unknown.append(f"{place}: unknown key {name!r} has no effect{meant}")
            rules += rules_without_tool(layer.path, layer.text, layer.values)
        return twice + unknown + rules + notes

    @property
    def imported_servers(self) -> dict[str, str]:
        """The names of the MCP servers that only Claude Code's settings have, and the file of each."""
        layers = [(layer, name) for layer in self.layers for name in layer.values.get("mcpServers", ())]
        own = {name for layer, name in layers if layer.source != CLAUDE}
        return {name: layer.path for layer, name in layers if name not in own}

    def telemetry_receiver(self, environ: Mapping[str, str]) -> str | None:
        """Return the address that counts, "" for that of the variables, None if nothing is sent."""
        if not self.is_managed("otel"):
            if environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
                return None
            if any(map(environ.get, OTEL_ENDPOINTS)):
                return ""
        return (self.otel.endpoint or "").rstrip("/") or None

    def is_managed(self, name: str) -> bool:
        """Return whether a policy sets a key, or one of a section (`section.key`), so that no option outranks it."""
        section, _, key = name.partition(".")
        managed = [
            layer.values[section] for layer in self.layers if layer.source == MANAGED and section in layer.values
        ]
        return any(not key or key in values for values in managed)


SETTING_NAMES = tuple(each.name for each in fields(Settings) if each.metadata and each.name != POLICY)


def near_setting(name: str) -> str:
    """Return the setting that a word may have been meant to be, also one of a section; "" for none."""
    section, _, last = name.rpartition(".")
    made = next((each.default_factory for each in fields(Settings) if each.name == section), None)
    names = [each.name for each in fields(made)] if isinstance(made, type) and is_dataclass(made) else SETTING_NAMES
    near = nearest(last, names, 0.7) if not section or names is not SETTING_NAMES else []
    return ".".join(filter(None, (section, *near))) if near and near[0] != last else ""


def policy_file() -> Path:
    """Return the policy of this machine, which need not be there."""
    return next((path for path in POLICY_FILES if os.path.lexists(path)), POLICY_FILES[0])


def settings_choice(arguments: Arguments) -> SettingsChoice:
    sources = arguments.sdk.setting_sources
    return SettingsChoice(sources is None or "user" in sources.split(","), flag=arguments.sdk.settings)


def config_dir(environ: Mapping[str, str] = os.environ) -> Path:
    return xdg_dir(environ, "XDG_CONFIG_HOME", ".config")


def xdg_dir(environ: Mapping[str, str], variable: str, usual: str) -> Path:
    """Return ccb's directory below the one that a variable of the XDG rules names; a relative value is ignored."""
    base = environ.get(variable, "")
    if not Path(base).is_absolute():
        base = str(Path(environ.get("HOME") or Path.home()) / usual)
    return Path(base) / "ccb"


def settings_path(environ: Mapping[str, str] = os.environ) -> Path:
    return config_dir(environ) / "settings.json"
