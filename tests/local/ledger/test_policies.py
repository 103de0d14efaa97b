"""The settings of this machine become the limits of the calls of one host."""

from __future__ import annotations

from pathlib import Path

import pytest

from ccb.local.config.settings import settings_path
from ccb.local.config.settings_loading import load_settings
from ccb.local.ledger.budgets import budgets
from ccb.local.ledger.proxy_control import call_policy, check_allowed
from ccb.tunnel.errors import ConfigError, UsageError
from ccb.tunnel.proxy.policy import MAX_CALLS, Policy

TEXT = """
{
  "modelCalls": {
    "models": ["claude-*"], "maxConcurrent": 8,
    "hosts": {"gpu-*": {"expiresHours": 2, "models": ["m"]}, "gpu-7": {"perMinute": 5}}
  },
  "budgets": {"dayUsd": 9, "sessionTokens": 7, "hosts": {"gpu-*": {"dayUsd": 3}}}
}
"""


def settings_file(home: Path, text: str) -> dict[str, str]:
    environ = {"HOME": str(home)}
    path = settings_path(environ)
    path.parent.mkdir(parents=True)
    path.write_text(text)
    return environ


def test_a_model_that_no_call_may_ask_is_refused_at_the_start(tmp_path: Path) -> None:
    settings = load_settings(settings_file(tmp_path, TEXT))
    check_allowed("claude-sonnet-4-5[1m]", settings, "web")
    with pytest.raises(UsageError, match="do not allow the model gpt-5 on web") as caught:
        check_allowed("gpt-5", settings, "web")
    assert "claude-*" in caught.value.evidence


def test_a_host_has_its_own_limits_and_budgets(tmp_path: Path) -> None:
    settings = load_settings(settings_file(tmp_path, TEXT))
    assert settings.warnings == []
    other, gpu = call_policy(settings, "web"), call_policy(settings, "gpu-7")
    assert (other.requests.models, other.max_calls, other.lasts_s) == (("claude-*",), 8, None)
    assert (gpu.requests.models, gpu.max_calls, gpu.lasts_s, gpu.max_per_minute) == (("m",), 8, 7200, 5)
    web, there = budgets(None, settings, "web"), budgets(1.5, settings, "gpu-7")
    assert (web.host_usd, web.session_tokens, web.day_usd) == (None, 7, 9)
    assert (there.host_usd, there.run_usd) == (3, 1.5)


def test_without_settings_the_limits_are_those_of_the_proxy(tmp_path: Path) -> None:
    policy = call_policy(load_settings({"HOME": str(tmp_path)}), "web")
    assert policy == Policy() and policy.max_calls == MAX_CALLS


def test_a_wrong_limit_of_a_host_is_named_with_its_line(tmp_path: Path) -> None:
    environ = settings_file(tmp_path, TEXT.replace('"perMinute": 5', '"perMinute": 0'))
    with pytest.raises(ConfigError, match=r"line 5: modelCalls\.hosts\.gpu-7\.perMinute"):
        load_settings(environ)
