"""ccb as an agent of Harbor: `harbor run --path FOLDER --agent ccb_harbor:Ccb --model NAME`, with this folder in
PYTHONPATH. ccb runs beside Harbor and reaches the container by `docker exec -i`, so no credential is ever inside."""

from __future__ import annotations

import asyncio
import contextlib
import json
import shlex
import subprocess
from collections.abc import Mapping
from typing import Any

from harbor.agents.base import BaseAgent
from harbor.environments.base import BaseEnvironment
from harbor.models.agent.context import AgentContext, ModelUsage

_LIMITS = (0, 3, 4)
"""Exit codes of a run in which the agent worked: all is well, a call was denied, a limit was reached."""


class Ccb(BaseAgent):  # type: ignore[misc] # Harbor is not installed where types are checked
    """Options (`--agent-kwarg NAME=VALUE`): `options` for ccb, `command` that runs ccb, `engine` of the containers."""

    def __init__(
        self,
        *args: Any,
        options: str = "--dangerously-skip-permissions",
        command: str = "ccb",
        engine: str = "docker",
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self._options = shlex.split(options)
        self._command = shlex.split(command)
        self._engine = engine
        self._transport = ""
        self._directory = ""

    @staticmethod
    def name() -> str:
        return "ccb"

    def version(self) -> str | None:
        done = subprocess.run([*self._command, "--version"], capture_output=True, text=True, check=False)
        return done.stdout.strip() or None

    async def setup(self, environment: BaseEnvironment) -> None:
        """Find the container, whose host name is its id, and the working directory. Nothing is installed."""
        found = await environment.exec("cat /etc/hostname && pwd")
        if found.return_code != 0 or len((found.stdout or "").split()) != 2:
            raise RuntimeError(f"ccb needs a container that {self._engine} runs: {found.stdout} {found.stderr}")
        container, self._directory = found.stdout.split()
        user = environment.default_user
        words = [self._engine, "exec", "-i", "-e", "IS_SANDBOX=1"]  # root may run all without asking: it is thrown away
        words += [container] if user is None else ["-u", str(user), container]
        self._transport = shlex.join(words)

    async def run(self, instruction: str, environment: BaseEnvironment, context: AgentContext) -> None:
        """Run one prompt. Raises RuntimeError if the agent could not work."""
        model = ["--model", self.model_name.removeprefix("anthropic/")] if self.model_name else []
        reach = ["ssh", f"container:{self._directory}", "--transport", self._transport]
        stream = ["-p", "--output-format", "stream-json", "--verbose"]
        log, errors = self.logs_dir / "ccb.jsonl", self.logs_dir / "ccb.stderr"
        with log.open("wb") as stdout, errors.open("wb") as stderr:
            process = await asyncio.create_subprocess_exec(
                *self._command,
                *reach,
                *stream,
                *model,
                *self._options,
                stdin=asyncio.subprocess.PIPE,
                stdout=stdout,
                stderr=stderr,
            )
            try:
                await process.communicate(instruction.encode())
            finally:  # also when Harbor's time limit cancels it: the last line is then the result of what was done
                with contextlib.suppress(ProcessLookupError):
                    process.terminate()
                await process.wait()
                with contextlib.suppress(ValueError, IndexError):  # it may have been killed before its last line
                    _fill(context, json.loads(log.read_text(encoding="utf-8").splitlines()[-1]))
        if process.returncode not in _LIMITS:
            said = errors.read_text(encoding="utf-8", errors="replace").strip()
            raise RuntimeError(f"ccb ended with code {process.returncode}: {said}")


def _fill(context: AgentContext, result: Mapping[str, Any]) -> None:
    """Tell Harbor what a run has used. Its input tokens count those of the cache, too."""
    usage = {
        model: ModelUsage(
            n_input_tokens=sums["inputTokens"] + sums["cacheReadInputTokens"] + sums["cacheCreationInputTokens"],
            n_cache_tokens=sums["cacheReadInputTokens"],
            n_output_tokens=sums["outputTokens"],
            cost_usd=sums["costUSD"],
        )
        for model, sums in result.get("modelUsage", {}).items()
    }
    context.model_usage = usage
    context.n_input_tokens = sum(each.n_input_tokens for each in usage.values())
    context.n_cache_tokens = sum(each.n_cache_tokens for each in usage.values())
    context.n_output_tokens = sum(each.n_output_tokens for each in usage.values())
    context.cost_usd = result.get("total_cost_usd")
    names = ("session_id", "subtype", "num_turns", "duration_ms", "stop_reason")
    context.metadata = {name: result.get(name) for name in names}
