"""The screen of `ccb dash` over hosts in memory."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any, cast

from tests.support.hosts.reporting_host import ReportingHost, dash_of
from tests.support.repl.pilot import COLOURFUL, Desk, QuickPilot
from tests.support.repl.scripted_session import ScriptedSession

from ccb.local.tui.app import Repl
from ccb.local.tui.dash_app import DashApp, DashChoice
from ccb.tunnel.errors import AuthFailed


def dash_row(number: int, state: str = "idle", idle_s: float = 600, **more: Any) -> dict[str, Any]:
    known = {"session": f"{number:08x}-0000-4000-8000-000000000000", "prompts": 1, "prompt": f"task {number}"}
    return {**known, "cwd": "/srv/shop", "state": state, "alive": state != "ended", "idle_s": idle_s, **more}


@dataclass
class DashDesk(Desk):
    """A running dash, whose application stands in the place of the REPL's."""

    hosts: Sequence[ReportingHost] = ()

    @property
    def dash_app(self) -> DashApp:
        return cast(DashApp, self.app)

    @property
    def choice(self) -> DashChoice | None:
        """What the person has opened."""
        found = self.dash_app.return_value
        return found if isinstance(found, DashChoice) else None


@asynccontextmanager
async def dash_desk(
    *hosts: ReportingHost, size: tuple[int, int] = (120, 30), environ: Mapping[str, str] = COLOURFUL
) -> AsyncIterator[DashDesk]:
    async with dash_of(hosts, {"HOME": "/nonexistent"}) as dash:
        app = DashApp(dash, environ)
        async with app.run_test(size=size):
            at = DashDesk(cast(Repl, app), ScriptedSession(), QuickPilot(cast(Any, app)), hosts)
            await at.until(lambda: all(each.up or each.problem for each in dash.hosts))
            await at.pilot.pause(0.1)
            yield at


@asynccontextmanager
async def dash_picture(size: tuple[int, int], environ: Mapping[str, str]) -> AsyncIterator[Desk]:
    """Rows of every kind, for the golden."""
    driver: dict[str, Any] = {"driver": "ann@laptop pid 7 0123ab"}
    web = ReportingHost(
        "web-1",
        dash_row(1, "requires_action", 7200, prompt="repair the total", last="Bash npm test", **driver),
        dash_row(2, "running", 130, prompt="write the docs", last="I look at the pages first.", **driver),
    )
    box = ReportingHost("gpu-box", dash_row(3, "ended", 90_000, prompt="plot the loss", last="Done: loss.png"))
    old = ReportingHost("old", dash_row(4, prompt="port \x1b[31mit", driver_away=True, **driver))
    locked = ReportingHost("db")
    locked.refuses = AuthFailed("db wants a password")
    async with dash_desk(web, box, old, locked, size=size, environ=environ) as at:
        dash = at.dash_app.dash
        old.refuses = AuthFailed("old wants a password")
        old.cut()
        await at.until(lambda: not dash.hosts[2].up)
        dash.hosts[2].heard_at -= 300
        dash.hosts[2].rows = {key: replace(row, heard_at=row.heard_at - 300) for key, row in dash.hosts[2].rows.items()}
        dash.news.set()
        await at.sees("5m old")
        yield at
