"""The limits of one auth proxy, as the settings of this machine say."""

from __future__ import annotations

from ccb.tunnel.errors import UsageError
from ccb.tunnel.proxy.guards.request_limits import RequestLimits
from ccb.tunnel.proxy.policy import MAX_BODY, MAX_CALLS, MAX_PER_MINUTE, Policy
from ccb.tunnel.wire.models import sent_name

from ..config.settings import Settings

_HOUR_S = 3600.0


def check_allowed(model: str, settings: Settings, host: str) -> None:
    """Raise UsageError for a model that the settings do not allow on a host: no call of it would pass."""
    limits = call_policy(settings, host).requests
    if not limits.allows(sent_name(model)):
        raise UsageError(
            f"the settings of this machine do not allow the model {model} on {host}",
            evidence=f"Allowed are {', '.join(limits.models)}.",
            do="Choose another one with --model, or change modelCalls.models.",
        )


def call_policy(settings: Settings, host: str) -> Policy:
    """Return which calls the worker on `host` may make."""
    calls = settings.modelCalls.of_host(host)
    per_minute = calls.perMinute or MAX_PER_MINUTE
    return Policy(
        max_body=calls.maxRequestBytes or MAX_BODY,
        max_answer=calls.maxResponseBytes,
        lasts_s=None if calls.expiresHours is None else calls.expiresHours * _HOUR_S,
        requests=RequestLimits(tuple(calls.models or ()), calls.maxOutputTokens),
        max_calls=calls.maxConcurrent or MAX_CALLS,
        max_burst=per_minute,
        max_per_minute=per_minute,
    )
