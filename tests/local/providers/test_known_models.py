"""Models that a provider does not list are refused before the first turn; its list is kept for days."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.support.providers.dialect_server import KEY, DialectServer

from ccb.local.config.settings import ModelSettings, ProviderSettings, Settings
from ccb.local.providers.known_models import check_models, model_options, refresh_lists, said_at_start, short_names
from ccb.local.providers.model_list_cache import FRESH_S, NEW_S, ModelList, keep_list, read_list
from ccb.tunnel.errors import UsageError
from ccb.tunnel.providers.model_lists import ListedModel
from ccb.tunnel.wire.model_facts import ALIASES, ModelTable

LISTED = {"data": [{"id": "coder-large", "max_model_len": 77_000}, {"id": "coder-small"}, {"id": "writer"}]}


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    return {"HOME": str(tmp_path), "LAB_KEY": KEY}


def lab(server: DialectServer, **models: ModelSettings) -> Settings:
    own = ProviderSettings(kind="vllm", baseUrl=server.url, keyVariable="LAB_KEY", models=models)
    return Settings(providers={"lab": own})


def kept_file(environ: dict[str, str]) -> Path:
    return Path(environ["HOME"]) / ".cache" / "ccb" / "models" / "lab.json"


def age_list(environ: dict[str, str], seconds: float) -> None:
    data = json.loads(kept_file(environ).read_text())
    kept_file(environ).write_text(json.dumps({**data, "at": data["at"] - seconds - 1}))


def told_of(model: str, environ: dict[str, str], settings: Settings | None = None) -> dict[str, Any]:
    return model_options(model, [], environ, settings or Settings(), ModelTable())


async def test_an_unknown_model_is_refused_with_near_names(environ: dict[str, str]) -> None:
    server = DialectServer("vllm")
    async with server.running():
        assert await check_models(["lab/anything"], environ, lab(server)) == [], "it lists nothing"
        assert not kept_file(environ).exists()
        server.listed, server.lists_asked = LISTED, 0
        with pytest.raises(UsageError, match="vLLM has no model 'coder'") as refused:
            await check_models(["lab/coder"], environ, lab(server))
        assert "lab/coder-large, lab/coder-small" in refused.value.evidence
        assert "ccb models --provider lab" in refused.value.do
        with pytest.raises(UsageError) as misspelt:
            await check_models(["lab/writre"], environ, lab(server))
        assert "lab/writer" in misspelt.value.evidence
        behind_gateway = {**environ, "ANTHROPIC_BASE_URL": "http://127.0.0.1:9"}
        assert await check_models(["lab/writer", "vendor/model", "sonnet"], behind_gateway, lab(server)) == []
        assert await check_models(["lab/own"], environ, lab(server, own=ModelSettings())) == []
    assert server.lists_asked == 1, "a list of today is not asked for again"


async def test_the_list_works_without_the_provider_and_is_refreshed_beside_a_session(environ: dict[str, str]) -> None:
    server = DialectServer("vllm")
    server.listed = LISTED
    async with server.running():
        settings = lab(server)
        for _ in range(2):
            await refresh_lists(["lab/writer"], environ, settings)
        assert server.lists_asked == 1
        age_list(environ, FRESH_S)
        server.listed = {"data": [*LISTED["data"], {"id": "newest"}]}
        await refresh_lists(["lab/writer"], environ, settings)
        assert await check_models(["lab/newest"], environ, settings) == []
        age_list(environ, NEW_S)
        server.listed = {"data": [*LISTED["data"], {"id": "of-today"}]}
        assert await check_models(["lab/of-today"], environ, settings) == [], "it came since the list of this morning"
    assert KEY not in kept_file(environ).read_text()
    assert await check_models(["lab/coder-large"], environ, settings) == []
    assert told_of("lab/coder-large", environ, settings)["model_facts"]["lab/coder-large"][0] == 77_000
    assert not any("window" in each for each in said_at_start("lab/coder-large", environ, settings))
    age_list(environ, FRESH_S)
    (said,) = await check_models(["lab/brand-new"], environ, settings)
    assert "lab does not answer" in said and "has no brand-new" in said


def test_the_small_model_is_that_of_the_provider_or_of_the_settings(environ: dict[str, str]) -> None:
    for model, settings, small, compact in (
        ("openai/gpt-5", Settings(), "openai/gpt-5-mini", ""),
        ("vllm/qwen3", Settings(), "", ""),
        ("sonnet", Settings(), "", ""),
        ("sonnet", Settings(smallModel="deepseek/deepseek-chat"), *("deepseek/deepseek-chat",) * 2),
        ("openai/gpt-5", Settings(smallModel="s", modelAliases={"s": "haiku"}), "haiku", "haiku"),
    ):
        made = told_of(model, environ, settings)
        assert (made["small_model"], made["compact_model"]) == (small, compact)
    told = told_of("openai/gpt-5", environ, Settings(modelAliases={"quick": "grok/grok-4"}))
    assert told["model_aliases"] == {"quick": "grok/grok-4"}
    assert {"openai/gpt-5-mini", "grok/grok-4"} <= told["model_facts"].keys()
    assert told["thinking_models"]["openai/gpt-5"] == ["minimal", "low", "medium", "high"]
    assert told["thinking_models"]["grok/grok-4"] == []


def test_short_names_stand_for_the_newest_models_that_anthropic_lists(environ: dict[str, str]) -> None:
    assert short_names(environ) == ALIASES
    newer = [("claude-opus-9-20270101", "2027-01-01"), ("claude-opus-4-5-20251101", "2025-11-01")]
    models = [ListedModel(name, created=created) for name, created in (*newer, ("claude-haiku-7-1", "2026-09-01"))]
    keep_list(environ, "anthropic", "https://api.anthropic.com", models)
    names = short_names(environ)
    assert (names["opus"], names["haiku"]) == ("claude-opus-9-20270101", "claude-haiku-7-1")
    assert names["default"] == names["sonnet"] == ALIASES["sonnet"], "a family that is not listed stays"
    told = told_of("opus", environ)
    assert told["model_aliases"] == {"opus": "claude-opus-9-20270101", "haiku": "claude-haiku-7-1"}
    assert {"claude-opus-9-20270101", "claude-haiku-7-1"} <= told["model_facts"].keys(), "sub-agents may use all"
    assert short_names({**environ, "ANTHROPIC_BASE_URL": "https://gateway.example"}) == ALIASES


def test_what_a_model_makes_of_an_effort_is_said_at_start(environ: dict[str, str]) -> None:
    said = {
        "openai/gpt-5": "openai/gpt-5 has no effort max: it is asked for high.",
        "grok/grok-4": "grok/grok-4 has no levels of effort: --effort max has no effect.",
        "openai/gpt-4.1": "openai/gpt-4.1 is not known to think: effort and thinking have no effect.",
    }
    for model, sentence in said.items():
        assert sentence in said_at_start(model, environ, Settings(), "max")
    assert said_at_start("openai/gpt-5", environ, Settings(), "high") == []


@pytest.mark.parametrize("text", ["", "{}", "[1]", '{"format": 1, "address": "a", "at": 1, "models": [3]}', "[" * 9999])
def test_a_broken_file_is_no_list(text: str, tmp_path: Path) -> None:
    path = tmp_path / "ccb" / "models" / "p.json"
    path.parent.mkdir(parents=True)
    path.write_text(text)
    assert read_list({"XDG_CACHE_HOME": str(tmp_path)}, "p", "a") is None


def test_a_list_counts_for_its_own_address_only_also_where_it_cannot_be_written(tmp_path: Path) -> None:
    environ = {"XDG_CACHE_HOME": str(tmp_path)}
    keep_list(environ, "p", "https://one", [ListedModel("m")])
    assert read_list(environ, "p", "https://one") is not None and read_list(environ, "p", "https://two") is None
    (tmp_path / "x").write_text("a file is in the way")
    made = keep_list({"XDG_CACHE_HOME": str(tmp_path / "x")}, "p", "a", [ListedModel("m")])
    assert made.find("m") is not None and (tmp_path / "x").is_file()


def test_a_name_may_leave_out_the_date_or_the_tag_at_its_end() -> None:
    ids = ["claude-opus-4-5-20251101", "claude-opus-4-20250514", "qwen3:latest", "qwen3:8b", "v/m", "gpt-5"]
    listed = ModelList(0.0, [ListedModel(each) for each in ids])
    for name, found in {
        "claude-opus-4-5": "claude-opus-4-5-20251101",
        "qwen3": "qwen3:latest",
        "qwen3:8b": "qwen3:8b",
        "v/m:free": "v/m",
        "gpt-5": "gpt-5",
        "claude-opus": None,
        "qwen3:70b": None,
        "gpt": None,
    }.items():
        known = listed.find(name)
        assert (known.id if known is not None else None) == found
