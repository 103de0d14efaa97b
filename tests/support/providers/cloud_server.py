"""Scripted servers of Bedrock, Vertex and Foundry. Bedrock checks every signature, and streams in AWS's frames."""

from __future__ import annotations

import base64
import json
import struct
import zlib
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from urllib.parse import parse_qs

import pytest
from aiohttp import web
from tests.support.model.model_script import Json

from ..network.http_server import serving

ACCESS_KEY, SECRET_KEY, SESSION_TOKEN = "AKIAEXAMPLE", "secret-of-the-cloud", "token-of-the-session"
REGION = "eu-central-1"
AWS = {"AWS_ACCESS_KEY_ID": ACCESS_KEY, "AWS_SECRET_ACCESS_KEY": SECRET_KEY, "AWS_REGION": REGION}
_VARIABLES = (*AWS, "AWS_SESSION_TOKEN", "AWS_EC2_METADATA_DISABLED", "AWS_PROFILE", "AWS_BEARER_TOKEN_BEDROCK")
ACCESS_TOKEN = "ya29.token-of-the-cloud"
_MESSAGE: Json = {"id": "msg_1", "type": "message", "role": "assistant", "model": "claude-opus-4-5", "content": []}
_UNSTOPPED: Json = {"stop_reason": None, "stop_sequence": None}
_TEXT = {"type": "text_delta", "text": "Grüße"}
_ENDED = {"stop_reason": "end_turn", "stop_sequence": None}
ANSWER: tuple[Json, ...] = (
    {"type": "message_start", "message": {**_MESSAGE, **_UNSTOPPED, "usage": {"input_tokens": 9, "output_tokens": 0}}},
    {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
    {"type": "content_block_delta", "index": 0, "delta": _TEXT},
    {"type": "content_block_stop", "index": 0},
    {"type": "message_delta", "delta": _ENDED, "usage": {"output_tokens": 3}},
    {"type": "message_stop"},
)
"""The events of a whole answer."""


@dataclass(frozen=True)
class Asked:
    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes


def frame(headers: Mapping[str, str], payload: bytes) -> bytes:
    encoded = b"".join(
        struct.pack("B", len(name)) + name.encode() + b"\x07" + struct.pack(">H", len(value)) + value.encode()
        for name, value in headers.items()
    )
    prelude = struct.pack(">II", 16 + len(encoded) + len(payload), len(encoded))
    message = prelude + struct.pack(">I", zlib.crc32(prelude)) + encoded + payload
    return message + struct.pack(">I", zlib.crc32(message))


def chunk(event: object) -> bytes:
    inner = base64.b64encode(json.dumps(event, ensure_ascii=False).encode()).decode()
    headers = {":event-type": "chunk", ":content-type": "application/json", ":message-type": "event"}
    return frame(headers, json.dumps({"bytes": inner, "p": "abcd"}).encode())


def exception(name: str, message: str) -> bytes:
    headers = {":exception-type": name, ":content-type": "application/json", ":message-type": "exception"}
    return frame(headers, json.dumps({"message": message}).encode())


def _foundation_model(name: str, how: str, makes: str = "TEXT") -> Json:
    return {
        "modelArn": f"arn:aws:bedrock:{REGION}::foundation-model/{name}",
        "modelId": name,
        "modelName": name.title(),
        "providerName": "Anthropic",
        "inputModalities": ["TEXT", "IMAGE"],
        "outputModalities": [makes],
        "inferenceTypesSupported": [how],
        "modelLifecycle": {"status": "ACTIVE"},
    }


def _profile(name: str, model: str, kind: str) -> Json:
    arn = f"arn:aws:bedrock:{REGION}:1:{'application-' if kind == 'APPLICATION' else ''}inference-profile/{name}"
    behind = [{"modelArn": f"arn:aws:bedrock:{region}::foundation-model/{model}"} for region in (REGION, "eu-west-1")]
    return {
        "inferenceProfileName": f"Profile {name}",
        "inferenceProfileArn": arn,
        "inferenceProfileId": name,
        "models": behind,
        "status": "ACTIVE",
        "type": kind,
    }


def _publisher_model(name: str, version: str) -> Json:
    return {"name": f"publishers/anthropic/models/{name}", "versionId": version, "launchStage": "GA"}


def _deployment(name: str, model: str, chats: str = "true") -> Json:
    return {
        "type": "ModelDeployment",
        "name": name,
        "modelName": model,
        "modelVersion": "1",
        "modelPublisher": "Anthropic",
        "capabilities": {"chat_completion": chats},
    }


_OPUS = "anthropic.claude-opus-4-5-20251101-v1:0"
_PARTS: Mapping[str, Sequence[Json]] = {
    "/foundation-models": [
        {
            "modelSummaries": [
                _foundation_model("anthropic.claude-3-haiku-20240307-v1:0", "ON_DEMAND"),
                _foundation_model(_OPUS, "INFERENCE_PROFILE"),
                _foundation_model("anthropic.claude-pictures-v1:0", "ON_DEMAND", "IMAGE"),
            ]
        }
    ],
    "/inference-profiles SYSTEM_DEFINED": [
        {"inferenceProfileSummaries": [_profile(f"eu.{_OPUS}", _OPUS, "SYSTEM_DEFINED")], "nextToken": "to+2/"},
        {
            "inferenceProfileSummaries": [
                _profile(f"global.{_OPUS}", _OPUS, "SYSTEM_DEFINED"),
                _profile("eu.amazon.nova-pro-v1:0", "amazon.nova-pro-v1:0", "SYSTEM_DEFINED"),
            ]
        },
    ],
    "/inference-profiles APPLICATION": [{"inferenceProfileSummaries": [_profile("abc", _OPUS, "APPLICATION")]}],
    "/v1beta1/publishers/anthropic/models": [
        {"publisherModels": [_publisher_model("claude-opus-4-5", "20251101")], "nextPageToken": "to+2/"},
        {"publisherModels": [_publisher_model("claude-sonnet-5", "default")]},
    ],
    "/api/projects/p-1/deployments": [
        {
            "value": [_deployment("the-big-one", "claude-opus-4-5")],
            "nextLink": "https://elsewhere.example/x?skip=1&api-version=v1",
        },
        {"value": [_deployment("vectors", "embed-1", "false")]},
    ],
}


def list_part(request: web.Request) -> Json:
    """A part of a list of models; a token or a `skip` asks for the second one."""
    asked = request.query
    parts = _PARTS[" ".join(filter(None, (request.path, asked.get("type"))))]
    token = asked.get("nextToken") or asked.get("pageToken")
    assert token in (None, "to+2/")
    return parts[1 if token or asked.get("skip") else 0]


class CloudServer:
    """`kind` is bedrock, vertex or foundry. `asked` are its requests, `frames` what Bedrock streams instead of ANSWER,
    `refuses` a status and a body that it answers instead, `tokens` how often an access token was fetched."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.url = ""
        self.asked: list[Asked] = []
        self.frames = b"".join(chunk(each) for each in ANSWER)
        self.refuses: tuple[int, Json] | None = None
        self.tokens = 0

    @asynccontextmanager
    async def running(self, monkeypatch: pytest.MonkeyPatch, environ: Mapping[str, str]) -> AsyncIterator[CloudServer]:
        """Serve. The libraries of a cloud read the variables of this process: they are those of `environ`."""
        for name in _VARIABLES:
            monkeypatch.delenv(name, raising=False)
        for name, value in environ.items():
            monkeypatch.setenv(name, value)
        async with serving(self._handle) as self.url:
            yield self

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        asked = Asked(request.method, request.raw_path, dict(request.headers), await request.read())
        if request.path == "/token":
            self.tokens += 1
            assert parse_qs(asked.body.decode())["grant_type"]
            return web.json_response({"access_token": ACCESS_TOKEN, "expires_in": 3600, "token_type": "Bearer"})
        self.asked.append(asked)
        if self.refuses is not None:
            status, body = self.refuses
            return web.json_response(body, status=status)
        named = {name.lower(): value for name, value in asked.headers.items()}
        if not self._admits(asked, named):
            return web.json_response({"message": "The request signature does not match."}, status=403)
        if asked.method == "GET":
            return web.json_response(list_part(request))
        if "count-tokens" in asked.target:
            return web.json_response({"input_tokens": 77})
        if self.kind == "bedrock" and asked.target.endswith("/invoke-with-response-stream"):
            return await self._stream(request, self.frames, "application/vnd.amazon.eventstream")
        if self.kind != "bedrock" and json.loads(asked.body).get("stream"):
            text = "".join(f"event: {each['type']}\ndata: {json.dumps(each)}\n\n" for each in ANSWER)
            return await self._stream(request, text.encode(), "text/event-stream")
        start = ANSWER[0]["message"]
        whole = {**start, "content": [{"type": "text", "text": "Grüße"}], "stop_reason": "end_turn"}
        return web.json_response({**whole, "usage": {"input_tokens": 9, "output_tokens": 3}})

    async def _stream(self, request: web.Request, data: bytes, kind: str) -> web.StreamResponse:
        response = web.StreamResponse(headers={"content-type": kind, "x-amzn-requestid": "req-1"})
        await response.prepare(request)
        for start in range(0, len(data), 97):
            await response.write(data[start : start + 97])
        return response

    def _admits(self, asked: Asked, headers: Mapping[str, str]) -> bool:
        if asked.method == "GET" and self.kind in ("foundry", "vertex"):  # no key may list; a token names who pays
            payer = self.kind == "foundry" or headers.get("x-goog-user-project") == "my-project"
            return payer and headers.get("authorization") == f"Bearer {ACCESS_TOKEN}"
        if self.kind == "foundry":
            return headers.get("x-api-key") == ACCESS_TOKEN
        if self.kind == "vertex" or headers["authorization"].startswith("Bearer"):
            return headers["authorization"] == f"Bearer {ACCESS_TOKEN}"
        return signature_of(asked.method, self.url + asked.target, headers, asked.body) in headers["authorization"]


def signature_of(method: str, url: str, headers: Mapping[str, str], body: bytes) -> str:
    """The signature that a request must have, made again of what arrived."""
    from botocore.auth import SigV4Auth
    from botocore.awsrequest import AWSRequest
    from botocore.credentials import Credentials

    named = headers["authorization"].partition("SignedHeaders=")[2].partition(",")[0].split(";")
    request = AWSRequest(method=method, url=url, headers={name: headers[name] for name in named}, data=body)
    request.context["timestamp"] = headers["x-amz-date"]
    auth = SigV4Auth(Credentials(ACCESS_KEY, SECRET_KEY, headers.get("x-amz-security-token")), "bedrock", REGION)
    canonical = auth.canonical_request(request)
    return str(auth.signature(auth.string_to_sign(request, canonical), request))
