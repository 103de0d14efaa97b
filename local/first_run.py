"""The set-up of the first run, in lines, for a person who has no credential yet. Each step can be skipped."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import Mapping
from pathlib import Path

from ccb.tunnel.errors import CcbError

from .command_line.arguments import Arguments
from .command_line.exit_codes import error_lines
from .config.log import state_dir
from .terminal.console import say

log = logging.getLogger(__name__)

_MARK = "set-up"
_VARIABLES = ("CI", "ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN")  # where one of these is set, nobody is asked
_KEYRING_S = 5.0
_TRIES = 3
_WELCOME = """\
Welcome to ccb. Three short steps; Enter skips a step, Ctrl+C skips all.
ccb does not ask again.
"""
_CREDENTIAL = """\
1 of 3: the credential of Claude models.
  It stays on this machine; no host ever gets it.
  1  type an API key now: it is checked, and kept in this machine's keyring
  2  use something else: say how
  Enter  later, with `ccb auth login`"""
_OTHERS = """\
  A model of another provider needs no key of Anthropic's: export its key,
  such as OPENAI_API_KEY=..., and start `ccb --model openai/gpt-5`, or set
  "model" in ~/.config/ccb/settings.json. `ccb models` lists what can be used.
  For Claude models: export ANTHROPIC_API_KEY=... before you start ccb; or name
  a command that prints the key as "apiKeyHelper" in
  ~/.config/ccb/settings.json, such as "pass show anthropic".
  Start ccb again after that."""
_TRUST = """\
3 of 3: trust.
  The agent works on the host, and asks here before it changes anything that
  your rules do not allow.
  The files of a project may bring settings, hooks and servers: ccb shows them
  once and asks before any of them counts.
  Nothing that a host sends can run on this machine, or read a file of it."""


def set_up(arguments: Arguments, environ: Mapping[str, str] = os.environ) -> None:
    mark = state_dir(environ) / _MARK
    somebody = all(stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr))
    if any(environ.get(name) for name in _VARIABLES) or not somebody or os.path.exists(mark):  # noqa: PTH110 - no error
        return  # at once, because the first frame waits
    needed = _needs_credential(arguments, environ)
    _keep(mark)
    if not needed:
        return
    try:
        _steps(environ, samples=not arguments.screen.plain)
    except (KeyboardInterrupt, EOFError):
        say("")
    say("The set-up is done. `ccb auth login`, /theme and /trust change this later.", "")


def _keep(mark: Path) -> None:
    try:
        mark.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        mark.touch(mode=0o600)
    except OSError as error:
        log.warning("%s cannot be written: %s", mark, error)


def _needs_credential(arguments: Arguments, environ: Mapping[str, str]) -> bool:
    """Return whether no credential is known. What cannot be found out is left to the session, whose error says more."""
    from ccb.tunnel.providers.anthropic import anthropic_endpoint

    from .config.settings import settings_choice
    from .config.settings_loading import load_settings
    from .connect.startup import chosen_model
    from .credentials.credential_sources import StoredCredential, StoredCredentials, credential_source
    from .credentials.encrypted_file import credentials_path
    from .credentials.secret_store import KeyStore, NoKeyring
    from .providers.known_models import provider_and_model
    from .terminal.stdio import in_thread

    async def kept() -> bool:
        async with asyncio.timeout(_KEYRING_S):  # it may wait for its own password
            return await in_thread(lambda: KeyStore().get(host)) is not None

    try:
        host = anthropic_endpoint(environ, allow_plain=True).host
        settings = load_settings(environ, settings_choice(arguments))
        model = chosen_model(settings, arguments.agent.model) or ""
        if "/" in model and provider_and_model(model, environ, settings) is not None:
            return False
        stored = StoredCredentials(environ, settings=settings)
        if not isinstance(credential_source(environ, settings, host, stored), StoredCredential):
            return False
        return not credentials_path(environ).exists() and not asyncio.run(kept())
    except NoKeyring:
        return True
    except (CcbError, TimeoutError):
        return False


def _steps(environ: Mapping[str, str], *, samples: bool) -> None:
    from .terminal.terminal_prompts import ask

    say(*_WELCOME.splitlines())
    _ask_credential(environ)
    _ask_theme(environ, samples=samples)
    say("", *_TRUST.splitlines())
    ask("Press Enter to begin: ")


def _ask_credential(environ: Mapping[str, str]) -> None:
    from .commands.auth import login

    say("", *_CREDENTIAL.splitlines())
    chosen = _choice("1, 2 or Enter: ", 2)
    if chosen == "2":
        say(*_OTHERS.splitlines())
    if chosen != "1":
        return
    for _ in range(_TRIES):
        try:
            login(environ)
            return
        except CcbError as error:
            say(*error_lines(error))
        if _choice("Enter goes on without a key, 1 tries again: ", 1) != "1":
            return


def _ask_theme(environ: Mapping[str, str], *, samples: bool) -> None:
    from .tui.rendering.themes import THEME_NAMES, ThemeStore, sample

    say("", "2 of 3: colours. /theme changes them at any time.")
    for number, name in enumerate(THEME_NAMES, start=1):
        shown = sample(name, environ) if samples else ""
        say(f"  {number}  {name:<20} {shown}".rstrip(" "))
    say("  Enter  as the background of the terminal asks for")
    chosen = _choice(f"1 to {len(THEME_NAMES)} or Enter: ", len(THEME_NAMES))
    store = ThemeStore.of(environ)
    if store is not None and chosen:
        store.keep(THEME_NAMES[int(chosen) - 1])


def _choice(question: str, most: int) -> str:
    """Return the number that the person types, from 1 to `most`, or "" for Enter. Raise EOFError, KeyboardInterrupt."""
    from .terminal.terminal_prompts import ask

    while True:
        answer = ask(question)
        if answer in ("", *map(str, range(1, most + 1))):
            return answer
        key = " A key is asked for after 1, and not shown then." if answer.startswith("sk-") else ""
        say(f"Type one of the numbers, or Enter.{key}")
