"""`ccb models`: the models that can be chosen here, as their providers list them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence

from ccb.tunnel.plain_text import one_line
from ccb.tunnel.providers.provider_kinds import ANTHROPIC

from ..command_line.arguments import Arguments
from ..command_line.exit_codes import ExitCode
from ..config.settings import Settings
from ..config.settings_loading import load_settings
from ..providers import known_models
from ..providers.named_provider import NamedProvider, named_provider, refuse_provider
from ..terminal.console import print_line, say
from .session_table import aligned, cut

_HEADINGS = ("MODEL", "WINDOW", "OUTPUT", "$ IN", "$ OUT", "CAN")
_MAX_NAME = 60


def run_models(arguments: Arguments, environ: Mapping[str, str]) -> int:
    given = arguments.host_command
    settings = load_settings(environ)
    if given.provider is None:
        chosen = known_models.usable_providers(environ, settings, [settings.model or ""])
    else:
        is_default = given.provider == ANTHROPIC
        named = known_models.default_provider() if is_default else named_provider(given.provider, environ, settings)
        if named is None:
            refuse_provider(given.provider, settings)
        chosen = [named]
    model = settings.modelAliases.get(settings.model or "", settings.model or "default")
    offers, failed = asyncio.run(_all_offers(chosen, environ, settings))
    current = known_models.short_names(environ).get(model, model)
    print_line(*(map(_json, offers) if given.json else models_table(offers, current)))
    say(*failed)
    return ExitCode.OK if offers else ExitCode.UNREACHABLE


async def _all_offers(
    providers: Sequence[NamedProvider], environ: Mapping[str, str], settings: Settings
) -> tuple[list[known_models.ModelOffer], list[str]]:
    async def of(named: NamedProvider) -> tuple[list[known_models.ModelOffer], str]:
        listed, why = await known_models.list_or_why(named, environ, settings)
        offers = known_models.offers_of(named, listed, environ)
        if not offers and not why:
            why = f"{named.name}: {named.why_no_list}"
        return offers, why

    found = await asyncio.gather(*(of(named) for named in providers))
    return [offer for offers, _ in found for offer in offers], [why for _, why in found if why]


def models_table(offers: Sequence[known_models.ModelOffer], current: str) -> list[str]:
    """Return a heading and a line for each model that can work as an agent; the `current` one is marked."""
    offers = [each for each in offers if each.traits.tools]
    if not offers:
        return []
    marks = [" ", *("*" if each.name == current else " " for each in offers)]
    lines = aligned([_HEADINGS, *(_row(each) for each in offers)], len(_HEADINGS) - 2)
    dates = {each.provider: each.listed for each in offers if each.listed}
    lists = ", ".join(f"{name}: list of {date}" for name, date in dates.items())
    marked = [f"{mark} {line}" for mark, line in zip(marks, lines, strict=True)]
    return [*marked, "", lists or "No list; from the settings."]


def _row(offer: known_models.ModelOffer) -> tuple[str, ...]:
    return (
        cut(one_line(offer.name), _MAX_NAME),
        f"{offer.window:,}" if offer.window else "-",
        f"{offer.traits.max_output:,}" if offer.traits.max_output else "-",
        known_models.price_text(offer.input_price),
        known_models.price_text(offer.output_price),
        offer.can,
    )


def _json(offer: known_models.ModelOffer) -> str:
    traits = offer.traits
    return json.dumps(
        {
            "model": offer.name,
            "provider": offer.provider,
            "title": offer.title,
            "contextWindow": offer.window or None,
            "maxOutput": traits.max_output or None,
            "tools": traits.tools,
            "images": traits.images,
            "documents": traits.documents,
            "thinking": traits.thinking,
            "efforts": list(traits.efforts),
            "inputPrice": offer.input_price,
            "outputPrice": offer.output_price,
            "cacheReadPrice": traits.cache_read_price,
            "listed": offer.listed or None,
        }
    )
