"""Checks of this machine: programs, settings, keyring, model providers."""

from __future__ import annotations

import asyncio
import email.utils
import locale
import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import ccb
from ccb.deploy import bundle
from ccb.tunnel.errors import CcbError, ConfigError, UsageError
from ccb.tunnel.plain_text import one_line
from ccb.tunnel.providers.anthropic import anthropic_client
from ccb.tunnel.providers.credential import Credential, key_headers
from ccb.tunnel.providers.http_client import Endpoint, ProviderClient, proxy_variable
from ccb.tunnel.providers.provider import ProviderError, ProviderRequest, WholeBody

from ..config.log import state_dir
from ..config.policy import check_provider
from ..config.settings import Settings, settings_path
from ..config.settings_loading import load_settings
from ..credentials.credential_sources import StoredCredentials, credential_source
from ..credentials.encrypted_file import StoreLocked
from ..credentials.secret_store import KeyStore, NoKeyring
from ..providers.known_models import check_models, provider_and_model
from ..providers.named_provider import NamedProvider, named_provider
from ..providers.session_provider import model_source, provider_of
from ..terminal.stdio import in_thread
from .doctor_findings import LAPTOP, Finding, FindingState, error_finding, judged, skew_text
from .ssh_checks import default_keys, keys_finding

if TYPE_CHECKING:
    from ccb.tunnel.transports.login_prompts import Prompts


_PROVIDER_S = 10.0
_CREDENTIAL_S = 20.0
_PROGRAM_S = 5.0
_SKEW_S = 300.0
_MOST = 10
_KEYRING_S = 10.0

_finding, _judged = partial(Finding, LAPTOP), partial(judged, LAPTOP)


async def laptop_findings(
    environ: Mapping[str, str] = os.environ, prompts: Prompts | None = None
) -> AsyncIterator[Finding]:
    """Yield every finding about this machine. Without `prompts`, stored credentials may stay locked."""
    version = f"ccb {ccb.__version__}, Python {platform.python_version()}, {platform.system()} {platform.machine()}"
    yield _finding("ccb", FindingState.INFO, version)
    yield await asyncio.to_thread(_openssh)
    yield await _agent(environ)
    yield keys_finding(LAPTOP, default_keys())
    settings, found = _settings(environ)
    yield found
    yield _state_directory(environ)
    yield await in_thread(_bundle)
    yield _terminal(environ)
    yield await _keyring()
    stored = StoredCredentials(environ, settings=settings, prompts=prompts)
    if prompts is not None:
        with suppress(CcbError):  # each check below that needs the store says so
            await stored.secrets.unlock()
    others = [finding async for finding in provider_findings(environ, settings, stored)]
    needed = not any(finding.name == "model" for finding in others)
    async for finding in _provider(settings.network.over(environ), settings, stored):
        if not needed and finding.name in ("provider", "credential") and finding.state is not FindingState.OK:
            text = f"{finding.found}\nNot needed: new sessions use a model of another provider."
            finding = replace(finding, state=FindingState.INFO, found=text, fix="")
        yield finding
    for finding in others:
        yield finding


def _openssh() -> Finding:
    path = shutil.which("ssh")
    if path is None:
        fix = "Install the OpenSSH client: it understands all of ssh_config."
        return _judged("OpenSSH", "no ssh on the PATH", fix)
    try:
        done = subprocess.run(
            [path, "-V"], stdin=subprocess.DEVNULL, capture_output=True, timeout=_PROGRAM_S, check=False
        )
    except subprocess.TimeoutExpired:
        return _judged("OpenSSH", f"{path} does not answer", "Run `ssh -V` to see what is wrong.")
    return _judged("OpenSSH", f"{path}: {done.stderr.decode('utf-8', 'replace').strip()}")


async def _agent(environ: Mapping[str, str]) -> Finding:
    where = environ.get("SSH_AUTH_SOCK", "")
    if not where:
        return _finding("ssh agent", FindingState.INFO, "none (SSH_AUTH_SOCK is not set)")
    import asyncssh

    try:
        async with asyncio.timeout(_PROGRAM_S), asyncssh.connect_agent(where) as agent:
            keys = await agent.get_keys()
    except (OSError, ValueError, asyncssh.Error, TimeoutError) as error:
        why = getattr(error, "strerror", "") or str(error) or f"no answer within {_PROGRAM_S:g} s"
        return _judged("ssh agent", f"{where} does not answer: {why}", "Start an agent, or unset SSH_AUTH_SOCK.")
    fix = "Name the right key with IdentityFile and IdentitiesOnly: servers end a login after about six keys."
    text = f"{len(keys)} {'key' if len(keys) == 1 else 'keys'} at {where}"
    return _judged("ssh agent", text, fix if len(keys) > 5 else "")


def _settings(environ: Mapping[str, str]) -> tuple[Settings, Finding]:
    path = settings_path(environ)
    try:
        settings = load_settings(environ)
    except CcbError as error:
        return Settings(), error_finding(LAPTOP, "settings", error)
    if warnings := settings.warnings:
        return settings, _judged("settings", "\n".join(warnings), f"Correct or remove these keys in {path}.")
    return settings, _judged("settings", f"{path}{'' if path.exists() else ' (none, all defaults)'}")


def _state_directory(environ: Mapping[str, str]) -> Finding:
    path = there = state_dir(environ)
    while not there.exists() and there != there.parent:
        there = there.parent
    if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
        return _judged("log directory", f"{path} cannot be written", f"Make {there} writable.")
    return _judged("log directory", str(path))


def _bundle() -> Finding:
    try:
        loaded = bundle.load()
    except (OSError, ValueError) as error:
        return _finding("worker bundle", FindingState.BLOCK, f"cannot be built: {error}", "Install ccb again.")
    return _judged("worker bundle", f"{loaded.sha256[:12]}, {len(loaded.data) // 1024} KB")


def _terminal(environ: Mapping[str, str]) -> Finding:
    size = shutil.get_terminal_size((0, 0))
    charset = locale.getpreferredencoding(False)
    shown = f"{size.columns}x{size.lines}" if sys.stdout.isatty() else "no terminal"
    text = f"TERM={environ.get('TERM', '')}, {charset}, {shown}"
    if environ.get("TERM", "") == "dumb":
        return _judged("terminal", text, "Use -p: a dumb terminal cannot show the interface.")
    if charset.upper().replace("-", "") != "UTF8":
        return _judged("terminal", text, "Set a UTF-8 locale, for example LANG=C.UTF-8.")
    return _judged("terminal", text)


async def _provider(
    environ: Mapping[str, str], settings: Settings, stored: StoredCredentials
) -> AsyncIterator[Finding]:
    """Check the connection to the provider and the credential; one request tests both."""
    try:
        client = anthropic_client(environ)
        check_provider(settings.policy, client.endpoint.host)
    except CcbError as error:
        yield error_finding(LAPTOP, "provider", error)
        return
    endpoint = client.endpoint
    credential: Credential | None = None
    missing: CcbError | None = None
    try:
        async with asyncio.timeout(_CREDENTIAL_S):
            credential = await credential_source(environ, settings, endpoint.host, stored).get()
    except CcbError as error:
        missing = error
    except TimeoutError:
        what = f"The keyring did not answer in {_CREDENTIAL_S:g} s."
        missing = ConfigError(what, do="Unlock it, or export ANTHROPIC_API_KEY.")
    yield _proxy(endpoint, environ)
    route, started, status, date = _route(endpoint, environ), time.monotonic(), 0, None
    try:
        status, date = await _ask(client, credential)
    except (ProviderError, TimeoutError) as error:
        cause = str(error) or f"no answer within {_PROVIDER_S:g} s"
        fix = "Check the network of this machine (HTTPS_PROXY, SSL_CERT_FILE, ANTHROPIC_BASE_URL)."
        if endpoint.proxy is not None:
            fix = f"Check the proxy in {proxy_variable(endpoint.base, environ)}, or exclude this host with NO_PROXY."
        yield _finding("provider", FindingState.BLOCK, f"{route}: {cause}", fix)
    else:
        text = f"{route}: answered in {(time.monotonic() - started) * 1000:.0f} ms (HTTP {status})"
        yield _judged("provider", text, "Try again later: the provider has a problem." if status >= 500 else "")
    if isinstance(missing, StoreLocked):
        yield _finding("credential", FindingState.INFO, f"could not be checked: {missing.what}")
    else:
        yield error_finding(LAPTOP, "credential", missing) if missing else _credential(credential, status)
    if date is not None:
        text = skew_text(skew := time.time() - date, 2, "the provider")
        fix = "Set the clock of this machine: certificates are checked against it."
        yield _judged("clock", text, fix if abs(skew) > _SKEW_S else "")


def _proxy(endpoint: Endpoint, environ: Mapping[str, str]) -> Finding:
    name = proxy_variable(endpoint.base, environ)
    if endpoint.proxy is not None:
        login = ", with a login" if endpoint.proxy.user else ""
        text = f"{endpoint.proxy.scheme}://{endpoint.proxy.host}:{endpoint.proxy.port} ({name}{login})"
    elif name is not None:
        text = f"none for {endpoint.host}: NO_PROXY or its address excludes it from {name}"
    else:
        text = "none"
    return _finding("proxy", FindingState.INFO, text)


def _route(endpoint: Endpoint, environ: Mapping[str, str]) -> str:
    proxy = f" through the proxy {endpoint.proxy.host}:{endpoint.proxy.port}" if endpoint.proxy is not None else ""
    name = next((name for name in ("SSL_CERT_FILE", "SSL_CERT_DIR") if environ.get(name)), "")
    return f"{endpoint.base.scheme}://{endpoint.host}{proxy}{f', CAs of {name}' if name and endpoint.secure else ''}"


async def _ask(client: ProviderClient, credential: Credential | None) -> tuple[int, float | None]:
    """Ask for the list of models as model calls go. Return the HTTP status, and the provider's time if it sent one."""
    headers = {**key_headers(credential, ""), "accept": "application/json", "user-agent": "ccb"}
    request = ProviderRequest("GET", "/v1/models?limit=1", headers, WholeBody())
    async with asyncio.timeout(_PROVIDER_S), client, client.request(request) as response:
        date = next((value for name, value in response.headers if name.lower() == "date"), "")
    try:
        return response.status, email.utils.parsedate_to_datetime(date).timestamp()
    except (TypeError, ValueError):
        return response.status, None


def _credential(credential: Credential | None, status: int) -> Finding:
    assert credential is not None
    text = f"{credential.source}, sent as {credential.kind}"
    if status in (401, 403):
        fix = f"Check {credential.source}: the provider does not know this key, or does not allow its use."
        return _finding("credential", FindingState.BLOCK, f"{text}: refused (HTTP {status})", fix)
    if status in (200, 429):
        return _judged("credential", f"{text}: accepted")
    return _finding("credential", FindingState.INFO, f"{text}: could not be checked")


async def provider_findings(
    environ: Mapping[str, str], settings: Settings, stored: StoredCredentials
) -> AsyncIterator[Finding]:
    """Yield findings about the provider of the model of new sessions, which may block, and those of the settings."""
    model = settings.modelAliases.get(settings.model or "", settings.model or "")
    try:
        found = provider_and_model(model, environ, settings) if "/" in model else None
    except CcbError as error:
        yield error_finding(LAPTOP, "model", error)
        return
    chosen = None if found is None else found[0]
    names = dict.fromkeys([*([chosen.name] if chosen is not None else []), *settings.providers])
    for name in list(names)[:_MOST]:
        blocks = chosen is not None and name == chosen.name
        named = chosen if blocks else named_provider(name, environ, settings)
        if named is not None:
            finding = await _named_provider(named, environ, settings, stored)
            warns = finding.state is FindingState.BLOCK and not blocks
            yield replace(finding, state=FindingState.WARN) if warns else finding
    if chosen is not None:
        yield await _model(model, environ, settings, stored)


async def _named_provider(
    named: NamedProvider, environ: Mapping[str, str], settings: Settings, stored: StoredCredentials
) -> Finding:
    name, title = f"provider {named.name}", named.kind.title
    try:
        provider = provider_of(named, environ, settings, stored)
        source = model_source(named, environ, settings, stored)
        async with asyncio.timeout(_CREDENTIAL_S):
            credential = await provider.credential_name()
    except StoreLocked as error:
        return _finding(name, FindingState.INFO, f"{title}: could not be checked: {error.what}")
    except CcbError as error:
        return error_finding(LAPTOP, name, error)
    except TimeoutError:
        text = f"{title}: its credential was not found in {_CREDENTIAL_S:g} s"
        return _finding(name, FindingState.BLOCK, text, "Unlock the keyring, or log in to the cloud.")
    reached = f"{title}: {provider.name}"
    known = f"{reached}, {'no key needed' if credential == 'none' else f'key from {credential}'}"
    if source is None:
        return _judged(name, f"{known}; {named.why_no_list}")
    await source.load()
    started = time.monotonic()
    try:
        async with asyncio.timeout(_PROVIDER_S):
            models = await source.fetch()
    except (ProviderError, TimeoutError, CcbError) as error:
        why = str(error) or f"no answer within {_PROVIDER_S:g} s"
        fix = f"Check {provider.what_to_check}, and its key."
        if named.lists_by_right:
            fix += " Who may call models need not have the right to list them: then this does no harm."
            return _judged(name, f"{reached}: {why}", fix)
        return _finding(name, FindingState.BLOCK, f"{reached}: {why}", fix)
    return _judged(name, f"{known}; {len(models)} models in {(time.monotonic() - started) * 1000:.0f} ms")


async def _model(model: str, environ: Mapping[str, str], settings: Settings, stored: StoredCredentials) -> Finding:
    try:
        said = await check_models([model], environ, settings, stored)
    except UsageError as error:
        return error_finding(LAPTOP, "model", error)
    return _finding("model", FindingState.INFO, " ".join([one_line(settings.model or ""), *said]))


async def _keyring() -> Finding:
    """Check whether `ccb auth login` can store a key."""
    try:
        async with asyncio.timeout(_KEYRING_S):
            return _judged("keyring", await in_thread(KeyStore().require))
    except NoKeyring:
        return _finding("keyring", FindingState.INFO, "no usable keyring; only `ccb auth login` needs one")
    except CcbError as error:
        return _judged("keyring", f"{error.what} {error.evidence}".strip(), error.do)
    except TimeoutError:
        return _judged("keyring", f"did not answer in {_KEYRING_S:g} s", "Unlock it, or export ANTHROPIC_API_KEY.")
