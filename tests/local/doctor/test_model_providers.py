"""The doctor speaks of the provider that is configured: where it is, with which key, and whether it has the model."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.providers.dialect_server import KEY, DialectServer

from ccb.local.config.settings import ProviderSettings, Settings
from ccb.local.credentials.credential_sources import StoredCredentials
from ccb.local.doctor import laptop_checks
from ccb.local.doctor.doctor_findings import Finding, FindingState
from ccb.local.doctor.laptop_checks import provider_findings

LISTED = {"data": [{"id": "coder-large"}, {"id": "coder-small"}]}


OK, WARN, BLOCK, INFO = FindingState.OK, FindingState.WARN, FindingState.BLOCK, FindingState.INFO


def says(finding: Finding, state: FindingState, *parts: str) -> bool:
    return finding.state is state and all(part in finding.found for part in parts)


async def found(environ: dict[str, str], settings: Settings) -> dict[str, Finding]:
    stored = StoredCredentials(environ, settings=settings)
    return {each.name: each async for each in provider_findings(environ, settings, stored)}


def settings_for(server: DialectServer, model: str) -> Settings:
    lab = ProviderSettings(kind="vllm", baseUrl=server.url, keyVariable="LAB_KEY")
    return Settings(model=model, modelAliases={"big": "lab/coder-large"}, providers={"lab": lab})


async def test_the_provider_of_new_sessions_and_their_model_are_examined(tmp_path: Path) -> None:
    environ, server = {"HOME": str(tmp_path), "LAB_KEY": KEY}, DialectServer("vllm")
    server.listed = LISTED
    async with server.running():
        findings = await found(environ, settings_for(server, "big"))
        assert says(findings["provider lab"], OK, "vLLM: lab (127.0.0.1:", "key from LAB_KEY; 2 models in")
        assert findings["model"].state is INFO
        findings = await found(environ, settings_for(server, "lab/coder"))
        assert says(findings["model"], BLOCK, "Near names: lab/coder-large")
        findings = await found({**environ, "LAB_KEY": "wrong"}, settings_for(server, "big"))
        assert says(findings["provider lab"], BLOCK, "HTTP 401")
        assert "key" in findings["provider lab"].fix


async def test_what_new_sessions_do_not_need_only_warns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    environ, server = {"HOME": str(tmp_path), "LAB_KEY": "wrong"}, DialectServer("vllm")
    server.listed = LISTED
    async with server.running():
        findings = await found(environ, settings_for(server, "sonnet"))
        assert findings["provider lab"].state is WARN and "model" not in findings
        assert await found(environ, Settings()) == {}
        monkeypatch.setattr(laptop_checks, "load_settings", lambda _: settings_for(server, "big"))
        unreachable = {**environ, "LAB_KEY": KEY, "ANTHROPIC_API_KEY": "k", "HTTPS_PROXY": "http://127.0.0.1:9"}
        all_of_it = {each.name: each async for each in laptop_checks.laptop_findings(unreachable)}
    assert says(all_of_it["provider"], INFO, "Not needed: new sessions use a model of another provider.")
    assert all_of_it["provider lab"].state is OK


async def test_a_provider_that_cannot_be_made_is_a_finding(tmp_path: Path) -> None:
    findings = await found({"HOME": str(tmp_path)}, Settings(model="azure/deployment-1"))
    assert says(findings["provider azure"], BLOCK, "no base URL")
    environ = {"HOME": str(tmp_path), "AZURE_OPENAI_API_KEY": "k"}
    own = Settings(model="azure/d-1", providers={"azure": ProviderSettings(baseUrl="https://r.example/openai/v1")})
    findings = await found(environ, own)
    azure = findings["provider azure"]
    assert azure.found.startswith("Azure OpenAI: azure (") and "key from AZURE_OPENAI_API_KEY" in azure.found
    assert "providers.azure.project" in azure.found
