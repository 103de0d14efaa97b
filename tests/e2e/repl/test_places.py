"""Where ccb writes on the laptop: only where the XDG variables say."""

from __future__ import annotations

from pathlib import Path

from tests.support.model.model_script import uses
from tests.support.person.laptop import Here

VARIABLES = ("CONFIG_HOME", "STATE_HOME", "CACHE_HOME", "DATA_HOME")


async def test_a_person_with_xdg_variables_finds_nothing_anywhere_else(here: Here, tmp_path: Path) -> None:
    places = {f"XDG_{each}": tmp_path / f"an odd place/{number}" for number, each in enumerate(VARIABLES)}
    for each in places.values():
        each.mkdir(parents=True, mode=0o700)
    here.laptop.env.update({name: str(each) for name, each in places.items()})
    before = {*here.laptop.home.rglob("*")}
    here.model.add({"text": "one"}, uses("Bash", command="sleep 0; echo > made"), {"text": "All-done."})
    done = await here.run("-p", "hello", "--debug", "--record")
    assert done.code == 0, done.stderr
    for words in (["config", "set", "editorMode", "normal"], ["ps"], ["usage"], ["models"], ["config", "show"]):
        assert (await here.laptop.run(words)).code == 0
    async with here.on_terminal("--allowedTools", "Bash") as running:
        await running.shows("Ask for a change")
        await running.types("/theme dark\r", "dark")
        await running.types("go on\r", "All-done.")
        running.type("\x04")
        assert await running.ended() == 0
    assert {*here.laptop.home.rglob("*")} - before == set()
    names = list(places)[:3]
    written = {name: {each.name for each in (places[name] / "ccb").iterdir()} for name in names}
    assert "settings.json" in written["XDG_CONFIG_HOME"]
    assert {"ledger.sqlite3", "theme", "recorded"} <= written["XDG_STATE_HOME"]
    assert "worker" in written["XDG_CACHE_HOME"]
