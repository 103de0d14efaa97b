"""Whole sessions with a model of another provider: real processes, and a scripted server of OpenAI's."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest
from tests.support.person.laptop import Done, Here
from tests.support.providers.dialect_server import KEY, DialectServer, Raw, sse
from tests.support.providers.turns import Said

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
PRICED = {"gpt-5": {"inputPrice": 1000, "outputPrice": 10000, "cacheReadPrice": 100}}


@pytest.fixture(autouse=True)
def files(project: Path) -> None:
    (project / "dot.png").write_bytes(PNG)
    (project / "notes.txt").write_text("remember the milk\n")


def configure(here: Here, server: DialectServer, dialect: str) -> None:
    own = {"baseUrl": server.url, "keyVariable": "MY_OPENAI_KEY", "dialect": dialect, "models": PRICED}
    here.laptop.settings(providers={"openai": own})


async def run(here: Here, prompt: str, *words: str, model: str = "openai/gpt-5") -> Done:
    argv = ["-p", prompt, "--model", model, "--output-format", "json", *words]
    return await here.run(*argv, MY_OPENAI_KEY=KEY)


@pytest.mark.parametrize("dialect", ["responses", "chat"])
@pytest.mark.quick_rows(1)
async def test_a_session_with_tools_images_thinking_resume_and_its_costs(here: Here, dialect: str) -> None:
    reads = tuple(("Read", {"file_path": str(here.project / name)}) for name in ("dot.png", "notes.txt"))
    server = DialectServer("responses" if dialect == "responses" else "openai")
    server.add(Said("I look.", thinking="two files", calls=reads), Said("A dot and milk.", thinking="easy"))
    async with server.running():
        configure(here, server, dialect)
        done = await run(here, "what is there?")
        assert (done.code, done.stderr, server.refused) == (0, "", [])
        (result,) = done.results
        assert result["result"] == "A dot and milk."
        # two calls of 60 fresh, 40 cached and 20 output tokens each
        cost = 2 * (60 * 1000 + 40 * 100 + 20 * 10000) / 1e6
        assert result["total_cost_usd"] == pytest.approx(cost)
        assert result["modelUsage"]["openai/gpt-5"]["cacheReadInputTokens"] == 80
        sent = json.dumps(server.requests[1])
        assert "remember the milk" in sent and "data:image/png;base64," in sent

        server.add(Said("Still milk.", thinking="again"))
        again = ["-p", "and now?", "--resume", result["session_id"], "--output-format", "json"]
        done = await here.run(*again, MY_OPENAI_KEY=KEY)
        assert (done.code, done.results[0]["result"], server.refused) == (0, "Still milk.", [])
        if dialect == "responses":
            kinds = [item["type"] for item in server.requests[2]["input"]]
            assert kinds.count("reasoning") == 2 and kinds[-1] == "message"

        used = await here.laptop.run(["usage", "--by", "model", "--json"])
        row = json.loads(used.stdout.splitlines()[0])
        assert row["calls"] == 3 and row["usd"] == pytest.approx(1.5 * cost)

        server.add(Said("", calls=(("Bash", {"command": "true"}),)), Said("never"))
        spent = await run(here, "spend", "--max-budget-usd", "0.1")
        assert spent.code == 4 and len(server.replies) == 1
    assert here.model.requests == []
    kept = [path for path in here.laptop.home.rglob("*") if path.is_file() and path.stat().st_size < 1e7]
    assert not [path for path in kept if KEY.encode() in path.read_bytes()]


async def test_what_a_server_does_not_tell_is_one_estimate_everywhere(here: Here) -> None:
    """The result, the ledger, /context and a budget."""
    text = {"index": 0, "delta": {"content": "word " * 400}, "finish_reason": "stop"}
    server = DialectServer("openai", *[Raw(sse({"id": "c", "choices": [text]}))] * 2)
    async with server.running():
        configure(here, server, "chat")
        done = await run(here, "go")
        (result,) = done.results
        used = result["modelUsage"]["openai/gpt-5"]
        assert (used["outputTokens"], used["estimated"], result["usage"]["estimated"]) == (500, True, True)
        assert used["inputTokens"] > 1_000 and result["total_cost_usd"] > 1
        shown = await here.laptop.run(["usage", "--by", "model", "--json"])
        row = json.loads(shown.stdout.splitlines()[0])
        assert (row["input_tokens"], row["output_tokens"]) == (used["inputTokens"], 500)
        assert row["usd"] == pytest.approx(result["total_cost_usd"]) and row["estimated"] == 1
        context = await run(here, "/context", "--resume", result["session_id"])
        assert f"about {(used['inputTokens'] + 500) / 1000:.1f}k of" in context.results[0]["result"]
        spent = await run(here, "go", "--max-budget-usd", "0.5")
        assert spent.code == 4, spent.stderr


async def test_what_cannot_be_is_said_at_the_start(here: Here) -> None:
    server = DialectServer("responses", Said("ok"))
    async with server.running():
        configure(here, server, "responses")
        missing = await here.run("-p", "hi", "--model", "openai/gpt-5")
        assert missing.code != 0 and "MY_OPENAI_KEY is not set" in missing.stderr
        told = await here.run("-p", "hi", "--model", "openai/some-model-9", MY_OPENAI_KEY=KEY)
        assert told.code == 0 and "window of openai/some-model-9 is not known" in told.stderr
