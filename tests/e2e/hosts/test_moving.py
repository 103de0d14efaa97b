"""Sessions that move: between the laptop and a host, with and without files, and over links that break."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from tests.support.hosts.reached_host import Host
from tests.support.model.model_script import uses

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


@pytest.mark.parametrize(
    "words, code, says",
    [
        (["--no-files", "nowhere"], 66, "mkdir -p"),
        (["app"], 2, "--with-files or --no-files"),
        (["--with-files", "app"], 2, "not in a repository"),
        (["--with-files", "full"], 2, "is not empty"),
    ],
)
async def test_a_move_that_cannot_be_is_refused_and_the_session_stays(
    host: Host, project: Path, words: list[str], code: int, says: str
) -> None:
    session = await begin(host, project)
    host.put("app")
    host.put("full/file", b"x")
    done = await host.laptop.run(move(host, session, words[-1], *words[:-1]))
    assert done.refuses(code, says)
    done = await host.laptop.run([str(project), "--resume", session, "-p", "go on", *JSON])
    assert done.code == 0, done.stderr


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
