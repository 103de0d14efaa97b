"""What the model is told beside the prompt: files named with `@`, style and language; over a real worker."""

from __future__ import annotations

import json

import psutil
from tests.remote.agent_kit import calls, says
from tests.remote.tools_kit import write
from tests.remote.worker_process import Laptop, WorkerHost, alive, until

from ccb.tunnel.wire.frames import NAMES, FindNames, NamesFound
from ccb.tunnel.wire.prompt_content import attached_file
from ccb.tunnel.wire.session_options import SessionOptions


async def asked(laptop: Laptop, prompt: str | list[dict[str, object]], answer: str) -> str:
    """Run a turn. Return what the model was told, as text."""
    body = await laptop.sent(prompt, says(answer, f"msg_{answer}"))
    return "\n".join(block.get("text", "") for block in body["messages"][-1]["content"])


async def test_files_that_a_prompt_names_come_with_it_and_the_instructions_of_their_places(
    host: WorkerHost, session: str
) -> None:
    write(host.project / "src/main.py", "print('main')\n")
    (host.project / "notes.txt").write_text("one\ntwo\nthree\nfour\n")
    (host.home / "outside.txt").write_text("outside\n")
    laptop = await host.drive(session)
    words = "mail@notes.txt and @missing and @~/outside.txt"
    told = await asked(laptop, f"see @src, (@notes.txt#L2-3) but not {words}", "a")
    assert "main.py" in told and "2\ttwo\n3\tthree" in told
    assert "four" not in told and "outside\n" not in told
    assert told.rstrip().endswith(words), "the prompt itself is as it was written, and comes last"
    told = await asked(laptop, "again @src/main.py", "b")
    assert "1\tprint('main')" in told
    dropped = attached_file("of_laptop.txt", "mail me @notes.txt")
    told = await asked(laptop, [{"type": "text", "text": "and this?"}, dropped], "c")
    assert "mail me @notes.txt" in told and "three" not in told, "a file of the laptop names nothing on the host"
    (host.project / "web/src").mkdir(parents=True)
    (host.project / "web/CLAUDE.md").write_text("Two blanks in here.\n")
    (host.project / "web/src/main.js").write_text("main\n")
    assert "Two blanks" not in await asked(laptop, "see @web", "d"), "a list of names is no work in there"
    told = await asked(laptop, "see @web/src/main.js", "e")
    assert "1\tmain" in told and "Two blanks in here." in told
    assert "Two blanks" not in await asked(laptop, "see @web/src/main.js again", "f")


async def test_a_name_that_is_no_plain_text_is_named_as_it_is_spelled(host: WorkerHost, session: str) -> None:
    for name in ("caf\udce9.txt", r"caf\xe9.txt", "two\nlines"):
        (host.project / name).write_text(f"this is {name!a}\n")
    (host.project / "sub\udce9").mkdir()
    laptop = await host.drive(session)
    await laptop.send(FindNames(laptop.epoch, 1, "caf"))
    found = (await laptop.next(NamesFound, lambda frame: frame.request == 1)).body["names"]
    assert set(found) == {r"caf\xe9.txt", r"caf\\xe9.txt"}
    told = await asked(laptop, r"see @caf\xe9.txt, @caf\\xe9.txt, @two\nlines and @sub\xe9", "a")
    for name in ("caf\udce9.txt", r"caf\xe9.txt", "two\nlines"):
        assert f"1\tthis is {name!a}" in told
    assert rf"the directory {host.project}/sub\xe9:" in told


async def test_a_new_worker_tells_instructions_again_after_a_compaction(host: WorkerHost, session: str) -> None:
    write(host.project / "web/CLAUDE.md", "Two blanks in here.\n")
    (host.project / "web/main.js").write_text("main\n")
    laptop = await host.drive(session)
    await laptop.begin("read it", calls(("t1", "Read", {"file_path": str(host.project / "web/main.js")})))
    assert "Two blanks in here." in str(await laptop.tell(says("done", "msg_2")))
    await laptop.message("result")
    await laptop.kill()
    again = await host.drive(session, have=laptop.last_seq)
    await again.turn("/compact", says("SUMMARY", "msg_3"))
    told = str(await again.sent("go on", says("fine", "msg_4")))
    assert "main.js:" in told and "Two blanks in here." in told


async def test_names_are_found_while_the_person_types_and_no_process_stays(host: WorkerHost, session: str) -> None:
    for number in range(300):
        write(host.project / f"pkg{number % 10}/file_{number}.py", "")
    laptop = await host.connect(session)
    hello = await laptop.attach()
    assert NAMES in hello.capabilities

    async def ask(number: int, query: str) -> dict[str, object]:
        await laptop.send(FindNames(laptop.epoch, number, query))
        return (await laptop.next(NamesFound, lambda frame: frame.request == number)).body

    assert (await ask(1, ""))["names"] == [f"pkg{number}/" for number in range(10)]
    number, answer = 2, await ask(2, "file_271")
    while not answer["settled"]:
        number, answer = number + 1, await ask(number + 1, "file_271")
    assert answer == {"names": ["pkg1/file_271.py"], "more": False, "settled": True, "cut": False}
    for each in range(number + 1, number + 20):  # the person types: only the newest question is sure to be answered
        await laptop.send(FindNames(laptop.epoch, each, "file_27"))
    assert (await ask(number + 20, "file_299"))["names"] == ["pkg9/file_299.py"]
    assert all(event.kind != "input" for event in laptop.events), "questions about names are not in the journal"
    (index,) = [each.pid for each in psutil.Process(hello.pid).children() if str(host.project) in each.cmdline()]
    await host.kill_worker(hello.pid)
    await until(lambda: not alive(index), "the end of the index")


async def test_the_commands_about_the_context_and_notes_for_the_instruction_file(
    host: WorkerHost, session: str
) -> None:
    (host.project / "CLAUDE.md").write_text("Be kind. @more.md")
    (host.project / "more.md").write_text("Be brief.")
    laptop = await host.drive(session)
    shown = (await laptop.turn("/memory"))["result"]
    assert "project/CLAUDE.md  (project, 17 characters)" in shown and "more.md" in shown
    told = await asked(laptop, "/init mind the tests", "c")
    assert "write a CLAUDE.md" in told and "mind the tests" in told and "Be brief." in told

    async def noted(note: str) -> dict[str, str]:
        await laptop.control("remember", note=note)
        response = (await laptop.message("control_response"))["response"]
        return {"error": response.get("error", ""), **response.get("response", {})}

    assert (await noted("use  tabs"))["path"] == str(host.project / "CLAUDE.md")
    (host.project / "CLAUDE.md").write_text("# Rules\n\n- use tabs")
    await noted("be kind\nor not")
    assert (host.project / "CLAUDE.md").read_text() == "# Rules\n\n- use tabs\n- be kind or not\n"
    told = await asked(laptop, "hello", "a")
    assert "The user has added this to" in told and "be kind or not" in told
    assert "empty" in (await noted(" "))["error"]
    (host.project / "CLAUDE.md").write_bytes("# Größe\r\n".encode("utf-16"))
    await noted("é")
    assert (host.project / "CLAUDE.md").read_bytes() == "# Größe\r\n- é\r\n".encode("utf-16")
    (host.project / "CLAUDE.md").write_bytes(b"Gr\xf6\xdfe\n")
    assert "not in UTF-8" in (await noted("x"))["error"]
    (host.project / "CLAUDE.md").unlink()
    (host.project / "CLAUDE.md").symlink_to(host.home / ".profile")
    assert "leads out of the project" in (await noted("x"))["error"]
    assert not (host.home / ".profile").exists()


async def test_output_style_and_language_are_in_the_system_prompt(host: WorkerHost, session: str) -> None:
    write(host.home / ".claude/output-styles/Pirate.md", "---\nname: Pirate\n---\nTalk like a pirate.\n")
    laptop = await host.connect(session)
    values = {"outputStyle": "Pirate", "language": "Deutsch"}
    await laptop.attach(SessionOptions(settings={"layers": [{"source": "user", "path": "s", "values": values}]}))
    await laptop.say("hello")
    assert (await laptop.message("system", "init"))["output_style"] == "Pirate"
    _, body = await laptop.call()
    told = "\n".join(block["text"] for block in json.loads(body)["system"])
    assert "# Output style: Pirate\nTalk like a pirate." in told and "Answer the user in this language: Deutsch" in told
    marks = [block.get("cache_control") for block in json.loads(body)["system"]]
    assert marks[0] and marks[-1] and not any(marks[1:-1])
