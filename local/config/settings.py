"""The settings of this machine: the person's file `~/.config/ccb/settings.json` (or below XDG_CONFIG_HOME), the option
`--settings`, and the policy of an administrator. None of them may hold a secret.

The limits of the values are for pydantic, which is loaded only if there is a file: loading it takes a quarter of the
time to the worker's start.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import field, fields, replace
from pathlib import Path
from typing import Any, ClassVar, Literal, get_args

from ccb.tunnel.errors import ConfigError, UsageError
from ccb.tunnel.openssh.sharing import Sharing
from ccb.tunnel.wire.dataclass import dataclass

from ..command_line.model import Arguments
from .provider_settings import ProviderSettings, split_provider
from .sections import (
    PYDANTIC,
    BudgetSettings,
    CredentialSettings,
    ModelCallSettings,
    NetworkSettings,
    PermissionMode,
    RuleSettings,
    Section,
)
from .sections import key as _key
from .settings_checks import (
    refuse_broken_keys,
    refuse_broken_rules,
    refuse_secrets,
    refuse_wrong_models,
    rules_without_tool,
)
from .settings_file import line_of, parse_settings, read_settings_file, read_settings_text

SandboxMode = Literal["read-only", "workspace", "off"]
ImageChoice = Literal["auto", "kitty", "iterm2", "sixel", "blocks", "off"]
IMAGE_CHOICES = get_args(ImageChoice)

USER, FLAG, KEPT, MANAGED = "user", "flag", "kept", "managed"
"""The sources of settings on this machine, as the worker names them. `kept` are the rules that "always" has added."""

MANAGED_FILE = Path("/etc/ccb/managed-settings.json")
_MAX_KEEP_MINUTES = 24 * 60
_SECTIONS: Mapping[str, type[Section]] = {
    "permissions": RuleSettings,
    "budgets": BudgetSettings,
    "modelCalls": ModelCallSettings,
    "credentials": CredentialSettings,
    "network": NetworkSettings,
}


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
            le=_MAX_KEEP_MINUTES,
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
    images: ImageChoice = field(
        default="auto",
        metadata=_key(
            "How the REPL shows images that the agent reads (needs Pillow, `ccb[images]`): `kitty`, `iterm2`, `sixel`, "
            "`blocks` (characters), `off` (only named), or `auto`: the best that the terminal says it can."
        ),
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
        meant."""
        return [
            f"{layer.path}, line {line_of(layer.text, name.split('.'))}: unknown key {name!r} has no effect"
            + _near(name)
            for layer in self.layers
            for name in layer.unknown
        ] + [text for layer in self.layers for text in rules_without_tool(layer.path, layer.text, layer.values)]

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


def load_settings(environ: Mapping[str, str] = os.environ, choice: SettingsChoice = EVERYTHING) -> Settings:
    """Read the settings of all sources on this machine; without any, return the defaults. Raises ConfigError, which
    names the file, the line and the key."""
    layers = tuple(_layer(*each) for each in _sources(environ, choice) if each[2] is not None)
    if not layers:
        return Settings()
    settings = _validated(_merged(layers), {layer.path: layer.text for layer in layers}) if len(layers) > 1 else None
    settings = settings or _validated(layers[0].values, {layers[0].path: layers[0].text})
    refuse_broken_keys([(each.path, each.text, each.values.get("keys", {})) for each in layers], settings.keys)
    given = frozenset(name for layer in layers for name in layer.values)
    return replace(settings, given=given, layers=layers)


def _sources(environ: Mapping[str, str], choice: SettingsChoice) -> Iterator[tuple[str, str, str | None]]:
    """Yield each source with its path and its text, the weakest first. Raises ConfigError, UsageError."""
    path = settings_path(environ)
    yield USER, str(path), read_settings_text(path, environ) if choice.user else None
    yield FLAG, *_flagged(choice.flag)
    yield MANAGED, str(choice.managed), read_settings_text(choice.managed, environ)


def raw_settings(environ: Mapping[str, str], choice: SettingsChoice) -> Iterator[dict[str, Any]]:
    """Yield what the sources say, the weakest first, without a look at the values. It ends at a source that cannot be
    read: `load_settings` reports that."""
    with suppress(ConfigError, UsageError):
        for _, path, text in _sources(environ, choice):
            if text is not None:
                yield parse_settings(path, text)


def load_sharing(environ: Mapping[str, str] = os.environ) -> Sharing:
    """Return which connections may be shared. This is known before the first packet, so nothing slow is loaded for it.

    A file that cannot be used has no effect here: `load_settings` reports it.
    """
    try:
        data = read_settings_file(settings_path(environ), environ) or {}
    except ConfigError:
        data = {}
    minutes = data.get("keepConnection", 0)
    keeps = isinstance(minutes, int | float) and not isinstance(minutes, bool) and 0 < minutes <= _MAX_KEEP_MINUTES
    return Sharing(own_master=data.get("controlMaster") is not False, keep_s=minutes * 60 if keeps else 0)


def _flagged(flag: str | None) -> tuple[str, str | None]:
    """Return where the value of --settings has its settings, and their text."""
    if flag is None or flag.lstrip().startswith("{"):
        return "--settings", flag
    try:
        return flag, Path(flag).expanduser().read_text(encoding="utf-8-sig")
    except (OSError, ValueError) as error:
        missing = isinstance(error, FileNotFoundError)
        what = f"Error: Settings file not found: {flag}" if missing else f"{flag} cannot be read"
        raise UsageError(what, evidence="" if missing else str(error), do="Give a JSON object or a file.") from None


def _layer(source: str, path: str, text: str | None) -> SettingsLayer:
    """Return the settings in a text. Raise ConfigError if they are not valid."""
    assert text is not None
    data = parse_settings(path, text)
    refuse_secrets(path, text, data)
    known, unknown = _split(data, SETTING_NAMES)
    if isinstance(known.get("sandbox"), dict):  # the family's key of this name is an object with other content
        del known["sandbox"]
        unknown.append("sandbox")
    for section, keys in _SECTIONS.items():
        if isinstance(values := known.get(section), dict):
            known[section], others = _split(values, tuple(each.name for each in fields(keys)))
            unknown += [f"{section}.{name}" for name in others]
    if isinstance(providers := known.get("providers"), dict):
        known["providers"] = {}
        for name, provider in providers.items():
            known["providers"][name], others = split_provider(path, text, name, provider)
            unknown += others
    _validated(known, {path: text})
    refuse_broken_rules(path, text, known.get("permissions", {}))
    refuse_wrong_models(path, text, known)
    return SettingsLayer(source, path, text, known, tuple(unknown))


def _validated(known: Mapping[str, Any], texts: Mapping[str, str]) -> Settings:
    """Return the settings with these values. Raises ConfigError, which names the file, the line and the key. `texts`
    are the files with their content."""
    from pydantic import TypeAdapter, ValidationError

    try:
        return TypeAdapter(Settings).validate_json(json.dumps(known))  # strict mode takes no dict for a dataclass
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        key = ".".join(str(part) for part in first["loc"])
        path, text = next(iter(texts.items()))
        line = line_of(text, [part for part in first["loc"] if isinstance(part, str)])
        raise ConfigError(
            f"{path}, line {line}: {key}: {first['msg']}",
            do=f"Correct {key!r} in {path}, or remove it for the default.",
        ) from None


def _merged(layers: Sequence[SettingsLayer]) -> dict[str, Any]:
    """Return the values of all layers: the strongest counts, and lists of rules are joined."""
    merged: dict[str, Any] = {}
    for layer in layers:
        for name, value in layer.values.items():
            if name in (*_SECTIONS, "env", "keys", "mcpServers", "modelAliases", "providers") and name in merged:
                before = merged[name]
                lists = {} if name == "keys" else {key: each for key, each in value.items() if isinstance(each, list)}
                joined = {key: [*before.get(key, []), *each] for key, each in lists.items()}
                merged[name] = {**before, **value, **joined}
            else:
                merged[name] = value
    return merged


def _split(data: Mapping[str, Any], names: tuple[str, ...]) -> tuple[dict[str, Any], list[str]]:
    """Return the part of `data` with these names, and the other names."""
    return {name: data[name] for name in data if name in names}, [name for name in data if name not in names]
