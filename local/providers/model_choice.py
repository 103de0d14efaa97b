"""What a session's REPL knows of the models that it may use: to choose one, complete its name, and tell the worker."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ccb.tunnel.errors import CcbError
from ccb.tunnel.proxy.providers.provider import ProviderError
from ccb.tunnel.wire.models import ModelTable

from .known_models import check_models, current_list, model_options, said_at_start
from .model_offers import ModelOffer, granted_providers, offers_of
from .named_provider import NamedProvider

if TYPE_CHECKING:
    from ..config.settings import Settings
    from ..credentials.stored import StoredCredentials


class ModelChoice:
    """`models` are those that the command line and the settings name: their providers were chosen on this machine, so
    the session may use all of their models. `stored` are the session's accounts, and `table`
    is what it knows of models."""

    def __init__(
        self,
        environ: Mapping[str, str],
        settings: Settings,
        models: Sequence[str],
        stored: StoredCredentials | None = None,
        table: ModelTable | None = None,
    ) -> None:
        self._table = table or ModelTable()
        self._environ = environ
        self._settings = settings
        self._models = tuple(models)
        self._stored = stored
        self._kept: list[ModelOffer] = []

    def without_alias(self, name: str) -> str:
        """Return what a short name of the person stands for, and any other name as it is."""
        return self._settings.modelAliases.get(name, name)

    @property
    def names(self) -> tuple[str, ...]:
        """Short names, and the models of the lists that were read last."""
        return (*self._settings.modelAliases, *(each.name for each in self._kept))

    async def kept(self) -> list[ModelOffer]:
        """Return the models of the lists that this machine keeps, without asking anybody."""
        self._kept = await asyncio.to_thread(self._read)
        return self._kept

    def _read(self) -> list[ModelOffer]:
        return [
            offer
            for named in self._providers()
            for offer in offers_of(named, named.kept_list(self._environ), self._environ)
            if offer.traits.tools
        ]

    async def current(self) -> tuple[list[ModelOffer], list[str]]:
        """Return the models after asking the providers whose lists are old, and a line for each that has none."""
        failed = await asyncio.gather(*(self._refreshed(named) for named in self._providers()))
        return await self.kept(), [why for why in failed if why]

    async def check(self, name: str) -> list[str]:
        """Return sentences about what a model cannot do. Raise CcbError if its provider does not list it."""
        not_found = await check_models([name], self._environ, self._settings, self._stored)
        return [*said_at_start(name, self._environ, self._settings), *not_found]

    def known(self, name: str) -> dict[str, Any]:
        """Return what the worker is told of a model: see `LEARN_MODELS`."""
        made = model_options(name, [], self._environ, self._settings, self._table)
        return {"models": made.facts, "thinking": made.thinking}

    def _providers(self) -> list[NamedProvider]:
        return granted_providers(self._environ, self._settings, self._models)

    async def _refreshed(self, named: NamedProvider) -> str:
        try:
            await current_list(named, self._environ, self._settings, self._stored)
        except (ProviderError, CcbError) as error:
            said = error.what if isinstance(error, CcbError) else str(error)
            return f"{named.name}: no list of models: {said}"
        return ""
