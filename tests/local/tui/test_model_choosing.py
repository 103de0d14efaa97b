"""/model: the models that the session may use, their effort, the completion of names, and what the worker is told."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tests.support.providers.dialect_server import KEY, DialectServer
from tests.support.repl.pilot import Desk, desk

from ccb.local.config.settings import ModelSettings, ProviderSettings, Settings
from ccb.local.providers.known_models import OfferedModels
from ccb.local.slash_commands.session_api import LaptopSide

LISTED = {"data": [{"id": f"coder-{each}", "max_model_len": each * 1000} for each in (8, 32, 64, 128, 1_050)]}
PRICES = ModelSettings(inputPrice=0.5, outputPrice=2.0, efforts=["low", "high"])


@asynccontextmanager
async def choosing(home: Path, *, listed: bool = True) -> AsyncIterator[Desk]:
    """A REPL whose laptop knows one provider besides the gateway, which does not answer."""
    server = DialectServer("vllm")
    server.listed = LISTED if listed else None
    async with server.running():
        own = ProviderSettings(kind="vllm", baseUrl=server.url, keyVariable="LAB_KEY", models={"coder-64": PRICES})
        settings = Settings(providers={"lab": own}, modelAliases={"quick": "lab/coder-8"})
        environ = {"HOME": str(home), "LAB_KEY": KEY, "ANTHROPIC_API_KEY": "k", "ANTHROPIC_BASE_URL": "http://[::1]:1"}
        async with desk(laptop=LaptopSide(models=OfferedModels(environ, settings, []))) as at:
            yield at


async def test_a_model_and_its_effort_are_chosen_from_a_list_with_windows_and_prices(tmp_path: Path) -> None:
    async with choosing(tmp_path) as at:
        await at.give("/model", sees=("lab/coder-1050", "1.05M", "anthropic: no list of models"))
        assert any(line.startswith("│ › sonnet  claude-sonnet-4-5  now ") for line in at.lines)
        await at.sees("Effort  sonnet has no levels")
        line = next(line for line in at.lines if "lab/coder-64" in line)
        assert "64k" in line and "0.50 / 2.00" in line and "lab" in line
        await at.type("coder 64", sees=("1 of 9 models", "Effort   default   low › high"))
        await at.press("right", "left", sees="low   high", lacks="› high")
        await at.press("enter", sees="Model: lab/coder-64 · effort low, from the next model call on")
        taught, *chosen = at.session.controls
        assert chosen == [("set_model", {"model": "lab/coder-64"}), ("set_effort", {"effort": "low"})]
        assert taught[0] == "learn_models" and taught[1]["thinking"]["lab/coder-64"] == ["low", "high"]
        assert taught[1]["models"]["lab/coder-64"][0] == 64_000
        await at.give("/effort", then=lambda: any("coder-64  now " in line for line in at.lines))
        await at.press("left", "left", "left", sees="› default")
        await at.press("enter", sees="Model: lab/coder-64, from the next turn on")
        assert at.session.controls[-1] == ("set_effort", {"effort": None}) and len(at.session.controls) == 4
        await at.give("/model", sees="Enter takes both")
        await at.press("enter", loses="Enter takes both")
        assert len(at.session.controls) == 4, "nothing was changed"


async def test_names_and_short_names_are_completed_and_an_unknown_model_is_refused_with_near_ones(
    tmp_path: Path,
) -> None:
    async with choosing(tmp_path) as at:
        await at.give("/model", sees="lab/coder-1050")
        await at.press("escape", *"/model lab/coder-12", sees="lab/coder-128")
        await at.press("tab", "enter", sees="Model: lab/coder-128 · without levels of effort, from the next")
        await at.give("/model lab/coder-9000")
        await at.sees("vLLM has no model 'coder-9000': the model stays.", "Near names: lab/coder-")
        await at.give("/model quick", sees="Model: lab/coder-8 · without levels of effort, from the next")
        assert [what[1]["model"] for what in at.session.controls if what[0] == "set_model"] == [
            *("lab/coder-128", "lab/coder-8")
        ]


async def test_without_any_list_there_are_the_names_that_are_known_and_any_that_is_typed(tmp_path: Path) -> None:
    async with choosing(tmp_path, listed=False) as at:
        await at.give("/model", sees=("lab: no list of models", "type to search, or the id of another model"))
        shown = ["opus    claude-opus-4-5 ", "haiku   claude-haiku-4-5 ", "quick   lab/coder-8 ", "lab/coder-64 "]
        assert all(each in at.screen for each in shown)
        await at.type("zzz", sees="No model fits what you typed.")
        await at.press("backspace", "backspace", "backspace", *"lab/any", sees="› lab/any  as it is typed")
        await at.press("enter")
        await at.sees("Model: lab/any · without levels of effort, from the next model call on, where the provider")
