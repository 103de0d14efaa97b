"""The settings of this machine: the person's file `~/.config/ccb/settings.json` (or below XDG_CONFIG_HOME), the option
`--settings`, and the policy of an administrator. None of them may hold a secret.

The limits of the values are for pydantic, which is loaded only if there is a file: loading it takes a quarter of the
time to the worker's start. `settings_loading.py` reads and checks them.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import field, fields
from pathlib import Path
from typing import Any, ClassVar, Literal

from ccb.tunnel.wire.dataclass import dataclass
from ccb.tunnel.wire.settings_text import line_of, lines_in

from ..command_line.model import Arguments
from .provider_settings import ProviderSettings
from .sections import (
    PYDANTIC,
    BudgetSettings,
    CredentialSettings,
    ModelCallSettings,
    NetworkSettings,
    PermissionMode,
    RuleSettings,
)
from .sections import key as _key
from .settings_checks import rules_without_tool

SandboxMode = Literal["read-only", "workspace", "off"]

USER, FLAG, KEPT, MANAGED = "user", "flag", "kept", "managed"
"""The sources of settings on this machine, as the worker names them. `kept` are the rules that "always" has added."""

MANAGED_FILE = Path("/etc/ccb/managed-settings.json")
MAX_KEEP_MINUTES = 24 * 60


@dataclass(frozen=True)
class SettingsLayer:
    """The settings of one source. `path` is the file, or the option. `unknown` are the keys that this version does not
    know: they have no effect."""

    source: str
    path: str
    text: str
    values: Mapping[str, Any]
    unknown: tuple[str, ...] = ()


@dataclass(frozen=True)
class SettingsChoice:
    """Which sources count. `flag` is the value of --settings: a JSON object or a file. `managed` is the policy of an
    administrator."""

    user: bool = True
    flag: str | None = None
    managed: Path = MANAGED_FILE


EVERYTHING = SettingsChoice()


@dataclass(frozen=True)
class Settings:
    """The content of the settings file. An option on the command line outranks it."""

    __pydantic_config__: ClassVar[Mapping[str, object]] = PYDANTIC

    apiKeyHelper: str | None = field(
        default=None, metadata=_key("Shell command that prints the model credential.", min_length=1)
    )
    model: str | None = field(
        default=None,
        metadata=_key(
            "Model of new sessions: an alias (`opus`, `sonnet`, `haiku`) or a full name.",
            min_length=1,
        ),
    )
    smallModel: str | None = field(
        default=None,
        metadata=_key(
            "Model for small questions (pages that are read, hooks of type `prompt`, the agent `Explore`) and for the "
            "summary of a compaction. By default the small one of the model's provider; the model itself compacts.",
            min_length=1,
        ),
    )
    modelAliases: dict[str, str] = field(
        default_factory=dict, metadata=_key("Short names of models, and what each stands for.")
    )
    agent: str | None = field(
        default=None,
        metadata=_key("Agent as which new sessions work, built-in or your own, as for `--agent`.", min_length=1),
    )
    permissionMode: PermissionMode | None = field(default=None, metadata=_key("Permission mode of new sessions."))
    sandbox: SandboxMode | None = field(
        default=None,
        metadata=_key("Sandbox mode of new sessions: the cage of commands that run without a question."),
    )
    web: Literal["host", "laptop"] | None = field(
        default=None, metadata=_key("Whose network WebFetch uses: `host` (default) or `laptop`.")
    )
    webAllowPrivate: bool = field(
        default=False,
        metadata=_key("Whether WebFetch may read from private, loopback and link-local addresses."),
    )
    permissions: RuleSettings = field(default_factory=RuleSettings, metadata=_key("Permission rules of every session."))
    budgets: BudgetSettings = field(
        default_factory=BudgetSettings, metadata=_key("What model calls may cost before this machine refuses more.")
    )
    modelCalls: ModelCallSettings = field(
        default_factory=ModelCallSettings, metadata=_key("Which model calls this machine lets a host make.")
    )
    credentials: CredentialSettings = field(
        default_factory=CredentialSettings,
        metadata=_key("Where stored credentials are, and which account a session takes."),
    )
    network: NetworkSettings = field(
        default_factory=NetworkSettings, metadata=_key("The way from this machine to the providers.")
    )
    recordModelCalls: bool = field(
        default=False, metadata=_key("Keep the requests to models and their answers in files, as for `--record`.")
    )
    providers: dict[str, ProviderSettings] = field(
        default_factory=dict,
        metadata=_key("Providers of models, by the name that stands in front of a model: `--model NAME/MODEL`."),
    )
    backgroundAfterSeconds: float = field(
        default=15,
        metadata=_key(
            "In the REPL, seconds after which a command that runs on goes to the background; 0 for never.", ge=0, le=600
        ),
    )
    connectTimeoutSeconds: float = field(
        default=30,
        metadata=_key(
            "Seconds to reach the host and log in. Set here, it limits a headless run as a whole.", gt=0, le=600
        ),
    )
    pipelinedLogin: bool = field(
        default=True,
        metadata=_key(
            "Whether a login with the built-in SSH sends at once what the last login to the host needed, "
            "if that was one key alone."
        ),
    )
    graceHours: float = field(
        default=24,
        metadata=_key(
            "Hours that a session works or waits on the host while no client is connected.", gt=0, le=24 * 365
        ),
    )
    idleMinutes: float = field(
        default=30,
        metadata=_key(
            "Minutes that an idle worker without a client stays on the host; its journal stays.", ge=0, le=60 * 24 * 7
        ),
    )
    controlMaster: bool = field(
        default=True, metadata=_key("Run over a ControlMaster of yours that is alive, instead of logging in.")
    )
    keepConnection: float = field(
        default=0,
        metadata=_key(
            "Minutes to keep an SSH connection for later runs, after which they log in again (0: each run logs in).",
            ge=0,
            le=MAX_KEEP_MINUTES,
        ),
    )
    hooks: dict[str, Any] = field(
        default_factory=dict,
        metadata=_key("Commands that run on the host at certain events of a session."),
    )
    notify: Literal["auto", "bell", "osc9", "osc777", "off"] = field(
        default="auto",
        metadata=_key(
            "How the REPL calls you when you look elsewhere: `bell`, a notification of the terminal (`osc9`, "
            "`osc777`), `off`, or `auto`: the bell, and a notification where the terminal is known to show one."
        ),
    )
    keys: dict[str, str | list[str]] = field(
        default_factory=dict,
        metadata=_key(
            'Keys of the REPL by their ids, each one key or a list: `{"details": "Ctrl+Y"}`. `/keys` and '
            "[keys](repl.md#keys) list the ids."
        ),
    )
    editorMode: Literal["normal", "emacs", "vim"] = field(
        default="normal", metadata=_key("Keys of the input: `vim`, or `normal` (also called `emacs`). `/vim` sets it.")
    )
    mouse: bool = field(
        default=True, metadata=_key("Whether the REPL uses the mouse; `false` leaves it to the terminal.")
    )
    images: Literal["on", "off"] = field(
        default="on",
        metadata=_key("Whether the REPL draws images (needs Pillow, `ccb[images]`); with `off` they are only named."),
    )
    openWith: str = field(
        default="",
        metadata=_key(
            "Command that `/open` starts with a file, in place of the system's way (`open`, `xdg-open`).", min_length=1
        ),
    )
    disableAllHooks: bool = field(default=False, metadata=_key("Run no hooks at all."))
    allowManagedHooksOnly: bool = field(
        default=False, metadata=_key("In a managed policy: run only the hooks of the policy.")
    )
    env: dict[str, str] = field(
        default_factory=dict, metadata=_key("Variables for the environment of the tools on the host.")
    )
    autoCompactEnabled: bool = field(
        default=True, metadata=_key("Compact a conversation before it is too long for the model.")
    )
    outputStyle: str | None = field(
        default=None,
        metadata=_key(
            "Style of the answers: `Explanatory`, `Learning`, or a file in `.claude/output-styles` on the host."
        ),
    )
    language: str | None = field(default=None, metadata=_key("Language of the answers."))
    mcpServers: dict[str, dict[str, Any]] = field(
        default_factory=dict, metadata=_key("MCP servers of yours. They run on this machine.")
    )
    given: frozenset[str] = frozenset()
    """The keys that a source sets."""
    layers: tuple[SettingsLayer, ...] = ()
    """The sources, the weakest first."""

    @property
    def warnings(self) -> list[str]:
        """One sentence for each unknown key and each rule about a tool that there is not, with the name that may be
        meant, and for each key that stands twice in its object."""
        return (
            [
                f"{layer.path}, line {line}: {name} stands here again: entries of both count, of single values the last"
                for layer in self.layers
                for name, line in lines_in(layer.text)[1].items()
            ]
            + [
                f"{layer.path}, line {line_of(layer.text, name.split('.'))}: unknown key {name!r} has no effect"
                + _near(name)
                for layer in self.layers
                for name in layer.unknown
            ]
            + [text for layer in self.layers for text in rules_without_tool(layer.path, layer.text, layer.values)]
        )

    def is_managed(self, name: str) -> bool:
        """Return whether a policy sets a key, so that no option outranks it."""
        return any(layer.source == MANAGED and name in layer.values for layer in self.layers)


SETTING_NAMES = tuple(each.name for each in fields(Settings) if each.metadata)


def _near(name: str) -> str:
    from difflib import get_close_matches

    near = get_close_matches(name, SETTING_NAMES, n=1, cutoff=0.7) if "." not in name else []
    return f"; did you mean {near[0]!r}?" if near and near[0] != name else ""


def settings_choice(arguments: Arguments) -> SettingsChoice:
    """Return which settings of this machine count for a run."""
    sources = arguments.sdk.setting_sources
    return SettingsChoice(sources is None or "user" in sources.split(","), arguments.sdk.settings)


def config_dir(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the directory of ccb's configuration. It may not exist."""
    base = environ.get("XDG_CONFIG_HOME", "")
    if not Path(base).is_absolute():  # the XDG rule: a relative value is ignored
        base = str(Path(environ["HOME"] if environ.get("HOME") else Path.home()) / ".config")
    return Path(base) / "ccb"


def settings_path(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the path of the settings file. It may not exist."""
    return config_dir(environ) / "settings.json"
