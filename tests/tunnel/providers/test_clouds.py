"""Claude models in clouds: what is asked is what the clients of the `anthropic` SDK ask, byte for byte."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.support.providers.adapters import Told, told_by
from tests.support.providers.cloud_server import (
    ACCESS_KEY,
    ACCESS_TOKEN,
    ANSWER,
    AWS,
    REGION,
    SECRET_KEY,
    SESSION_TOKEN,
    CloudServer,
    chunk,
    exception,
    frame,
)

from ccb.local.config.settings import ProviderSettings, Settings
from ccb.local.providers.named_provider import named_provider
from ccb.local.providers.session_provider import session_provider
from ccb.tunnel.errors import ConfigError, CredentialError
from ccb.tunnel.providers.cloud_provider import BEDROCK_VERSION, VERTEX_VERSION
from ccb.tunnel.providers.provider import ProviderError
from ccb.tunnel.proxy.auth_proxy import AuthProxy
from ccb.tunnel.wire.frames import Json

ARN = "arn:aws:bedrock:eu-central-1:1:application-inference-profile/abc"
KEYS = {**AWS, "AWS_SESSION_TOKEN": SESSION_TOKEN, "AWS_EC2_METADATA_DISABLED": "true"}
SAID = "".join(f"event: {each['type']}\ndata: {json.dumps(each, ensure_ascii=False)}\n\n" for each in ANSWER)


def asked_of(model: str, *, stream: bool = False) -> Json:
    """A request with its members in the order in which the SDK sends them."""
    return {
        "max_tokens": 99,
        "messages": [{"role": "user", "content": "Grüße"}],
        "model": model,
        **({"stream": True} if stream else {}),
        "system": [{"type": "text", "text": "be brief", "cache_control": {"type": "ephemeral"}}],
    }


@asynccontextmanager
async def cloud(
    kind: str, monkeypatch: pytest.MonkeyPatch, environ: dict[str, str], **own: str
) -> AsyncIterator[tuple[CloudServer, AuthProxy]]:
    """A proxy in front of a scripted cloud."""
    monkeypatch.delenv("GOOGLE_APPLICATION_CREDENTIALS", raising=False)
    async with CloudServer(kind).running(monkeypatch, environ) as server:
        settings = Settings(providers={kind: ProviderSettings(baseUrl=server.url, **own)})  # type: ignore[arg-type]
        named = {"ANTHROPIC_API_KEY": "unused", **environ}
        async with AuthProxy(session_provider(named, settings, f"{kind}/m-1")) as proxy:
            yield server, proxy


async def ask(proxy: AuthProxy, body: Json, path: str = "/v1/messages", betas: str = "") -> Told:
    return await told_by(proxy, body, path=path, headers={"anthropic-beta": betas} if betas else {})


def compared(ours: object, theirs: object) -> None:
    """Both requests are the same, but for what a client says of itself and the time of a signature."""
    for each in ("method", "target", "body"):
        assert getattr(ours, each) == getattr(theirs, each)


@pytest.mark.quick_rows(1)
@pytest.mark.slow
@pytest.mark.parametrize("model", ["eu.anthropic.claude-opus-4-5-20251101-v1:0", ARN])
async def test_bedrock_gets_what_the_sdk_would_send_and_sign(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("boto3")
    import anthropic

    async with cloud("bedrock", monkeypatch, KEYS) as (server, proxy):
        keys = {"aws_access_key": ACCESS_KEY, "aws_secret_key": SECRET_KEY, "aws_session_token": SESSION_TOKEN}
        client = anthropic.AsyncAnthropicBedrock(**keys, aws_region=REGION, base_url=server.url, max_retries=0)
        for stream in (True, False):
            told = await ask(proxy, asked_of(f"bedrock/{model}", stream=stream), betas="a-1,b-2")
            assert told.status == 200
            more: Any = {"anthropic_version": BEDROCK_VERSION}
            heard: Any = await client.messages.create(
                **asked_of(model, stream=stream), extra_headers={"anthropic-beta": "a-1,b-2"}, extra_body=more
            )
            if stream:
                events = [event async for event in heard]
                assert told.message["content"] == [{"type": "text", "text": "Grüße"}]
                assert [each["type"] for each in told.events] == [each.type for each in events]
                assert told.body == SAID.encode() and told.headers["content-type"].startswith("text/event-stream")
            else:
                assert json.loads(told.body)["content"] == [{"type": "text", "text": "Grüße"}]
            compared(*server.asked[-2:])
        assert json.loads(server.asked[0].body)["anthropic_beta"] == ["a-1", "b-2"]
        await client.close()


@pytest.mark.slow
async def test_vertex_gets_what_the_sdk_would_send(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("google.auth")
    import anthropic

    environ = {"CLOUD_ML_REGION": "europe-west4", "ANTHROPIC_VERTEX_PROJECT_ID": "my-project"}
    async with cloud("vertex", monkeypatch, environ) as (server, proxy):
        monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(service_account(tmp_path, server.url)))
        client = anthropic.AsyncAnthropicVertex(
            region="europe-west4", project_id="my-project", access_token=ACCESS_TOKEN, base_url=server.url
        )
        model, more = "claude-opus-4@20250514", {"anthropic_version": VERTEX_VERSION}
        for stream in (True, False):
            told = await ask(proxy, asked_of(f"vertex/{model}", stream=stream))
            heard: Any = await client.messages.create(**asked_of(model, stream=stream), extra_body=more)
            if stream:
                assert [each["type"] for each in told.events] == [event.type async for event in heard]
            compared(*server.asked[-2:])
        asked = {"messages": [{"role": "user", "content": "hi"}], "model": "vertex/claude-opus-4@20250514"}
        told = await ask(proxy, asked, "/v1/messages/count_tokens")
        counted = await client.messages.count_tokens(**{**asked, "model": model}, extra_body=more)
        assert json.loads(told.body)["input_tokens"] == counted.input_tokens == 77
        compared(*server.asked[-2:])
        assert server.tokens == 1, "a token is fetched once, and again when it has expired"
        await client.close()


def service_account(directory: Path, url: str) -> Path:
    """The file of a service account whose tokens come from the scripted server."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import rsa

    key = rsa.generate_private_key(65537, 2048).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    path = directory / "account.json"
    account = {"type": "service_account", "client_email": "a@b", "private_key": key.decode(), "private_key_id": "1"}
    account |= {"token_uri": f"{url}/token", "project_id": "project-of-the-file"}
    path.write_text(json.dumps(account))
    return path


async def test_the_project_of_vertex_may_come_with_credentials(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("google.auth")
    async with cloud("vertex", monkeypatch, {}) as (server, proxy):
        monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(service_account(tmp_path, server.url)))
        told = await ask(proxy, asked_of("vertex/claude-opus-4-5", stream=True))
        assert told.status == 200
        assert server.asked[0].target.startswith("/projects/project-of-the-file/locations/global/publishers/anthropic/")


async def test_foundry_is_the_messages_api_with_its_own_key(monkeypatch: pytest.MonkeyPatch) -> None:
    async with cloud("foundry", monkeypatch, {"ANTHROPIC_FOUNDRY_API_KEY": ACCESS_TOKEN}) as (server, proxy):
        told = await ask(proxy, asked_of("foundry/my-deployment", stream=True))
        assert told.status == 200 and told.message["content"] == [{"type": "text", "text": "Grüße"}]
        assert server.asked[0].target == "/v1/messages" and b'"model":"my-deployment"' in server.asked[0].body


@pytest.mark.parametrize(("header", "sent"), [(None, "both"), ("authorization", "bearer"), ("x-api-key", "key")])
async def test_an_entra_token_is_in_its_header(header: str | None, sent: str, monkeypatch: pytest.MonkeyPatch) -> None:
    own = {"keyHelper": f"echo {ACCESS_TOKEN}", **({"keyHeader": header} if header else {})}
    async with cloud("foundry", monkeypatch, {"PATH": os.environ["PATH"]}, **own) as (server, proxy):
        await ask(proxy, asked_of("foundry/d", stream=True))
    named = {name.lower(): value for name, value in server.asked[0].headers.items()}
    assert (named.get("authorization") == f"Bearer {ACCESS_TOKEN}") == (sent in ("both", "bearer"))
    assert (named.get("x-api-key") == ACCESS_TOKEN) == (sent in ("both", "key"))


async def test_a_bearer_key_of_bedrock_is_sent_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("botocore")
    environ = {"AWS_BEARER_TOKEN_BEDROCK": ACCESS_TOKEN, "AWS_REGION": REGION}
    async with cloud("bedrock", monkeypatch, environ) as (_, proxy):
        told = await ask(proxy, asked_of("bedrock/anthropic.claude-3-v1:0", stream=True))
        assert told.status == 200 and ACCESS_TOKEN.encode() not in told.body
        told = await ask(proxy, asked_of("bedrock/anthropic.claude-3-v1:0"), "/v1/messages/count_tokens")
        assert json.loads(told.body)["input_tokens"] > 0, "Bedrock does not count, so it is estimated"


async def test_errors_of_a_cloud_are_those_of_the_messages_api_and_odd_frames_no_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("botocore")
    async with cloud("bedrock", monkeypatch, KEYS) as (server, proxy):
        for name, kind in {"throttlingException": "rate_limit_error", "somethingNewException": "api_error"}.items():
            server.frames = chunk(ANSWER[0]) + exception(name, "slow down")
            told = await ask(proxy, asked_of("bedrock/m", stream=True))
            assert (told.events[0]["type"], told.error) == ("message_start", {"type": kind, "message": "slow down"})
        overloaded = {"type": "error", "error": {"type": "overloaded_error", "message": "x"}}
        for given, expected in (
            ((400, {"message": "Input is too long for requested model."}), "invalid_request_error"),
            ((429, {"message": "Too many tokens"}), "rate_limit_error"),
            ((403, {"message": f"key {SECRET_KEY} is expired"}), "permission_error"),
            ((529, overloaded), "overloaded_error"),
        ):
            server.refuses = given
            told = await ask(proxy, asked_of("bedrock/m", stream=True))
            assert (told.status, told.error["type"]) == (given[0], expected)
            assert SECRET_KEY.encode() not in told.body
        server.refuses = None
        for model in ("bedrock/", "bedrock/.."):
            told = await ask(proxy, asked_of(model, stream=True))
            assert (told.status, told.error["type"]) == (400, "invalid_request_error")
        server.frames = chunk(ANSWER[0]) + frame({":exception-type": "x", ":message-type": "exception"}, b"[1]")
        with pytest.raises(ProviderError):
            await ask(proxy, asked_of("bedrock/m", stream=True))


@pytest.mark.parametrize("cut", [1, 40])
async def test_a_stream_that_is_cut_or_damaged_is_no_answer(cut: int, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("botocore")
    async with cloud("bedrock", monkeypatch, KEYS) as (server, proxy):
        whole = server.frames
        for frames in (whole[:-cut], whole[:200] + bytes([whole[200] ^ 1]) + whole[201:]):
            server.frames = frames
            with pytest.raises(ProviderError):
                await ask(proxy, asked_of("bedrock/m", stream=True))


async def test_without_credentials_it_is_told_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("botocore")
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "none"))
    async with cloud("bedrock", monkeypatch, {"AWS_REGION": REGION, "AWS_EC2_METADATA_DISABLED": "true"}) as (_, proxy):
        told = await ask(proxy, asked_of("bedrock/m", stream=True))
        assert told.status == 401 and b"There are no AWS credentials" in told.body and b"aws sso login" in told.body
    with pytest.raises(ConfigError, match="region of Bedrock is not known"):
        session_provider({"ANTHROPIC_API_KEY": "k"}, Settings(), "bedrock/m-1")
    with pytest.raises(ConfigError, match="AWS_REGION is no name"):
        session_provider({"ANTHROPIC_API_KEY": "k", "AWS_REGION": "x/../y"}, Settings(), "bedrock/m-1")


async def test_without_the_extra_its_name_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "botocore", None)
    monkeypatch.setattr("ccb.tunnel.providers.cloud_provider.find_spec", lambda name: None)
    for name in ("bedrock", "vertex"):
        with pytest.raises(ConfigError, match=f"the provider {name} needs") as caught:
            session_provider({"ANTHROPIC_API_KEY": "k", "AWS_REGION": REGION}, Settings(), f"{name}/m-1")
        assert f"ccb[{name}]" in caught.value.do


@pytest.mark.parametrize(
    ("environ", "base"),
    [
        ({}, "https://aiplatform.googleapis.com/v1"),
        ({"CLOUD_ML_REGION": "us"}, "https://aiplatform.us.rep.googleapis.com/v1"),
        ({"CLOUD_ML_REGION": "us-east5"}, "https://us-east5-aiplatform.googleapis.com/v1"),
        ({"ANTHROPIC_VERTEX_BASE_URL": "https://own.example/v1"}, "https://own.example/v1"),
    ],
)
def test_the_region_of_vertex_is_in_its_address(environ: dict[str, str], base: str) -> None:
    named = named_provider("vertex", environ, Settings())
    assert named is not None and str(named.endpoint(environ).base) == base


async def test_vertex_without_credentials_says_how_to_get_some(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    google = pytest.importorskip("google.auth")

    def nothing(**_: object) -> object:
        raise google.exceptions.DefaultCredentialsError("nothing found")

    monkeypatch.setattr(google, "default", nothing)
    provider = session_provider({"ANTHROPIC_API_KEY": "k"}, Settings(), "vertex/claude-opus-4-5")
    with pytest.raises(CredentialError, match="There are no Google credentials"):
        await provider.main.credential_name()


async def test_unusable_credentials_and_no_project_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    google = pytest.importorskip("google.auth")
    pytest.importorskip("botocore")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    own = Settings(providers={"bedrock": ProviderSettings(region=REGION, profile="nobody")})
    with pytest.raises(CredentialError, match="The AWS credentials cannot be used"):
        await session_provider({"ANTHROPIC_API_KEY": "k"}, own, "bedrock/m-1").main.credential_name()

    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(service_account(tmp_path, "http://127.0.0.1:9")))
    own = Settings(providers={"vertex": ProviderSettings(baseUrl="http://127.0.0.1:9", project="p")})
    async with AuthProxy(session_provider({"ANTHROPIC_API_KEY": "k"}, own, "vertex/m-1")) as proxy:
        told = await ask(proxy, asked_of("vertex/m-1"))
    assert told.status == 401 and b"The Google credentials cannot be used" in told.body

    monkeypatch.setattr(google, "default", lambda **_: (object(), None))
    with pytest.raises(ConfigError, match="the project of Vertex is not known"):
        await session_provider({"ANTHROPIC_API_KEY": "k"}, Settings(), "vertex/m-1").main.credential_name()
