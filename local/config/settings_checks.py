"""What a settings file must not say: secrets, and rules and keys that nobody can use."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from ccb.tunnel.errors import ConfigError
from ccb.tunnel.wire.settings_text import line_of

_SECRET_NAME = re.compile(r"api_?-?key|auth_?-?token|secret|password", re.IGNORECASE)
_SECRET_VARIABLE = re.compile(r"token$|credentials?$", re.IGNORECASE)
_SECRET_VALUE = re.compile(r"\bsk-[A-Za-z0-9_-]{8,}")


def refuse_secrets(path: str, text: str, data: Mapping[str, Any]) -> None:
    """Raise ConfigError if a value looks like a key.

    Files are backed up and copied, and `env` goes to the host; the keyring is the place for keys.
    """
    variables = data.get("env")
    for name in variables if isinstance(variables, dict) else ():
        if _SECRET_NAME.search(name) or _SECRET_VARIABLE.search(name):
            raise ConfigError(
                f"{path}, line {line_of(text, ('env', name))}: env.{name}: settings must not hold a secret",
                do="Remove it: the environment of tools is on the host. Set it there if a tool needs it.",
            )
    for name, value in data.items():
        named = name != "apiKeyHelper" and _SECRET_NAME.search(name)
        if named or _SECRET_VALUE.search(json.dumps(value)):
            raise ConfigError(
                f"{path}, line {line_of(text, (name,))}: {name}: settings must not hold a secret",
                do="Remove it, and give the key to `ccb auth login` or to an environment variable.",
            )


def refuse_broken_rules(path: str, text: str, permissions: Mapping[str, Any]) -> None:
    """Raise ConfigError for a permission rule that no host could read."""
    from ccb.tunnel.wire.tool_traits import rule_parts, split_rules

    for kind in ("allow", "deny", "ask"):
        for at, given in enumerate(permissions.get(kind, ())):
            try:
                rules, still_open = split_rules(given) if kind != "ask" else ([given], 0)
                for rule in rules or [given]:
                    rule_parts(rule)
                if still_open:
                    raise ValueError(f"permission rule {given!r}: a parenthesis is not closed")
            except ValueError as error:
                line = line_of(text, ("permissions", kind, at))
                raise ConfigError(
                    f"{path}, line {line}: permissions.{kind}: {error}", do=f"Correct the rule in {path}, or remove it."
                ) from None


def rules_without_tool(path: str, text: str, values: Mapping[str, Any]) -> list[str]:
    """Return a sentence for each permission rule about a tool that there is not."""
    from ..command_line.option_table.tool_names import no_such_tool

    found: list[str] = []
    permissions = values.get("permissions") or {}
    for kind in ("allow", "deny", "ask"):
        for at, given in enumerate(permissions.get(kind, ())):
            from ccb.tunnel.wire.tool_traits import rule_parts, split_rules

            for rule in split_rules(given)[0] if kind != "ask" else [given]:
                wrong = no_such_tool(rule_parts(rule)[0])
                if wrong:
                    line = line_of(text, ("permissions", kind, at))
                    found.append(f"{path}, line {line}: permissions.{kind}: {wrong}")
    return found


def refuse_wrong_models(path: str, text: str, known: Mapping[str, Any]) -> None:
    """Raise ConfigError for a model that no provider can have, and that is no short name of the same file."""
    from ccb.tunnel.wire.models import ALIASES, may_be_model

    own: Mapping[str, str] = known.get("modelAliases") or {}
    chosen = {(name,): known[name] for name in ("model", "smallModel") if known.get(name) not in (None, *own)}
    meant = {("modelAliases", name): model for name, model in own.items()}
    for keys, model in (*chosen.items(), *meant.items()):
        if not may_be_model(model):
            raise ConfigError(
                f"{path}, line {line_of(text, keys)}: {'.'.join(keys)}: {model!r} is no model",
                do=f"Write {', '.join(ALIASES)}, or a full id as its provider has it.",
            )


def refuse_broken_keys(sources: Sequence[tuple[str, str, Mapping[str, object]]], keys: Mapping[str, object]) -> None:
    """Raise ConfigError if the keys of the REPL cannot be used. `sources` are the paths and texts that say so, with
    what each says, the weakest first; `keys` is what comes of them together."""
    if not keys:
        return
    from ..terminal.keymap import KeyRefused, keymap_of

    try:
        keymap_of(keys)
    except KeyRefused as error:
        path, text = next((path, text) for path, text, said in reversed(sources) if error.id in said)
        raise ConfigError(
            f"{path}, line {line_of(text, ('keys', error.id))}: keys.{error.id}: {error}",
            do=f"Correct keys.{error.id} in {path}, or remove it.",
        ) from None
