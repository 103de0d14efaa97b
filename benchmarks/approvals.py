"""The keys of a "yes": twenty approvals in a row, in tmux over a real sshd, beside the reference CLI.

`ccb ssh` runs on the laptop, the reference CLI on the same host in `ssh -t`. Both get the same twenty commands from the
same scripted model. The person reads each card, then presses the fewest keys that allow the call. Beside it: how long
that takes until the command has run, and how many commands run because a prompt was half typed when their card came.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.ratio import PeerMissing, compare, single, versus
from benchmarks.startup import reference_cli
from tests.support.hosts.sshd import HostUser, Sshd, host_user, sshd
from tests.support.model.fake_model import API_KEY, FakeModel
from tests.support.model.model_script import Recorded, Script, uses
from tests.support.person.tmux_window import tmux_window

COUNT = 20
LIMIT = 1.2
PEER = "reference CLI"
TYPINGS = 3
BEFORE, AFTER = "then go on with", " 1"  # a prompt before and after a pause


@dataclass(frozen=True)
class Program:
    """A program in a window of tmux. Its screen says that it is `ready`, that a call `asks`, that yes is `marked`."""

    argv: Sequence[str]
    env: Mapping[str, str]
    ready: str
    asks: str
    marked: str


class Desk:
    """Where both programs run, each in windows of its own. The commands leave their marks in the home of the user."""

    def __init__(self, top: Path, user: HostUser, model: FakeModel) -> None:
        self._top = top
        self._done = user.home / "done"
        self._model = model
        self._asked = 0

    async def approve(self, program: Program) -> tuple[list[int], list[float]]:
        """Return for each command how many keys allowed it, and the time from its card until it had run."""
        prompt, commands = self._ask(COUNT)
        keys: list[int] = []
        took: list[float] = []
        async with tmux_window(program.argv, program.env, str(self._top)) as window:
            await window.shows(program.ready)
            await window.type(prompt)
            await window.press("Enter")
            for command in commands:
                await window.shows(command, program.asks)
                start = time.monotonic()
                keys.append(await window.says_yes(program.marked))
                await window.until(lambda _: self._ran == len(keys))
                took.append(time.monotonic() - start)
            await window.shows("All-is-done.")
        return keys, took

    async def type_on(self, program: Program) -> int:
        """Type a prompt, with a pause in which a card comes, and send it. Return how many commands have run."""
        prompt, [command] = self._ask(1, first_delay=1)
        async with tmux_window(program.argv, program.env, str(self._top)) as window:
            await window.shows(program.ready)
            await window.type(prompt)
            await window.press("Enter", BEFORE)
            await window.shows(command, program.asks)
            await window.press(*AFTER, "Enter")
            await asyncio.sleep(1)  # what has been allowed runs at once
        return self._ran

    def _ask(self, count: int, **timing: float) -> tuple[str, list[str]]:
        """Return a prompt, and the commands that the model wants for it."""
        self._done.unlink(missing_ok=True)
        self._asked += 1
        prompt = f"do task {self._asked}."

        def asks(request: Recorded) -> bool:  # and not for a title, nor for what another window has left behind
            return "Bash" in request.tool_names and prompt in str(request.messages[0])

        commands = [f"echo {number}. >> done" for number in range(count)]
        wants = [{**uses("Bash", command=each), "when": asks, **timing} for each in commands]
        self._model.script = Script([*wants, {"text": "All-is-done.", "times": 0}])
        return prompt, commands

    @property
    def _ran(self) -> int:
        return len(self._done.read_text().split()) if self._done.exists() else 0


def _ours(server: Sshd, user: HostUser, model: FakeModel, top: Path) -> Program:
    home = top / "laptop"
    home.mkdir()
    env = {
        "PATH": os.environ["PATH"], "HOME": str(home), "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        "ANTHROPIC_API_KEY": API_KEY, "ANTHROPIC_BASE_URL": model.url,
    }  # fmt: skip
    argv = [sys.executable, "-m", "ccb", "ssh", f"{user.name}@127.0.0.1:~", *server.client_options()]
    return Program(argv, env, "F1 or /help", "to answer", "Enter answers")


def _reference(server: Sshd, user: HostUser, model: FakeModel) -> Program:
    """Return the reference CLI on the host. A file in the home says that it has run there before."""
    trusted = {"hasTrustDialogAccepted": True, "hasCompletedProjectOnboarding": True}
    known = {"hasCompletedOnboarding": True, "theme": "dark", "projects": {str(user.home): trusted}}
    config = user.home / ".claude.json"
    config.write_text(json.dumps(known), encoding="utf-8")
    shutil.chown(config, user.name)
    env = {
        "PATH": os.environ["PATH"], "ANTHROPIC_AUTH_TOKEN": API_KEY, "ANTHROPIC_BASE_URL": model.url,
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "DISABLE_AUTOUPDATER": "1",
    }  # fmt: skip
    argv = [
        "ssh", "-t", "-i", str(server.identity), "-p", str(server.port), "-o", "IdentitiesOnly=yes",
        "-o", f"UserKnownHostsFile={server.known_hosts}", "-o", "SendEnv=ANTHROPIC_* CLAUDE_* DISABLE_*",
        f"{user.name}@127.0.0.1", f"exec {reference_cli()} --permission-mode default",
    ]  # fmt: skip
    return Program(argv, env, "? for shortcuts", "Do you want to proceed?", "❯ 1. Yes")


async def main() -> None:
    reference_cli()
    if shutil.which("tmux") is None:
        raise PeerMissing("tmux is not installed")
    with tempfile.TemporaryDirectory(prefix="ccb-bench-", ignore_cleanup_errors=True) as name:
        top = Path(name)
        with host_user(top) as user:
            async with sshd(top / "sshd", ["AcceptEnv *"]) as server, FakeModel() as model:
                desk = Desk(top, user, model)
                both = _ours(server, user, model, top), _reference(server, user, model)
                (ours, taken), (theirs, peer) = [await desk.approve(each) for each in both]
                middle = [statistics.median(each) for each in (ours, theirs)]
                versus(f"keys for yes, of {COUNT} approvals", middle[0], PEER, middle[1], LIMIT, unit="keys")
                compare("from the card until the command has run", taken, PEER, peer, None)
                typed = [sum([await desk.type_on(each) for _ in range(TYPINGS)]) for each in both]
                single(f"commands run by {TYPINGS} prompts that were half typed", typed[0], 0, unit="")
                single(f"the same, {PEER}", typed[1], unit="")
