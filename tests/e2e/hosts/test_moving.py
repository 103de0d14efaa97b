"""Sessions that move: between the laptop and a host, with and without files, and over links that break."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
from tests.support.hosts.reached_host import Host
from tests.support.model.model_script import uses
from tests.support.network.relay import Fault, relay
from tests.support.person.laptop import Here

pytestmark = pytest.mark.visited

JSON = ["--output-format", "json"]


async def begin(host: Host, project: Path) -> str:
    """A session on the laptop that has read and changed a file."""
    host.model.add(
        {
            **uses("Write", file_path=str(project / "new.txt"), content="new"),
            "when": {"user_contains": "begin"},
            "times": 1,
        },
        {"text": "done", "times": 0},
    )
    done = await host.laptop.run([str(project), "-p", "begin", "--permission-mode", "acceptEdits", *JSON])
    assert done.code == 0, done.stderr
    assert (project / "new.txt").read_text() == "new"
    return str(json.loads(done.stdout)["session_id"])


def move(host: Host, session: str, path: str, *words: str, port: int | None = None) -> list[str]:
    target = f"{host.login}:{path}"
    return ["move", "--local", session, target, *words, *host.server.client_options(port)]


async def test_a_session_goes_on_there_and_comes_back_with_its_past(host: Host, project: Path) -> None:
    session = await begin(host, project)
    before = journal(host.laptop.home, session)
    there = host.put("app")
    done = await host.laptop.run(move(host, session, "app", "--no-files"))
    assert done.code == 0, done.stderr
    assert f"moved {session[:8]} to {host.login}:{there}" in done.stdout, done.stdout
    assert journal(host.home, session).startswith(before), "the history stays byte for byte"
    done = await host.run("--resume", session, "-p", "go on", *JSON, path="app")
    assert done.code == 0, done.stderr
    said = json.dumps(host.model.requests[-1].body)
    assert f"what was said about paths below {project} holds below {there}" in said
    assert said.count("has moved to another machine") == 1
    done = await host.laptop.run([str(project), "--resume", session, "-p", "go on", *JSON])
    assert done.refuses(2, "has moved to", str(host.login)), done.stderr
    back = ["move", host.login, session, str(project), "--no-files", *host.server.client_options()]
    done = await host.laptop.run(back)
    assert done.code == 0, done.stderr
    done = await host.laptop.run([str(project), "--continue", "-p", "and now?", *JSON])
    assert done.code == 0 and json.loads(done.stdout)["session_id"] == session, done.stderr
    prompt = prompt_ids(host.laptop.home, session)[0]
    done = await host.laptop.run([str(project), "--resume", session, "--rewind-files", prompt])
    assert done.code == 0 and not (project / "new.txt").exists(), done.stderr


async def test_without_an_answer_about_the_files_nothing_moves(host: Host, project: Path) -> None:
    session = await begin(host, project)
    async with host.laptop.on_terminal(*move(host, session, "app")) as running:
        await running.shows("Take the files along")
        running.type("perhaps\r")
        assert await running.ended() == 2
    assert "nothing was moved" in running.text and owners(host, session) == ["laptop"]


async def test_what_is_not_committed_goes_along_as_it_is(host: Host, project: Path) -> None:
    git(project, "init", "-q", "-b", "work")
    for name, text in (("kept", "1"), ("gone", "1"), ("changed", "1"), (".gitignore", "ignored\n")):
        (project / name).write_text(text)
    git(project, "add", "-A")
    git(project, "commit", "-q", "-m", "first")
    (project / "gone").unlink()
    (project / "changed").write_text("2")
    (project / "ignored").write_text("secret")
    session = await begin(host, project)
    there = host.put("app")
    done = await host.laptop.run(move(host, session, "app", "--with-files"))
    assert done.code == 0, done.stderr
    assert sorted(each.name for each in there.iterdir()) == [".git", ".gitignore", "changed", "kept", "new.txt"]
    assert (there / "changed").read_text() == "2"
    assert (there / "changed").stat().st_mode & 0o777 == 0o644, "as the umask of the user has it"
    assert git(there, "status", "--porcelain", "--branch").splitlines() == [
        "## work",
        " M changed",
        " D gone",
        "?? new.txt",
    ]
    assert git(there, "log", "--format=%s") == "first\n"
    assert git(project, "status", "--porcelain").splitlines() == [" M changed", " D gone", "?? new.txt"]
    back = ["move", host.login, session, str(project), "--with-files", *host.server.client_options()]
    done = await host.laptop.run(back)
    assert done.refuses(2, "not committed"), "nothing goes over a dirty tree"


REFUSED = [
    (["--no-files", "nowhere"], 66, "mkdir -p"),
    (["app"], 2, "--with-files or --no-files"),
    (["--with-files", "app"], 2, "not in a repository"),
    (["--with-files", "full"], 2, "is not empty"),
]


async def test_a_move_that_cannot_be_is_refused_and_the_session_stays(host: Host, project: Path) -> None:
    session = await begin(host, project)
    host.put("app")
    host.put("full/file", b"x")
    for words, code, says in REFUSED:
        done = await host.laptop.run(move(host, session, words[-1], *words[:-1]))
        assert done.refuses(code, says)
    done = await host.laptop.run([str(project), "--resume", session, "-p", "go on", *JSON])
    assert done.code == 0, done.stderr


SIZE = 3_000_000  # of what a session has kept: most of the bytes that a move carries


async def kept_much(host: Host, project: Path) -> str:
    session = await begin(host, project)
    folder = host.laptop.home / ".local/state/ccb/sessions" / session / "outputs"
    folder.mkdir(mode=0o700, exist_ok=True)
    (folder / "0001-log").write_bytes(os.urandom(SIZE))
    host.put("app")
    return session


def owners(host: Host, session: str) -> list[str]:
    found = []
    for name, home in (("laptop", host.laptop.home), ("host", host.home)):
        directory = home / ".local/state/ccb/sessions" / session
        if (directory / "journal.jsonl").exists() and not (directory / "moved").exists():
            found.append(name)
    return found


@pytest.mark.quick_rows(1)
@pytest.mark.parametrize("fault", ["freeze", "reset", "close"])
async def test_a_move_goes_on_after_its_connection_was_cut_or_frozen(host: Host, project: Path, fault: str) -> None:
    session = await kept_much(host, project)
    async with relay(host.server.port) as between:
        between.faults = [Fault(fault, SIZE // 2, True, seconds=2.0)]
        host.server.trust(between.port)
        done = await host.laptop.run(move(host, session, "app", "--no-files", port=between.port))
        assert between.faults[0].happened
    assert done.code == 0, done.stderr
    assert owners(host, session) == ["host"]


@pytest.mark.quick_rows(1)
@pytest.mark.parametrize("at", [1.05, 0.5, 0.01, 1.0])
async def test_a_move_whose_laptop_was_killed_has_one_owner_and_ends_when_given_again(
    host: Host, project: Path, at: float
) -> None:
    session = await kept_much(host, project)
    async with relay(host.server.port) as between:
        host.server.trust(between.port)
        words = move(host, session, "app", "--no-files", port=between.port)
        async with host.laptop.start(words, piped=False) as running:

            async def kill() -> None:
                running.process.kill()

            between.faults = [Fault("call", int(SIZE * at), True, act=kill)]
            await running.process.wait()
        assert owners(host, session) in (["laptop"], ["host"], [])
        done = await host.laptop.run(words)
    if done.code:
        assert done.refuses(2, "another move of this session is under way"), "the killed one is heard to its end"
        done = await host.laptop.run(move(host, session, "app", "--no-files"))
    assert done.code == 0, done.stderr
    assert owners(host, session) == ["host"]
    done = await host.run("--resume", session, "-p", "go on", *JSON, path="app")
    assert done.code == 0, done.stderr


async def test_a_session_goes_into_a_file_and_out_of_it(host: Host, project: Path, tmp_path: Path) -> None:
    session = await begin(host, project)
    words = ["export", f"{host.login}:app", *host.server.client_options()]
    assert (await host.laptop.run(words)).refuses(1, "no sessions of this directory")
    done = await host.laptop.run(["export", "--local", session, "--output", str(tmp_path / "kept.tar")])
    assert (done.code, done.stdout.partition(" (")[0]) == (0, f"exported {session[:8]} to {tmp_path}/kept.tar"), (
        done.stderr
    )
    assert (tmp_path / "kept.tar").stat().st_mode & 0o777 == 0o600
    words = ["import", str(tmp_path / "kept.tar"), f"{host.login}:app", *host.server.client_options()]
    assert (await host.laptop.run(words)).refuses(66, "mkdir -p")
    assert (await host.laptop.run(["import", "nothing.tar", *words[2:]])).refuses(2, "nothing.tar: No such file")
    host.put("app")
    done = await host.laptop.run(words)
    assert done.code == 0, done.stderr
    assert (await host.laptop.run(words)).refuses(2, "is on this host already")
    again = ["export", f"{host.login}:app", *host.server.client_options(), "--output", str(tmp_path / "again.tar")]
    done = await host.laptop.run(again)
    assert done.stdout.startswith(f"exported {session[:8]} to {tmp_path}/again.tar"), done.stderr
    done = await host.run("--resume", session, "-p", "go on", *JSON, path="app")
    assert done.code == 0, done.stderr
    assert sorted(each.name for each in tmp_path.glob("*[.]tar*")) == ["again.tar", "kept.tar"], "nothing is left over"
    (tmp_path / "kept.tar").write_bytes((tmp_path / "kept.tar").read_bytes()[:-2000])
    assert (await host.laptop.run(words)).refuses(1, "cannot be taken as a session")


async def test_a_transcript_of_claude_code_goes_on_as_a_session(here: Here) -> None:
    session = "3f2a9c1e-0000-4000-8000-000000000001"
    said = [("user", "a", None, "what is here?"), ("assistant", "b", "a", [{"type": "text", "text": "A file."}])]
    lines = [
        {"type": kind, "uuid": name, "parentUuid": before, "sessionId": session, "cwd": "/home/me/app",
         "message": {"role": kind, "content": content, "id": "msg_1", "model": "claude-opus-4-5"}}
        for kind, name, before, content in said
    ]  # fmt: skip
    (here.laptop.home / "t.jsonl").write_text("".join(f"{json.dumps(each)}\n" for each in lines))
    done = await here.laptop.run(["import", "--from", "claude", "t.jsonl", str(here.project)])
    assert done.code == 0 and "Not carried" in done.stderr, done.stderr
    here.model.add({"text": "still one", "times": 0})
    done = await here.run("--resume", session, "-p", "and now?", *JSON)
    assert done.code == 0, done.stderr
    asked = json.dumps(here.model.requests[-1].body)
    assert all(text in asked for text in ("what is here?", "A file.", f"below /home/me/app holds below {here.project}"))


def git(directory: Path, *words: str) -> str:
    own = ["-c", "user.name=me", "-c", "user.email=me@here", "-c", f"safe.directory={directory}"]
    done = subprocess.run(["git", *own, *words], cwd=directory, capture_output=True, text=True, check=True)
    return done.stdout


def prompt_ids(home: Path, session: str) -> list[str]:
    records = [json.loads(line) for line in journal(home, session).splitlines()]
    return [
        each["body"]["body"]["uuid"] for each in records if each["kind"] == "input" and "uuid" in each["body"]["body"]
    ]


def journal(home: Path, session: str) -> bytes:
    return (home / ".local/state/ccb/sessions" / session / "journal.jsonl").read_bytes()
