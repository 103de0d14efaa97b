"""/rename, /permissions, /diff, /copy N and /reconnect."""

from __future__ import annotations

from typing import Any

from tests.support.repl.pilot import Desk, desk
from tests.support.repl.scripted_session import ScriptedSession

from ccb.local.session.session_client import LinkState
from ccb.tunnel.wire.control_protocol import A, P, Request, Success

Json = dict[str, Any]

RULES: Json = {
    "state": {
        "rules": [
            {"behavior": "allow", "source": "session", "rule": "Bash(make *)", "editability": "session"},
            {"behavior": "deny", "source": "userSettings", "rule": "Read(\x1b[31m.env)"},
            {"behavior": "allow", "source": "localSettings", "rule": "Edit"},
        ]
    }
}
POINTS: Json = {"points": [{"id": "u2"}, {"id": "u1"}], "files_kept": True}
PREVIEW: Json = {
    "files": [
        {"path": "/srv/shop/cart.py", "insertions": 1, "deletions": 3, "does": "change"},
        {"path": "/srv/shop/new.py", "deletions": 9, "does": "remove"},
        {"path": "/srv/shop/old.py", "insertions": 4, "does": "create", "changedElsewhere": True},
    ]
}
HUNKS: list[Json] = [
    {"oldStart": 1, "oldLines": 1, "newStart": 1, "newLines": 1, "lines": ["-total = 0", "+total = sum(\x1b[31mx)"]}
]


async def say(at: Desk, text: str) -> None:
    at.app.composer.text = text
    await at.pilot.press("enter")


async def test_rename_gives_the_session_a_name() -> None:
    async with desk() as at:
        await say(at, "/rename the cart\x07 work")
        await at.sees("This session is now called the cart")
        assert at.session.controls[-1][0] == "rename_session"
        await say(at, "/rename")
        await at.sees("/rename TITLE gives this session a name")


async def test_the_rules_are_listed_with_their_origin_those_that_deny_first() -> None:
    async with desk() as at:
        at.session.control_answers["list_permission_rules"] = RULES
        await say(at, "/permissions")
        await at.sees("Permission rules on devbox:/srv/shop", "mode default", "Bash(make *)  this session")
        assert at.screen.index("denied") < at.screen.index("Read(") < at.screen.index("allowed")
        assert "Read(.env)  your settings" in at.screen and "Edit  always here" in at.screen and "\x1b" not in at.screen
        await at.pilot.press("escape")
        await at.loses("Permission rules")
        at.session.control_answers["list_permission_rules"] = {"state": {}}
        await say(at, "/permissions")
        await at.sees("No rule holds")


async def test_a_rule_is_added_for_the_session_or_always_and_its_own_are_removed() -> None:
    async with desk() as at:
        kept: list[Any] = []

        async def keep(updates: Any) -> None:
            kept.extend(updates)

        at.app.view.steering.facts.keep = keep
        at.session.control_answers["list_permission_rules"] = RULES
        await say(at, "/permissions")
        await at.sees("a adds a rule")
        await at.pilot.press("a")
        await at.type("Bash(npm")
        await at.pilot.press("enter")
        await at.sees("A rule is Tool or Tool(pattern)")
        await at.type(" test *)")
        await at.sees("allow in this session: Bash(npm test *)▏")
        await at.pilot.press("enter")
        await at.sees("Added: allow Bash(npm test *)")
        rule = {"toolName": "Bash", "ruleContent": "npm test *"}
        update = {"type": "addRules", "rules": [rule], "behavior": "allow", "destination": "session"}
        assert ("change_permission_rules", {"updates": [update]}) in at.session.controls and not kept
        await at.pilot.press("a", "up")
        await at.type("Edti")
        await at.sees("deny always here: Edti▏")
        await at.pilot.press("enter")
        await at.until(lambda: kept)
        await at.sees("Added: deny Edti, but there is no tool 'Edti'; did you mean Edit?")
        assert kept[0]["destination"] == "localSettings" and kept[0]["behavior"] == "deny"
        await at.pilot.press("pageup", "d")
        await at.sees("This rule is not yours to remove here")
        await at.pilot.press("down", "d")
        await at.sees("Remove “allow Bash(make *)”, this session?")
        at.session.refuse_controls = "the agent said no"
        await at.pilot.press("y")
        await at.sees("the agent said no")
        assert at.session.controls[-1][1]["updates"][0]["type"] == "removeRules"


class ChangedFiles(ScriptedSession):
    """A session whose files have changed; it tells the lines of one."""

    async def request(self, request: Request[P, A]) -> A:
        path = request.kind.write(request.payload).get("path")
        if request.kind.name == "rewind_files" and path:
            files = [{"path": path, "does": "change", **({"patch": HUNKS} if "cart" in path else {})}]
            return request.kind.read_answer(Success(request.id, {"files": files}))
        return await super().request(request)


async def test_diff_shows_the_lines_of_what_the_agent_has_changed_since_the_first_prompt() -> None:
    async with desk(ChangedFiles()) as at:
        at.session.control_answers.update(rewind_points=POINTS, rewind_files=PREVIEW)
        await say(at, "/diff")
        await at.sees("3 files +12 -5, changed in this session on devbox:/srv/shop")
        await at.sees(
            "› ▾ ~ /srv/shop/cart.py  +3 -1", "1 - total = 0", "1 + total = sum(⟨ESC⟩[31m", "▾ + /srv/shop/new.py"
        )
        await at.sees("▾ - /srv/shop/old.py  +0 -4  changed by something else since", "of an older version")
        assert "\x1b" not in at.screen
        await at.pilot.press("enter")
        await at.sees("› ▸ ~ /srv/shop/cart.py")
        await at.loses("total = 0")
        await at.type("/TOTAL = SUM")
        await at.pilot.press("enter")
        await at.sees("1 of 1 for “total = sum”", "total = sum(")
        await at.pilot.press("escape", "down")
        await at.sees("› ▾ + /srv/shop/new.py")
        await at.pilot.press("escape")
        await at.sees("Ask for a change")
        assert at.session.controls[-1] == ("rewind_files", {"user_message_id": "u1", "dry_run": True})
        at.session.control_answers["rewind_points"] = {"points": [], "files_kept": True}
        await say(at, "/diff")
        await at.sees("have changed no file in this session")
        at.session.control_answers["rewind_points"] = {"points": [], "files_kept": False}
        await say(at, "/diff")
        await at.sees("This session keeps no versions of files.")


async def test_an_answer_that_cannot_be_read_and_a_refusal_are_shown() -> None:
    async with desk() as at:
        at.session.control_answers["list_permission_rules"] = {"state": {"rules": [{"rule": 7}]}}
        await say(at, "/permissions")
        await at.sees("The worker's answer cannot be read.")
        at.session.refuse_controls = "not now"
        await say(at, "/diff")
        await at.sees("not now")


async def test_copy_takes_the_nth_answer_from_the_end() -> None:
    async with desk() as at:
        copied: list[str] = []

        async def copy(text: str) -> str:
            copied.append(text)
            return "copied to the tmux buffer"

        at.app.copied = copy  # type: ignore[method-assign]
        for number, text in enumerate(("one", "two", "three")):
            at.session.text(text, message_id=f"m{number}")
        await at.sees("three")
        await say(at, "/copy")
        await at.sees("The last answer was copied to the tmux buffer.")
        await say(at, "/copy 3")
        await at.sees("Answer 3 from the end was copied to the tmux buffer.")
        assert copied == ["three", "one"]
        for wrong in ("4", "0", "x"):
            await say(at, f"/copy {wrong}")
        await at.until(lambda: at.screen.count("/copy takes a number from 1, the last answer, to 3.") == 3)
        assert len(copied) == 2


async def test_reconnect_connects_now() -> None:
    async with desk() as at:
        at.session.link(LinkState.RECONNECTING, "the network is down")
        await at.sees("reconnecting")
        await say(at, "/reconnect")
        await at.until(lambda: at.session.retries == 1)
