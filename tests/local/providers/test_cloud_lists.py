"""The models of clouds: asked for as the clouds' own clients do, and read from what those clients can read."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import parse_qs

import pytest
from tests.support.providers.cloud_server import ACCESS_TOKEN, AWS, REGION, CloudServer

from ccb.local.config.settings import ProviderSettings, Settings
from ccb.local.providers.known_models import ModelOffer, check_models, current_list, offers_of
from ccb.local.providers.named_provider import NamedProvider, named_provider
from ccb.tunnel.errors import UsageError
from ccb.tunnel.providers.provider import ProviderError

OPUS = "anthropic.claude-opus-4-5-20251101-v1:0"
PROFILE = f"arn:aws:bedrock:{REGION}:1:application-inference-profile/abc"


class Place:
    def __init__(self, server: CloudServer, home: Path, environ: Mapping[str, str], **own: str) -> None:
        self.server = server
        self.environ = {"HOME": str(home), **environ}
        provider = ProviderSettings(baseUrl=server.url, **own)  # type: ignore[arg-type]
        self.settings = Settings(providers={server.kind: provider})

    async def listed(self, kind: str = "") -> tuple[list[str], list[ModelOffer]]:
        """The ids of the models that are listed, and what is offered of them."""
        named = provider_named(kind or self.server.kind, self.environ, self.settings)
        listed = await current_list(named, self.environ, self.settings)
        assert listed is not None
        return [each.id for each in listed.models], offers_of(named, listed, self.environ)


def provider_named(kind: str, environ: Mapping[str, str], settings: Settings) -> NamedProvider:
    named = named_provider(kind, environ, settings)
    assert named is not None
    return named


def _parts(target: str) -> tuple[str, dict[str, list[str]]]:
    path, _, query = target.partition("?")
    return path, parse_qs(query)


@asynccontextmanager
async def place(
    kind: str, home: Path, monkeypatch: pytest.MonkeyPatch, environ: Mapping[str, str], **own: str
) -> AsyncIterator[Place]:
    async with CloudServer(kind).running(monkeypatch, environ) as server:
        yield Place(server, home, environ, **own)


async def test_bedrock_lists_what_can_be_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    botocore_session = pytest.importorskip("botocore.session")
    async with place("bedrock", tmp_path, monkeypatch, AWS) as here:
        listed, offered = await here.listed()
        assert listed == ["anthropic.claude-3-haiku-20240307-v1:0", f"eu.{OPUS}", f"global.{OPUS}", PROFILE]
        offers = {each.name: each for each in offered}
        assert offers[f"bedrock/{PROFILE}"].window == 200_000 and offers[f"bedrock/{PROFILE}"].input_price == 5
        assert offers[f"bedrock/eu.{OPUS}"].input_price == 5
        ours = [_parts(each.target) for each in here.server.asked]
        client = botocore_session.Session().create_client("bedrock", REGION, endpoint_url=here.server.url)
        await asyncio.to_thread(client.list_foundation_models, byProvider="anthropic")
        found = []
        for kind in ("SYSTEM_DEFINED", "APPLICATION"):
            token: dict[str, str] = {}
            while True:
                asked = {"maxResults": 1000, "typeEquals": kind, **token}
                part = await asyncio.to_thread(client.list_inference_profiles, **asked)
                found += [each["inferenceProfileId"] for each in part["inferenceProfileSummaries"]]
                if not part.get("nextToken"):
                    break
                token = {"nextToken": part["nextToken"]}
        assert ours == [_parts(each.target) for each in here.server.asked[len(ours) :]]
        assert found == [f"eu.{OPUS}", f"global.{OPUS}", "eu.amazon.nova-pro-v1:0", "abc"]


async def test_a_model_of_bedrock_that_needs_a_profile_is_refused_with_the_profiles(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("botocore")
    async with place("bedrock", tmp_path, monkeypatch, {**AWS, "AWS_BEARER_TOKEN_BEDROCK": ACCESS_TOKEN}) as here:
        with pytest.raises(UsageError) as refused:
            await check_models([f"bedrock/{OPUS}"], here.environ, here.settings)
        assert f"bedrock/eu.{OPUS}" in refused.value.evidence
        unlisted = f"bedrock/arn:aws:bedrock:{REGION}:1:provisioned-model/x"
        assert await check_models([f"bedrock/global.{OPUS}", unlisted], here.environ, here.settings) == []
        here.server.refuses = (403, {"message": "not authorized to perform: bedrock:ListFoundationModels"})
        (tmp_path / ".cache" / "ccb" / "models" / "bedrock.json").unlink()
        assert await check_models([f"bedrock/{OPUS}"], here.environ, here.settings) == [], "no list judges no name"
        with pytest.raises(ProviderError, match="403"):
            await here.listed()


async def test_vertex_lists_the_versions_of_its_models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("google.auth")
    import google.auth
    from google.oauth2.credentials import Credentials

    monkeypatch.setattr(google.auth, "default", lambda scopes: (Credentials(token=ACCESS_TOKEN), "my-project"))
    async with place("vertex", tmp_path, monkeypatch, {"CLOUD_ML_REGION": "europe-west4"}) as here:
        listed, _ = await here.listed()
        assert listed == ["claude-opus-4-5@20251101", "claude-sonnet-5"]
        good = ["claude-opus-4-5@20251101", "claude-opus-4-5", "claude-sonnet-5", "claude-sonnet-5@default"]
        assert await check_models([f"vertex/{each}" for each in good], here.environ, here.settings) == []
        with pytest.raises(UsageError, match="has no model 'claude-opus-4-6'"):
            await check_models(["vertex/claude-opus-4-6"], here.environ, here.settings)


@pytest.mark.parametrize("kind", ["foundry", "azure"])
async def test_deployments_are_listed_for_a_project(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    token = {"keyHelper": f"echo {ACCESS_TOKEN}", "keyHeader": "authorization"}
    async with place(kind, tmp_path, monkeypatch, {}, **token) as here:
        here.server.kind = "foundry"
        named = provider_named(kind, here.environ, here.settings)
        assert named.list_call is None and "project" in named.why_no_list
        own = ProviderSettings(baseUrl=f"{here.server.url}/anthropic", project="p-1", **token)  # type: ignore[arg-type]
        here.settings = Settings(providers={kind: own})
        listed, offers = await here.listed(kind)
        assert listed == ["the-big-one"]
        assert offers[0].input_price == 5, "what is known is that of its model"
        assert {each.target.partition("?")[0] for each in here.server.asked} == {"/api/projects/p-1/deployments"}


def test_the_lists_of_bedrock_are_at_the_host_beside_the_one_of_calls(tmp_path: Path) -> None:
    environ = {"AWS_REGION": "us-gov-west-1", "HOME": str(tmp_path)}
    named = provider_named("bedrock", environ, Settings())
    assert named.endpoint(environ).host == "bedrock-runtime.us-gov-west-1.amazonaws.com"
    assert named.list_endpoint(environ).host == "bedrock.us-gov-west-1.amazonaws.com"
    named = provider_named("vertex", {}, Settings())
    assert str(named.list_endpoint({}).url("/v1beta1/x")) == "https://aiplatform.googleapis.com/v1beta1/x"
