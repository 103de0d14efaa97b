"""The doctor's checks of providers of models other than Anthropic: address, credential, list of models, and whether the
model of new sessions is in it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping

from ccb.tunnel.errors import CcbError, UsageError
from ccb.tunnel.plain_text import one_line
from ccb.tunnel.proxy.providers.provider import ProviderError

from ..config.settings import Settings
from ..credentials.encrypted_file import StoreLocked
from ..credentials.stored import StoredCredentials
from ..providers.known_models import check_models, provider_and_model
from ..providers.named_provider import NamedProvider, named_provider
from ..providers.session_provider import model_source, provider_of
from .findings import LAPTOP, Finding, State, error_finding

_ASK_S = 10.0
_CREDENTIAL_S = 20.0
_MOST = 10


def chosen_provider(environ: Mapping[str, str], settings: Settings) -> NamedProvider | None:
    """Return the provider of the model of new sessions, None if that is Anthropic or a gateway. Raise ConfigError."""
    model = settings.modelAliases.get(settings.model or "", settings.model or "")
    found = provider_and_model(model, environ, settings) if "/" in model else None
    return None if found is None else found[0]


async def provider_findings(
    environ: Mapping[str, str], settings: Settings, stored: StoredCredentials
) -> AsyncIterator[Finding]:
    """Yield findings about the provider of the model of new sessions, and about those of the settings. What is wrong
    with the first one blocks; the others may not be needed."""
    try:
        chosen = chosen_provider(environ, settings)
    except CcbError as error:
        yield error_finding(LAPTOP, "model", error)
        return
    names = dict.fromkeys([*([chosen.name] if chosen is not None else []), *settings.providers])
    for name in list(names)[:_MOST]:
        blocks = chosen is not None and name == chosen.name
        named = chosen if blocks else named_provider(name, environ, settings)
        if named is not None:
            yield _weighed(await _provider(named, environ, settings, stored), blocks=blocks)
    if chosen is not None:
        yield await _model(settings.model or "", environ, settings, stored)


def _weighed(finding: Finding, *, blocks: bool) -> Finding:
    if finding.state is State.BLOCK and not blocks:
        return Finding(finding.where, finding.name, State.WARN, finding.found, finding.fix)
    return finding


async def _provider(
    named: NamedProvider, environ: Mapping[str, str], settings: Settings, stored: StoredCredentials
) -> Finding:
    name, title = f"provider {named.name}", named.kind.title
    try:
        provider = provider_of(named, environ, settings, stored)
        source = model_source(named, environ, settings, stored)
        async with asyncio.timeout(_CREDENTIAL_S):
            credential = await provider.credential_name()
    except StoreLocked as error:
        return Finding(LAPTOP, name, State.INFO, f"{title}: could not be checked: {error.what}")
    except CcbError as error:
        return error_finding(LAPTOP, name, error)
    except TimeoutError:
        text = f"{title}: its credential was not found in {_CREDENTIAL_S:g} s"
        return Finding(LAPTOP, name, State.BLOCK, text, "Unlock the keyring, or log in to the cloud.")
    known = "no key needed" if credential == "none" else f"key from {credential}"
    if source is None:
        return Finding(LAPTOP, name, State.OK, f"{title}: {provider.name}, {known}; {named.why_no_list}")
    started = time.monotonic()
    try:
        async with asyncio.timeout(_ASK_S):
            models = await source.fetch()
    except (ProviderError, TimeoutError, CcbError) as error:
        why = str(error) or f"no answer within {_ASK_S:g} s"
        fix = f"Check {provider.what_to_check}, and its key."
        if named.lists_by_right:
            fix += " Who may call models need not have the right to list them: then this does no harm."
            return Finding(LAPTOP, name, State.WARN, f"{title}: {provider.name}: {why}", fix)
        return Finding(LAPTOP, name, State.BLOCK, f"{title}: {provider.name}: {why}", fix)
    took = (time.monotonic() - started) * 1000
    return Finding(LAPTOP, name, State.OK, f"{title}: {provider.name}, {known}; {len(models)} models in {took:.0f} ms")


async def _model(model: str, environ: Mapping[str, str], settings: Settings, stored: StoredCredentials) -> Finding:
    try:
        said = await check_models([settings.modelAliases.get(model, model)], environ, settings, stored)
    except UsageError as error:
        return error_finding(LAPTOP, "model", error)
    return Finding(LAPTOP, "model", State.INFO, " ".join([one_line(model), *said]))
