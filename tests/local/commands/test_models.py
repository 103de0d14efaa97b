"""`ccb models`: what can be chosen, with what is known of it, also while a provider does not answer."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from tests.support.model.fake_model import API_KEY, FakeModel
from tests.support.providers.dialect_server import KEY, DialectServer
from tests.support.run_words import run_words

from ccb.local.command_line.exit_codes import ExitCode

LISTED = {
    "data": [
        {"id": "coder-large", "max_model_len": 77_000, "created": 2},
        {"id": "coder-small", "created": 3},
        {"id": "talker", "supported_parameters": ["stop"]},
    ]
}


def environ_of(home: Path, lab: str, gateway: str) -> dict[str, str]:
    models = {"coder-small": {"inputPrice": 0.5, "outputPrice": 1, "contextWindow": 9_000}}
    own = {"kind": "vllm", "baseUrl": lab, "keyVariable": "LAB_KEY", "models": models}
    settings = {"model": "lab/coder-large", "providers": {"lab": own}}
    path = home / ".config" / "ccb" / "settings.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(settings))
    keys = {"LAB_KEY": KEY, "ANTHROPIC_API_KEY": API_KEY, "ANTHROPIC_BASE_URL": gateway}
    return {"HOME": str(home), **keys}


async def test_models_are_listed_by_their_providers_and_kept_for_when_these_do_not_answer(
    tmp_path: Path, fake_model: FakeModel, capsys: pytest.CaptureFixture[str]
) -> None:
    server = DialectServer("vllm")
    server.listed = LISTED
    async with server.running():
        environ = environ_of(tmp_path, server.url, fake_model.url)
        assert await asyncio.to_thread(run_words, ["models"], environ) == ExitCode.OK
        shown = capsys.readouterr()
        assert shown.err == ""
        heading, gateway, small, large, _, dates = shown.out.splitlines()
        assert heading.split() == ["MODEL", "WINDOW", "OUTPUT", "$", "IN", "$", "OUT", "CAN"]
        assert gateway.split()[:2] == ["fake-model", "-"] and "lab: list of 20" in dates
        assert small.split()[:5] == ["lab/coder-small", "9,000", "-", "0.50", "1.00"]
        assert large.split()[:3] == ["*", "lab/coder-large", "77,000"], "the model of new sessions is marked"
    assert await asyncio.to_thread(run_words, ["models", "--provider", "lab", "--json"], environ) == ExitCode.OK
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [each["model"] for each in rows] == ["lab/coder-small", "lab/coder-large", "lab/talker"]
    assert (rows[0]["inputPrice"], rows[1]["contextWindow"], rows[2]["tools"]) == (0.5, 77_000, False)
    assert server.lists_asked == 1


async def test_a_provider_without_a_list_and_an_unknown_one_are_told(
    tmp_path: Path, fake_model: FakeModel, capsys: pytest.CaptureFixture[str]
) -> None:
    environ = {**environ_of(tmp_path, "http://127.0.0.1:9", fake_model.url), "ANTHROPIC_API_KEY": "wrong"}
    no_list = "anthropic: no list of models: it answered its list of models with HTTP 401"
    for name, code, said in (
        ("anthropic", ExitCode.UNREACHABLE, no_list),
        ("nobody", ExitCode.USAGE, "there is no provider 'nobody'"),
        ("foundry", ExitCode.USAGE, "behind ANTHROPIC_BASE_URL there is no provider foundry"),
    ):
        assert await asyncio.to_thread(run_words, ["models", "--provider", name], environ) == code
        assert said in capsys.readouterr().err
