"""File history and rewinding, over a real worker."""

from __future__ import annotations

import json
import os
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.remote.agent_kit import calls, content, says
from tests.remote.worker_process import Laptop, WorkerHost, until
from tests.support.model.model_script import Json
from tests.support.person.laptop import user_message

from ccb.remote.session_store.file_history import FileHistory
from ccb.tunnel.wire.frames import Input
from ccb.tunnel.wire.session_options import SessionOptions

OPTIONS = SessionOptions(allowed_tools=["Edit", "Read"])


async def prompt(laptop: Laptop, text: str, identity: str) -> None:
    await laptop.send(Input(laptop.epoch, f"in-{identity}", user_message(text, uuid=identity)))


async def turn(laptop: Laptop, identity: str, *tools: tuple[str, Json]) -> Json:
    """Run a turn in which the model calls these tools, one after the other. Return its last request."""
    await prompt(laptop, f"prompt {identity}", identity)
    for number, (name, tool_input) in enumerate(tools):
        message = f"msg_{identity}_{number}"
        await laptop.tell(calls((f"toolu_{identity}_{number}", name, tool_input), message_id=message))
    request = await laptop.tell(says(f"done {identity}", f"msg_{identity}_end"))
    assert (await laptop.message("result"))["subtype"] == "success"
    return request


async def worked(host: WorkerHost, session: str) -> Laptop:
    """A session of two turns: the first changes a.txt and makes new.txt, the second changes both and b.txt."""
    project = host.project
    (project / "a.txt").write_text("one\ntwo\n")
    (project / "a.txt").chmod(0o751)
    (project / "b.txt").write_text("b\n")
    laptop = await host.drive(session, OPTIONS)
    a, b, new = (str(project / name) for name in ("a.txt", "b.txt", "new.txt"))
    await turn(
        laptop,
        "u1",
        ("Read", {"file_path": a}),
        ("Edit", {"file_path": a, "old_string": "two", "new_string": "2"}),
        ("Write", {"file_path": new, "content": "made\n"}),
    )
    await turn(
        laptop,
        "u2",
        ("Read", {"file_path": b}),
        ("Edit", {"file_path": a, "old_string": "one", "new_string": "1"}),
        ("Edit", {"file_path": a, "old_string": "1\n", "new_string": "1\n1.5\n"}),
        ("Write", {"file_path": b, "content": "B\n"}),
        ("Write", {"file_path": new, "content": "made again\n"}),
    )
    return laptop


def texts(host: WorkerHost) -> dict[str, str]:
    return {path.name: path.read_text() for path in sorted(host.project.iterdir())}


async def test_a_hard_link_and_an_odd_name_go_back_as_the_same_files(host: WorkerHost, session: str) -> None:
    first, second = host.project / "caf\udce9.txt", host.project / "two\nnames"
    first.write_bytes(b"caf\xe9 = 1\n")
    os.link(first, second)
    inode = first.stat().st_ino
    laptop = await host.drive(session, OPTIONS)
    name = r"caf\xe9.txt"
    edit = {"file_path": name, "old_string": "= 1", "new_string": "= 2"}
    request = await turn(laptop, "u1", ("Read", {"file_path": name}), ("Edit", edit))
    assert "2 hard links" in json.dumps(request["messages"][-1])
    assert second.read_bytes() == b"caf\xe9 = 2\n"
    done = (await laptop.request("rewind_files", user_message_id="u1"))["response"]
    assert done["filesChanged"] == [rf"{host.project}/caf\xe9.txt"] and not done["failed"]
    assert second.read_bytes() == b"caf\xe9 = 1\n" and first.stat().st_ino == second.stat().st_ino == inode


async def test_the_old_content_comes_back_after_a_write_in_place_that_was_cut(host: WorkerHost, session: str) -> None:
    path = host.project / "h1"
    path.write_text("one\ntwo\n")
    os.link(path, host.project / "h2")
    laptop = await host.drive(session, OPTIONS)
    edit = {"file_path": str(path), "old_string": "one\ntwo", "new_string": "1\n2"}
    await turn(laptop, "u1", ("Read", {"file_path": str(path)}), ("Edit", edit))
    with path.open("r+b") as file:  # as a power cut leaves it
        file.write(b"1\n2\ntwo\n")
    await host.kill_worker(laptop.hello.pid)
    laptop = await host.drive(session)
    done = (await laptop.request("rewind_files", user_message_id="u1"))["response"]
    assert done["filesChanged"] == [str(path)] and not done["failed"]
    assert (host.project / "h2").read_text() == "one\ntwo\n"


async def test_files_go_back_to_how_they_were_before_a_prompt(host: WorkerHost, session: str) -> None:
    laptop = await worked(host, session)
    after = {"a.txt": "1\n1.5\n2\n", "b.txt": "B\n", "new.txt": "made again\n"}
    assert texts(host) == after
    points = (await laptop.request("rewind_points"))["response"]["points"]
    assert [(point["id"], point["text"], point["files"]) for point in points] == [
        ("u2", "prompt u2", 3),
        ("u1", "prompt u1", 3),
    ]
    tried = (await laptop.request("rewind_files", user_message_id="u2", dry_run=True))["response"]
    assert tried["canRewind"] and (tried["insertions"], tried["deletions"]) == (3, 4)
    assert texts(host) == after
    path = str(host.project / "a.txt")
    (only,) = (await laptop.request("rewind_files", user_message_id="u1", dry_run=True, path=path))["response"]["files"]
    assert only["path"] == path and only["complete"] is True
    (hunk,) = only["patch"]
    assert hunk["lines"] == ["-one", "-two", "+1", "+1.5", "+2"]
    every = (await laptop.request("rewind_files", user_message_id="u1", dry_run=True))["response"]["files"]
    assert len(every) == 3 and all("patch" not in each for each in every)
    none = await laptop.request("rewind_files", user_message_id="u1", dry_run=True, path="/etc/passwd")
    assert none["response"]["files"] == []
    history = host.state(session) / "history"
    kept = sorted(history.iterdir())
    assert len(kept) == 5  # a.txt twice in its states of u1 and u2 and between, b.txt, new.txt
    assert all(len(each.name) == 64 and stat.S_IMODE(each.stat().st_mode) == 0o600 for each in kept)
    assert stat.S_IMODE(history.stat().st_mode) == 0o700
    done = (await laptop.request("rewind_files", user_message_id="u2"))["response"]
    assert [Path(path).name for path in done["filesChanged"]] == ["a.txt", "b.txt", "new.txt"] and not done["failed"]
    assert texts(host) == {"a.txt": "one\n2\n", "b.txt": "b\n", "new.txt": "made\n"}
    await laptop.request("rewind_files", user_message_id="u1")
    assert texts(host) == {"a.txt": "one\ntwo\n", "b.txt": "b\n"}
    assert stat.S_IMODE(os.stat(host.project / "a.txt").st_mode) == 0o751
    request = await turn(laptop, "u3")  # the conversation stays, and the model is told
    said = json.dumps(request["messages"])
    assert "prompt u1" in said and "prompt u2" in said and "put these files back" in said
    refused = await laptop.request("rewind_files", user_message_id="nobody")
    assert refused["subtype"] == "error" and refused["error_code"] == "unknown_message"


async def test_what_accepted_commands_changed_and_removed_comes_back(host: WorkerHost, session: str) -> None:
    project = host.project
    for name in ("a.txt", "b.txt", "c.txt", "sub/d.txt"):
        (project / name).parent.mkdir(exist_ok=True)
        (project / name).write_text(f"{name}\n")
    (project / "b.txt").chmod(0o751)
    laptop = await host.drive(session, SessionOptions(permission_mode="acceptEdits"))
    line = "rm -r sub b.txt && mv a.txt moved.txt && cp c.txt copied.txt && sed -i s/c/C/ c.txt"
    await turn(laptop, "u1", ("Bash", {"command": line}))
    assert texts(host) == {"c.txt": "C.txt\n", "copied.txt": "c.txt\n", "moved.txt": "a.txt\n"}
    await host.kill_worker(laptop.hello.pid)
    laptop = await host.drive(session)
    tried = (await laptop.request("rewind_files", user_message_id="u1", dry_run=True))["response"]["files"]
    assert len(tried) == 6 and not any("changedElsewhere" in each or "why" in each for each in tried)
    assert not (await laptop.request("rewind_files", user_message_id="u1"))["response"]["failed"]
    assert (project / "sub/d.txt").read_text() == "sub/d.txt\n" and (project / "b.txt").stat().st_mode & 0o777 == 0o751
    (project / "sub/d.txt").unlink()
    (project / "sub").rmdir()
    assert texts(host) == {name: f"{name}\n" for name in ("a.txt", "b.txt", "c.txt")}


async def test_no_accepted_command_removes_what_cannot_be_kept(host: WorkerHost, session: str) -> None:
    (host.project / "a.txt").write_text("a")
    laptop = await host.drive(session, SessionOptions(permission_mode="acceptEdits"))
    (host.state(session) / "history").write_text("no directory")
    last = await turn(laptop, "u1", ("Bash", {"command": "rm a.txt"}))
    assert "Nothing was run" in json.dumps(last["messages"][-1]) and (host.project / "a.txt").exists()


async def test_a_conversation_goes_on_from_before_a_prompt_also_after_a_restart(host: WorkerHost, session: str) -> None:
    laptop = await worked(host, session)
    first = await turn(laptop, "u3")
    done = await laptop.request("rewind_conversation", user_message_id="u2")
    assert done["response"]["prompt"] == "prompt u2"
    assert texts(host)["b.txt"] == "B\n"  # the files stay
    request = await turn(laptop, "u4")
    kept = request["messages"]
    assert kept[: len(kept) - 1] == first["messages"][: len(kept) - 1]  # the prefix is byte for byte the same
    assert "prompt u2" not in json.dumps(kept) and "prompt u3" not in json.dumps(kept)
    assert kept[-1]["content"][-1]["text"] == "prompt u4"
    await laptop.stop()
    again = await host.drive(session, OPTIONS)
    points = (await again.request("rewind_points"))["response"]["points"]
    assert [point["id"] for point in points] == ["u4", "u1"]
    resumed = (await turn(again, "u5"))["messages"]
    assert resumed[: len(kept) - 1] == kept[: len(kept) - 1]
    assert "prompt u2" not in json.dumps(resumed) and "prompt u4" in json.dumps(resumed)
    await again.request("rewind_conversation", user_message_id="u1", files=True)
    assert texts(host) == {"a.txt": "one\ntwo\n", "b.txt": "b\n"}
    assert len((await turn(again, "u6"))["messages"]) == 1


async def test_a_session_resumes_at_a_message_and_what_it_read_later_is_unread(host: WorkerHost, session: str) -> None:
    laptop = await worked(host, session)
    lines = [frame.body for frame in laptop.events if frame.kind == "message" and frame.body["type"] == "assistant"]
    calls_b = next(body for body in lines if body["message"]["id"] == "msg_u2_3")
    await laptop.request("rewind_conversation", after=calls_b["uuid"])
    request = await turn(laptop, "u3")  # the scripted model refuses a call without a result, and so does this
    *_, call, last = request["messages"]
    assert call["content"][0]["id"] == "toolu_u2_3"
    assert last["content"][0]["tool_use_id"] == "toolu_u2_3" and last["content"][0]["is_error"]
    refused = await laptop.request("rewind_conversation", after="nothing")
    assert refused["error_code"] == "unknown_message"
    await laptop.request("rewind_conversation", user_message_id="u2")
    change = {"file_path": str(host.project / "b.txt"), "old_string": "B", "new_string": "C"}
    told = (await turn(laptop, "u4", ("Edit", change)))["messages"][-1]["content"][0]
    assert told["is_error"] and "has not been read" in told["content"]
    assert (host.project / "b.txt").read_text() == "B\n"


DIES = """
import os
import ccb.remote.system.regular_files as regular_files
restore, left = regular_files.restore_file, [%d]
def dies(*args):
    if not left[0]:
        os.kill(os.getpid(), 9)
    left[0] -= 1
    return restore(*args)
regular_files.restore_file = dies
"""


@pytest.mark.parametrize("restored", [1, 0, 2])
@pytest.mark.quick_rows(1)
async def test_a_rewind_happens_once_whatever_kills_its_worker(host: WorkerHost, session: str, restored: int) -> None:
    host.prelude = DIES % restored
    laptop = await worked(host, session)
    request = {"subtype": "rewind_conversation", "user_message_id": "u1", "files": True}
    body = {"type": "control_request", "request_id": "r1", "request": request}
    await laptop.send(Input(laptop.epoch, "in-rewind", body))
    while await laptop.read():
        pass
    if restored == 1:
        assert texts(host) == {"a.txt": "one\ntwo\n", "b.txt": "B\n", "new.txt": "made again\n"}
    host.prelude = ""
    again = await host.drive(session, OPTIONS)
    await again.send(Input(again.epoch, "in-rewind", body))  # nobody has confirmed it
    await until(lambda: texts(host) == {"a.txt": "one\ntwo\n", "b.txt": "b\n"}, "the files are as they were")
    assert len((await turn(again, "u3"))["messages"]) == 1
    points = (await again.request("rewind_points"))["response"]["points"]
    assert [(point["id"], point["files"]) for point in points] == [("u3", 0)]
    kinds = [record["kind"] for record in host.journal(session)]
    assert (kinds.count("rewind"), kinds.count("rewound")) == (1, 1)


async def test_what_others_changed_is_shown_and_can_be_brought_back(host: WorkerHost, session: str) -> None:
    laptop = await worked(host, session)
    (host.project / "b.txt").write_text("mine\n")
    (host.project / "a.txt").unlink()
    (host.project / "new.txt").unlink()
    (host.project / "new.txt").symlink_to("a.txt")
    tried = (await laptop.request("rewind_files", user_message_id="u2", dry_run=True))["response"]["files"]
    shown = {Path(each["path"]).name: each for each in tried}
    assert shown["a.txt"]["does"] == "create" and shown["a.txt"]["changedElsewhere"]
    assert shown["b.txt"]["does"] == "change" and shown["b.txt"]["changedElsewhere"]
    assert "leads to" in shown["new.txt"]["why"]
    await laptop.request("rewind_files", user_message_id="u2")
    assert (host.project / "a.txt").read_text() == "one\n2\n" and (host.project / "new.txt").is_symlink()
    assert stat.S_IMODE(os.stat(host.project / "a.txt").st_mode) == 0o751
    (host.project / "new.txt").unlink()
    await turn(laptop, "u3", ("Write", {"file_path": str(host.project / "c.txt"), "content": "c\n"}))
    assert (host.project / "b.txt").read_text() == "b\n"
    mine = list((host.state(session) / "history").iterdir())
    assert len(mine) == 6  # what the rewind overwrote is kept too


async def test_files_go_back_only_between_turns_and_a_copy_has_their_history(host: WorkerHost, session: str) -> None:
    laptop = await worked(host, session)
    await prompt(laptop, "long", "u3")
    opened, _ = await laptop.call()
    for subtype in ("rewind_files", "rewind_conversation"):
        assert (await laptop.request(subtype, user_message_id="u1"))["error_code"] == "busy"
    await laptop.answer(opened, content(says("ok", "msg_9")))
    await laptop.message("result")
    assert texts(host)["b.txt"] == "B\n"
    await laptop.stop()
    copy = "copy-" + session[:8]
    second = await host.drive(copy, OPTIONS, fork_of=session)
    assert (await second.request("rewind_files", user_message_id="u1"))["response"]["failed"] == []
    assert texts(host) == {"a.txt": "one\ntwo\n", "b.txt": "b\n"}


async def test_a_prompt_without_an_id_is_known_by_the_id_of_its_echo(host: WorkerHost, session: str) -> None:
    laptop = await host.drive(session, SessionOptions(allowed_tools=["Write"], replay_user_messages=True))
    await laptop.say("make it")
    tool = ("toolu_1", "Write", {"file_path": str(host.project / "new.txt"), "content": "x"})
    await laptop.answers(calls(tool), says("done", "msg_2"))
    await laptop.message("result")
    (echo,) = [frame.body for frame in laptop.events if frame.kind == "message" and frame.body.get("isReplay")]
    assert (await laptop.request("rewind_files", user_message_id=echo["uuid"]))["subtype"] == "success"
    assert not (host.project / "new.txt").exists()


def test_sub_agents_that_change_files_at_the_same_time_keep_every_version(tmp_path: Path) -> None:
    history, versions = FileHistory(str(tmp_path / "history")), [b"version %d" % number for number in range(200)]
    with ThreadPoolExecutor(8) as agents:
        assert not any(agents.map(history.keep, versions))
    assert len(os.listdir(history.directory)) == len(versions)
