"""Which provider a model's name chooses, with which key, and what is said before the first turn."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from aiohttp import web
from tests.support.network.http_server import serving
from tests.support.proxy.proxy_client import answer_to

from ccb.local.config.settings import ModelSettings, ProviderSettings, Settings
from ccb.local.config.settings_loading import load_settings
from ccb.local.credentials.credential_sources import StoredCredentials
from ccb.local.providers.known_models import model_options, said_at_start
from ccb.local.providers.named_provider import named_provider
from ccb.local.providers.session_provider import has_others, session_provider
from ccb.tunnel.errors import ConfigError, CredentialError, UsageError
from ccb.tunnel.providers.api_errors import Refusal
from ccb.tunnel.providers.credential import Credential, FixedCredential
from ccb.tunnel.providers.foreign_api import CHAT, GEMINI, RESPONSES
from ccb.tunnel.proxy.auth_proxy import AuthProxy
from ccb.tunnel.secret import Secret
from ccb.tunnel.wire.model_facts import ModelTable

GIVEN = {f"{name}_API_KEY": "k" for name in ("ANTHROPIC", "OPENAI", "GEMINI", "DEEPSEEK")}
NONE = Settings()
KEYS = {"ANTHROPIC_API_KEY": "k", "OPENAI_API_KEY": "o"}


def with_provider(name: str, **given: object) -> Settings:
    return Settings(providers={name: ProviderSettings(**given)})  # type: ignore[arg-type]


def test_a_name_in_front_of_the_model_chooses_the_provider() -> None:
    for model, name in {
        "openai/gpt-5": "openai (api.openai.com)",
        "grok/grok-4": "grok (api.x.ai)",
        "ollama/qwen3": "ollama (127.0.0.1:11434)",
        "anthropic/claude-opus-4-5": "anthropic (api.anthropic.com)",
        "sonnet": "api.anthropic.com",
        "vendor/model": "api.anthropic.com",
        None: "api.anthropic.com",
    }.items():
        assert session_provider(KEYS, NONE, model).main.name == name
    with pytest.raises(ConfigError, match="azure has no base URL") as caught:
        session_provider(KEYS, NONE, "azure/gpt-5")
    assert "AZURE_OPENAI_BASE_URL" in caught.value.do
    gateway = {**KEYS, "ANTHROPIC_BASE_URL": "https://gateway.example"}  # behind it only the settings name providers
    assert session_provider(gateway, NONE, "openai/gpt-5").main.name == "gateway.example"
    assert session_provider(gateway, with_provider("openai"), "openai/gpt-5").main.name == "openai (api.openai.com)"
    assert has_others(KEYS, NONE) and has_others({}, with_provider("ollama"))
    assert not has_others({"ANTHROPIC_API_KEY": "k"}, NONE)


def test_settings_name_servers_of_the_own() -> None:
    own = with_provider("work", kind="vllm", baseUrl="https://llm.example/v1")
    assert session_provider(KEYS, own, "work/m").main.name == "work (llm.example)"
    found = named_provider("work", KEYS, own)
    assert found is not None and found.dialect == "chat" and found.kind.name == "vllm"
    kimi = named_provider("kimi", KEYS, with_provider("kimi", dialect="anthropic", baseUrl="https://kimi.example"))
    assert kimi is not None and kimi.dialect == "anthropic"
    plain = named_provider("lab", KEYS, with_provider("lab", baseUrl="https://lab.example/v1"))
    assert plain is not None and plain.kind.name == "compatible"


async def test_the_key_comes_from_where_the_settings_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_KEYRING_FILE", str(tmp_path / "keyring"))
    environ = {**KEYS, "MINE": "m"}
    assert await session_provider(environ, NONE, "openai/gpt-5").main.credential_name() == "OPENAI_API_KEY"
    own = with_provider("openai", keyVariable="MINE")
    assert await session_provider(environ, own, "openai/gpt-5").main.credential_name() == "MINE"
    helper = with_provider("grok", keyHelper="echo from-the-helper")
    assert await session_provider(environ, helper, "grok/grok-4").main.credential_name() == "apiKeyHelper"
    assert await session_provider({}, NONE, "ollama/qwen3").main.credential_name() == "none"
    missing = session_provider(environ, with_provider("openai", keyVariable="MISSING"), "openai/gpt-5")
    with pytest.raises(CredentialError, match="MISSING is not set, and no key of openai is stored"):
        await missing.main.credential_name()
    with pytest.raises(CredentialError, match="GEMINI_API_KEY or GOOGLE_API_KEY is not set") as caught:
        await session_provider({}, NONE, "gemini/gemini-3-pro").main.credential_name()
    assert "ccb auth login gemini" in caught.value.do


async def test_a_key_that_is_given_in_the_session_counts_most_at_its_host() -> None:
    stored, mine = StoredCredentials(KEYS, settings=NONE), FixedCredential(Credential("mine", bearer=Secret("m")))
    router = session_provider(KEYS, NONE, "openai/gpt-5", "grok/grok-4", stored=stored)
    for host in ("api.openai.com", "api.x.ai"):  # one whose provider was made, and one that is made later
        stored.give(host, mine)
        router.use_credential(host, mine)
    names = [await router.provider_of(each).credential_name() for each in ("openai/gpt-5", "grok/grok-4", "sonnet")]
    assert names == ["mine", "mine", "ANTHROPIC_API_KEY"] and router.name_of("grok/grok-4") == "grok"


async def test_an_address_may_name_a_version_of_the_api_as_azure_wants_it() -> None:
    asked: list[tuple[str, str]] = []

    async def answer(request: web.Request) -> web.StreamResponse:
        asked.append((request.raw_path, request.headers["api-key"]))
        return web.json_response({"error": {"message": "no such deployment", "code": "404"}}, status=404)

    body = {"model": "azure/d-1", "max_tokens": 5, "messages": [{"role": "user", "content": "go"}]}
    async with serving(answer) as url:
        for path, dialect in (("openai", None), ("openai/deployments/d-1", "chat")):
            own = with_provider("azure", baseUrl=f"{url}/{path}?api-version=2025-04-01-preview", dialect=dialect)
            async with AuthProxy(session_provider({**KEYS, "AZURE_OPENAI_API_KEY": "a"}, own, "azure/d-1")) as proxy:
                told = await answer_to(proxy, body)
            assert told.status == 404 and b"no such deployment" in told.body
    assert asked == [
        ("/openai/responses?api-version=2025-04-01-preview", "a"),
        ("/openai/deployments/d-1/chat/completions?api-version=2025-04-01-preview", "a"),
    ]
    for query in ("api-version=", "api-version=1&key=k", "key=k", "api-version=a%26b"):
        with pytest.raises(ConfigError, match="must not have"):
            session_provider(KEYS, with_provider("azure", baseUrl=f"https://r.example/openai?{query}"), "azure/d-1")


async def test_a_host_gets_no_provider_that_the_laptop_did_not_choose() -> None:
    """A key that lies in the environment for something else is not the host's to use."""
    body = {"model": "openai/gpt-5", "messages": [{"role": "user", "content": "spend"}]}
    async with AuthProxy(session_provider(KEYS, NONE, "sonnet")) as proxy:
        answer = await answer_to(proxy, body)
    assert (answer.status, answer.headers["x-should-retry"]) == (403, "false")
    assert b"openai was not chosen on the laptop" in answer.body
    with pytest.raises(Refusal):
        session_provider(KEYS, NONE, "sonnet").provider_of("openai/gpt-5")
    session_provider(KEYS, NONE, "sonnet", "openai/gpt-5").provider_of("openai/gpt-5")  # --fallback-model
    for settings in (Settings(smallModel="openai/gpt-5"), Settings(modelAliases={"fast": "openai/gpt-5"})):
        session_provider(KEYS, settings, "sonnet").provider_of("openai/gpt-5-mini")


def test_what_a_model_cannot_do_is_said_before_the_first_turn() -> None:
    assert said_at_start("sonnet", KEYS, NONE) == said_at_start("openai/gpt-5", KEYS, NONE) == []
    assert said_at_start("bedrock/eu.anthropic.claude-opus-4-5-v1:0", {**KEYS, "AWS_REGION": "eu-west-1"}, NONE) == []
    assert "takes no images" in said_at_start("deepseek/deepseek-chat", KEYS, NONE)[0]
    assert any("window of ollama/q is not known" in each for each in said_at_start("ollama/q", KEYS, NONE))
    own = with_provider("ollama", models={"q": ModelSettings(contextWindow=32_000, images=True, documents=True)})
    assert said_at_start("ollama/q", KEYS, own) == []
    facts = model_options("", [], KEYS, own, ModelTable())["model_facts"]
    assert facts == {"ollama/q": [32_000, 8_000, 0.0, 0.0, 0.1, 1.25]}
    with pytest.raises(UsageError, match="takes no tools"):
        said_at_start("ollama/q", KEYS, with_provider("ollama", models={"q": ModelSettings(tools=False)}))


def test_prices_of_the_settings_reach_both_ends_before_a_request_goes_out() -> None:
    """Also of a model that nobody has named on this machine, and that costs nothing; not of one of another provider."""
    model = ModelSettings(inputPrice=2.0, outputPrice=8.0, cacheReadPrice=0.5)
    own = with_provider("openai", models={"gpt-4.1": model})
    table = ModelTable()
    told = model_options("openai/gpt-4.1", [], KEYS, own, table)["model_facts"]
    model_options("openai/gpt-4o-2024-05-13", [], KEYS, NONE, table)
    assert table.facts("openai/gpt-4.1").input_price == 2.0
    assert table.facts("openai/gpt-4o-2024-05-13").input_price == 5, "it costs more than the later ones of its name"
    assert told["openai/gpt-4.1"] == [1_000_000, 32_768, 2.0, 8.0, 0.25, 1.0]
    claude = model_options("openrouter/anthropic/claude-sonnet-4.5", [], KEYS, NONE, ModelTable())["model_facts"]
    assert claude == {"openrouter/anthropic/claude-sonnet-4.5": [200_000, 64_000, 3, 15, 0.1, 1.25, 200_000, 2, 1.5]}
    free = {"local": ModelSettings(inputPrice=0.0, outputPrice=0.0), "dear": ModelSettings(inputPrice=9.0)}
    table = ModelTable()
    router = session_provider(KEYS, with_provider("ollama", models=free), "ollama/local", table=table)
    for name in ("ollama/local", "ollama/dear", "ollama/unheard-of", "openai/gpt-5"):
        router.learn(name)
    assert [table.facts(f"ollama/{name}").priced for name in ("local", "dear", "unheard-of")] == [True, True, False]
    assert not table.facts("openai/gpt-5").priced


def test_an_agent_of_others_may_use_its_own_provider_and_those_that_the_person_names() -> None:
    own = with_provider("lab", kind="vllm")
    for agent, settings, model, api, placed in (
        ("gemini", NONE, None, GEMINI, "gemini/m"),
        ("/opt/bin/gemini --acp", NONE, None, GEMINI, "gemini/m"),
        ("codex", NONE, None, RESPONSES, "openai/m"),
        ("./mine", NONE, "deepseek/deepseek-chat", CHAT, "deepseek/m"),
        ("./mine", own, "sonnet", CHAT, "lab/m"),
        ("qwen", own, None, RESPONSES, "openai/m"),
    ):
        assert session_provider(GIVEN, settings, model, agent=agent).placed(api, "m") == placed
    assert session_provider(GIVEN, own, None, agent="qwen").placed(CHAT, "lab/m") == "lab/m"
    for agent, api in (("codex", GEMINI), ("gemini", CHAT), ("claude", RESPONSES), ("", GEMINI)):
        with pytest.raises(Refusal, match="was not chosen on the laptop"):
            session_provider(GIVEN, NONE, None, agent=agent).placed(api, "m")


def settings_with(home: Path, providers: object) -> Settings:
    path = home / ".config" / "ccb" / "settings.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps({"providers": providers}))
    return load_settings({"HOME": str(home)})


def test_the_settings_of_providers_are_read_and_unknown_keys_named(tmp_path: Path) -> None:
    models = {"gpt-5": {"contextWindow": 272000, "efforts": ["low", "high"], "colour": "red"}}
    given = {"openai": {"dialect": "chat", "models": models, "zone": "eu"}, "lab": {"kind": "vllm"}}
    settings = settings_with(tmp_path, given)
    own = settings.providers["openai"]
    assert (own.dialect, own.models["gpt-5"].contextWindow, settings.providers["lab"].kind) == ("chat", 272000, "vllm")
    warned = "\n".join(settings.warnings)
    assert "'providers.openai.zone'" in warned and "'providers.openai.models.gpt-5.colour'" in warned


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"openai": {"apiKey": "abc"}}, r"providers\.openai\.apiKey: settings must not hold a secret"),
        ({"My Lab": {}}, "cannot be the name of a provider"),
        ({"openai": {"kind": "hal"}}, r"providers\.openai\.kind"),
        ({"openai": 3}, r"providers\.openai"),
    ],
)
def test_wrong_settings_of_providers_are_named(given: object, said: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=said):
        settings_with(tmp_path, given)
