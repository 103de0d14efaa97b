"""The command lines of the client processes that have driven a session, and which of their options are in force."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import replace
from typing import Any

from ccb.tunnel.wire import SessionOptions
from ccb.tunnel.wire.models import ModelTable
from ccb.tunnel.wire.requests import AnsweredBy

Json = dict[str, Any]

_MAX_LAUNCHES = 32
_OF_THE_SESSION = (
    "model",
    "permission_mode",
    "system_prompt",
    "append_system_prompt",
    "add_dirs",
    "sandbox",
    "allow_net",
    "effort",
    "max_thinking_tokens",
)


class Launches:
    """`options` are the options in force. Options of a client process come from the process that drives; options of the
    session stay until a client sets them. `models` is what the options say of models."""

    def __init__(self, options: SessionOptions) -> None:
        self.options = options
        self.models = ModelTable()
        self.models.learn_all(options.model_facts, options.thinking_models)
        self._by_client: OrderedDict[str, Json] = OrderedDict()

    def can_ask(self, answered_by: AnsweredBy) -> bool:
        """Return whether requests to `answered_by` can be answered. For the person this depends on the driver's command
        line."""
        return answered_by is not AnsweredBy.PERSON or self.options.permission_prompts == "stdio"

    def merge(self, given: Json, sent: SessionOptions, mode: str) -> SessionOptions:
        """Return the options in force after a process with the options `sent` starts to drive; `given` are those that
        it named explicitly. `mode` is the present permission mode."""
        old = self.options
        return replace(
            sent,
            model=sent.model or old.model,
            permission_mode=sent.permission_mode if "permission_mode" in given else mode,
            allow_bypass=sent.allow_bypass or old.allow_bypass,
            system_prompt=sent.system_prompt if "system_prompt" in given else old.system_prompt,
            append_system_prompt=(
                sent.append_system_prompt if "append_system_prompt" in given else old.append_system_prompt
            ),
            effort=sent.effort or old.effort,
            model_facts={**old.model_facts, **sent.model_facts},
            thinking_models={**old.thinking_models, **sent.thinking_models},
            model_aliases={**old.model_aliases, **sent.model_aliases},
            small_model=sent.small_model or old.small_model,
            compact_model=sent.compact_model or old.compact_model,
            max_thinking_tokens=old.max_thinking_tokens
            if sent.max_thinking_tokens is None
            else sent.max_thinking_tokens,
            add_dirs=sent.add_dirs or old.add_dirs,
            sandbox=sent.sandbox if "sandbox" in given else old.sandbox,
            allow_net=sent.allow_net if {"sandbox", "allow_net"} & given.keys() else old.allow_net,
        )

    def use(self, options: SessionOptions) -> None:
        """Put options in force, and keep them for the client that brought them."""
        self.options = options
        self.models.learn_all(options.model_facts, options.thinking_models)
        self.keep(options)

    def keep(self, options: SessionOptions) -> None:
        """Keep options for the client that brought them."""
        self._by_client.pop(options.client, None)
        self._by_client[options.client] = options.to_json()
        while len(self._by_client) > _MAX_LAUNCHES:
            self._by_client.popitem(last=False)

    def of_client(self, client: str) -> Json | None:
        """What belongs to the process of `client`, if another one's command line is in force now: a client that takes
        the session back is asked, and sees answers grow, as before."""
        if client == self.options.client or client not in self._by_client:
            return None
        return {name: value for name, value in self._by_client[client].items() if name not in _OF_THE_SESSION}
