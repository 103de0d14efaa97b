"""The whole conversation on a page: loading, search, copying, the pager, and what comes meanwhile."""

from __future__ import annotations

from tests.support.repl.pilot import Desk, desk
from tests.support.repl.scripted_session import ScriptedSession

from ccb.local.config.settings_loading import ScreenSettings
from ccb.local.session.session_client import LinkState, SessionEvent
from ccb.local.terminal.keymap import keymap_of
from ccb.local.tui.panels.pages import SearchedBlocks


def said(seq: int, text: str) -> SessionEvent:
    message = {"id": f"m{seq}", "role": "assistant", "model": "m", "content": [{"type": "text", "text": text}]}
    return SessionEvent(
        "message", {"type": "assistant", "message": {**message, "usage": {}}, "uuid": f"u{seq}"}, seq, True
    )


def long_session(count: int = 40) -> ScriptedSession:
    session = ScriptedSession()
    session.past = [said(seq, f"Answer {seq}: the needle is here." if seq % 10 == 0 else f"Answer {seq}.")
                    for seq in range(1, count + 1)]  # fmt: skip
    return session


async def open_page(at: Desk) -> SearchedBlocks:
    await at.give("/transcript", sees=("Conversation on devbox:/srv/shop", "/ searches"))
    page = at.view.reading.page
    assert page is not None
    return page.body


async def test_the_page_takes_the_whole_screen_and_esc_goes_back() -> None:
    async with desk(long_session()) as at:
        await open_page(at)
        await at.sees("Answer 40: the needle is here.", loses="Ask for a change")
        await at.until(lambda: at.status.lstrip().startswith("● devbox"))
        await at.type("typed", has="")
        await at.press("escape", sees="Ask for a change")
        assert at.app.focused is at.composer and "Answer 40" not in at.screen


async def test_ctrl_o_twice_opens_it_and_once_more_closes_it() -> None:
    async with desk(long_session()) as at:
        await at.press("ctrl+o", "ctrl+o", sees=("Conversation on devbox:/srv/shop", "Answer 40"))
        await at.press("ctrl+o", loses="Conversation on devbox:/srv/shop")


async def test_paths_are_relative_on_the_page_too() -> None:
    session = long_session()
    session.past.append(SessionEvent("rewind", {"files": [{"path": "/srv/shop/cart.py"}]}, 41, True))
    async with desk(session) as at:
        await open_page(at)
        await at.sees("Restored 1 file:\n cart.py")


async def test_search_loads_all_counts_and_walks_through_what_is_found() -> None:
    async with desk(long_session(), size=(80, 20)) as at:
        await open_page(at)
        await at.type("/NEEDLE", sees="/NEEDLE▏")
        await at.press("enter", sees=("4 of 4 for “needle”", "Answer 40: the needle"))
        assert at.session.fetched[-1] == 1 or len(at.session.fetched) >= 4
        await at.press("n", sees=("1 of 4", "Answer 10: the needle"))
        await at.press("n", "N", "N", sees=("4 of 4", "Answer 40: the needle"))
        await at.enter("/nothing like it", sees="nothing for “nothing like it”")
        await at.press("escape", sees="/ searches")
        await at.press("escape", sees="Ask for a change")


async def test_home_loads_the_beginning_and_end_goes_back_to_what_comes() -> None:
    async with desk(long_session(), size=(80, 20)) as at:
        await open_page(at)
        await at.press("home", sees="Answer 1.")
        await at.press("end", sees="Answer 40: the needle")
        at.session._seq = 40
        await at.says("And now this.", message_id="m99", sees="And now this.")


async def test_all_output_of_tools_is_unfolded_and_copied_without_escapes() -> None:
    async with desk(ScriptedSession(), size=(80, 40)) as at:
        copied: list[str] = []

        async def copy(text: str) -> str:
            copied.append(text)
            return "copied"

        at.view.reading._copied = copy
        await open_page(at)
        at.session.begin()
        call = at.session.call("Bash", command="seq 30")
        at.session.done(call, "\n".join(f"line \x1b[31m{number}" for number in range(30)))
        await at.sees("line 0", "line 29", lacks="\x1b")
        await at.enter("/line 17", sees="1 of 1")
        await at.press("y", sees="This entry was copied.")
        assert "line 29" in copied[0] and "\x1b" not in copied[0]


async def test_a_question_that_comes_is_shown_below_the_page_and_the_keys_come_back() -> None:
    async with desk(long_session()) as at:
        await open_page(at)
        at.session.begin()
        answer = at.session.ask("r1", "Bash", {"command": "make"})
        await at.sees("make", "Conversation on devbox")
        await at.card_focused()
        await at.answer("1")
        assert (await answer)["behavior"] == "allow"
        await at.until(lambda: at.app.focused is at.view.reading.page)


async def test_without_a_connection_it_says_so() -> None:
    async with desk(long_session()) as at:
        await at.link(LinkState.RECONNECTING, "the network is down", sees="reconnecting")
        await at.give("/transcript", sees="The conversation is not loaded: there is no connection")


async def test_the_keys_of_a_page_are_those_of_the_settings() -> None:
    keymap = keymap_of({"view-search": "f", "view-next": "Ctrl+N"})
    async with desk(long_session(), size=(80, 20), screen=ScreenSettings(keymap=keymap)) as at:
        await at.give("/transcript", sees=("Answer 40", "f searches"))
        await at.press("slash", *"needle", "enter")  # it is no key any more
        await at.press("f", *"needle", "enter", sees=("4 of 4 for “needle”", "Ctrl+N next"))
        await at.press("ctrl+n", sees="1 of 4")
