"""`make screenshot`: a picture of the REPL in docs/repl.svg.

It shows a real session on the SSH server of `make demo`, with a scripted model, at the moment in which the agent asks
for an approval. Nothing in it depends on the time or on where it is made: the temporary directory of the demo is shown
as PLACE.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import sys
import time
import uuid
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from tests.support.demo import demo_host
from tests.support.repl.attached_repl import repl_on
from tests.support.repl.pilot import screen_text

from ccb import __version__
from ccb.local.command_line.parser import parse_arguments
from ccb.local.connect.connect_session import connect_session
from ccb.local.session.session_client import Item, SessionClient, SessionEvent
from ccb.local.terminal.terminal_prompts import prompts_for
from ccb.local.tui.app import Repl
from ccb.local.tui.widgets.session_info import ReplInfo
from ccb.tunnel.link.link import Greeting
from ccb.tunnel.plain_text import HostText

PICTURE = Path(__file__).resolve().parents[2] / "docs" / "repl.svg"
HOST, PLACE = "devbox", "/srv/shop"
SIZE = (100, 35)
WAITS = "waits for an answer"

_FONTS = "ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace"

PROMPT = "The checks of this project fail. Find out why, fix it and commit."
CHECK = "python3 check.py"

_CART = '''"""A shopping cart."""


def total(prices: list[float], discount: float = 0.0) -> float:
    """The sum of `prices` less `discount` (0.1 is ten per cent)."""
    return sum(prices) * (1 + discount)
'''

_CHECK = """import sys

from cart import total

failures = 0
for prices, discount, wanted in (([10, 20], 0, 30), ([10, 20], 0.1, 27), ([], 0.5, 0)):
    got = round(total(prices, discount), 2)
    failures += got != wanted
    print("ok  " if got == wanted else "FAIL", f"total({prices}, {discount}) is {got}, wanted {wanted}")
print(failures, "failed")
sys.exit(1 if failures else 0)
"""


def make_project(directory: Path) -> None:
    """Write the project of the picture; `directory` must not exist."""
    directory.mkdir(parents=True)
    (directory / "cart.py").write_text(_CART, encoding="utf-8")
    (directory / "check.py").write_text(_CHECK, encoding="utf-8")


def replies(directory: Path) -> list[dict[str, Any]]:
    """Return what the scripted model answers (see `tests.support.model.fake_model`)."""

    def tool(name: str, **tool_input: str) -> dict[str, Any]:
        return {"type": "tool_use", "name": name, "input": tool_input}

    def reply(*blocks: dict[str, Any], context: int) -> dict[str, Any]:
        return {"blocks": list(blocks), "usage": {"input_tokens": context, "output_tokens": 120}}

    cart = str(directory / "cart.py")
    commit = f'{CHECK} && git commit -am "Take the discount off the total"'
    return [
        reply(
            tool("Read", file_path=cart),
            tool("Bash", command=CHECK, description="Run the checks"),
            context=9_312,
        ),
        reply(
            {"type": "text", "text": "Found it: `total` **adds** the discount. I change the sign and commit."},
            tool("Edit", file_path=cart, old_string="(1 + discount)", new_string="(1 - discount)"),
            tool("Bash", command=commit, description="Run the checks again and commit"),
            context=10_874,
        ),
    ]


class RenamedSession:
    """A session whose temporary directory `real` is shown as PLACE. Everything else goes on to the real session."""

    def __init__(self, session: SessionClient, real: str) -> None:
        self._session = session
        self._real = real

    @property
    def round_trip_s(self) -> None:
        """Not measured: the picture must not depend on the machine."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)

    @property
    def hello(self) -> Greeting:
        """The hello of the session, without what the host says about this machine."""
        return replace(self._session.hello, cwd=HostText(PLACE), notes=[])

    async def events(self) -> AsyncIterator[Item]:
        """The events of the session, renamed."""
        async for item in self._session.events():
            if isinstance(item, SessionEvent):
                body = json.loads(json.dumps(item.body).replace(self._real, PLACE))
                yield replace(item, body=body)
            else:
                yield item


def _is_complete(app: Repl) -> bool:
    """Whether the card is there, all of it was shown, and it has the focus."""
    card = app.view.card if app.attached is not None else None
    return WAITS in screen_text(app) and card is not None and card.listens and not card.unseen


async def _draw(words: list[str], real: str) -> str:
    """Attach to a session with the command line `words`, and return the picture."""
    session_id, prompts = str(uuid.uuid4()), prompts_for(headless=True)
    async with connect_session(parse_arguments(words), session_id=session_id, prompts=prompts) as connected:
        session = cast(SessionClient, RenamedSession(connected.session, real))
        options = connected.options
        info = ReplInfo(HOST, PLACE, options.model or "", options.permission_mode, __version__, first_prompt=PROMPT)
        app = repl_on(session, info, {"TERM": "xterm-256color", "COLORTERM": "truecolor"})
        try:
            async with app.run_test(size=SIZE) as pilot:
                end = time.monotonic() + 60
                while not _is_complete(app):
                    if time.monotonic() > end:
                        raise TimeoutError(f"there is nothing to draw:\n{screen_text(app)}")
                    app.action_on_session("approval")
                    await pilot.pause(0.05)
                return app.export_screenshot(title=f"ccb ssh {HOST}:{PLACE}", simplify=True)
        finally:
            await connected.session.stop()
            await connected.session.ended()


def with_local_fonts(svg: str) -> str:
    """Use fonts of the viewer's machine: a page that shows the picture as an image loads none from elsewhere."""
    svg = re.sub(r"\s*@font-face \{.*?\}", "", svg, flags=re.DOTALL)
    return svg.replace("font-family: Fira Code, monospace", f"font-family: {_FONTS}").replace("arial", "sans-serif")


async def _make(picture: Path) -> int:
    """Start the demo's server, and draw in a process with the environment of its laptop."""
    async with demo_host(make_project, replies) as host:
        words = [*host.command[3:], "--permission-mode", "acceptEdits", "--allowedTools", f"Bash({CHECK})"]
        inside = [sys.executable, "-m", "tests.support.screenshot", "--inside", str(host.project), str(picture), *words]
        child = await asyncio.create_subprocess_exec(*inside, env=host.env)
        return await child.wait()


def main() -> int:
    """Draw the picture; the exit code is 0 if that worked."""
    parser = argparse.ArgumentParser(prog="make screenshot")
    parser.add_argument(
        "picture", nargs="?", type=Path, default=PICTURE, help="the file to write (default: docs/repl.svg)"
    )
    if sys.argv[1:2] != ["--inside"]:
        return asyncio.run(_make(parser.parse_args().picture.resolve()))
    real, picture, *words = sys.argv[2:]
    svg = asyncio.run(_draw(words, real))
    if real in svg:
        raise ValueError("the picture shows the temporary directory")
    Path(picture).write_text(with_local_fonts(svg), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
