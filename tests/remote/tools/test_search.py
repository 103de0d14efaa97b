"""Grep and Glob: one meaning, whatever program of the host helps with the search."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.remote.bundle_in_memory import bundle_of_the_sources, imports_from
from tests.remote.tools.search_kit import Json, glob, grep, ripgrep
from tests.remote.tools_kit import Toolbox, opened_context, plant, write
from tests.support.machine.programs import shell_script

from ccb.remote.search_program.globs import BadRequest, Globs, Ignore
from ccb.remote.search_program.scan import Pattern, required
from ccb.remote.search_program.search_main import answer
from ccb.remote.search_program.walk import Limits, files, walk
from ccb.remote.tools.search_process import BOOT, load_program, search
from ccb.remote.tools.search_tools import Glob, Grep
from ccb.remote.tools.tool_contract import ToolRefused


def _backends(directory: Path) -> dict[str, Json]:
    return {
        "rg": {"rg": ripgrep()},
        "rg too old for our options": {"rg": str(shell_script(directory / "old-rg", "exit 2"))},
        "nothing": {"rg": ""},
    }


def _corpus(box: Toolbox, *, repository: bool = True) -> None:
    if repository:
        subprocess.run(["git", "init", "-q", str(box.root)], check=True)
    box.write(".gitignore", "*.log\n/build/\n!keep.log\nnode_modules/\nsub/*.tmp\n", age=1000)
    box.write("a.py", "import os\nneedle here\nNEEDLE there\n\ndef f():\n    return 'needle'\n", age=10)
    box.write("src/b.ts", "const needle = 1;\r\nlet x = 2;\r\n// end\r\n", age=20)
    box.write("src/deep/c.tsx", "no\nünïcode needle ß\nKelvin K ſharp\n", age=5)
    box.write(".hidden/d.txt", "needle in hidden\n", age=30)
    box.write("debug.log", "needle ignored\n", age=1)
    box.write("keep.log", "needle kept\n", age=40)
    box.write("build/out.js", "needle built\n", age=1)
    box.write("src/build/out.js", "needle not at the root\n", age=50)
    box.write("node_modules/m/index.js", "needle module\n", age=1)
    box.write("sub/x.tmp", "needle tmp\n", age=1)
    box.write("sub/sub2/x.tmp", "needle deeper tmp\n", age=60)
    box.write("bin.dat", b"needle\0binary\n", age=1)
    box.write("late.dat", b"needle\n" + b"x" * 10_000 + b"\0\n", age=70)
    box.write("latin.txt", b"caf\xe9 needle\n", age=80)
    box.write("wide.txt", "w" * 3000 + "needle" + "w" * 3000 + "\n", age=90)
    box.write("sp ace/we'ird\n.txt", "needle", age=100)
    box.write("-dash.txt", "needle\n", age=110)
    box.write("empty.txt", "", age=120)
    box.write("nested/.gitignore", "secret*\n", age=130)
    box.write("nested/secret.txt", "needle secret\n", age=1)
    box.write("nested/open.txt", "needle\nneedle\nx\nx\nx\nx\nneedle\n", age=140)
    box.write("broken16.txt", b"\xff\xfeneedle\n", age=150)
    box.write("mark8.txt", b"\xef\xbb\xbfneedle\n", age=160)
    box.write("utf16.txt", "needle\n".encode("utf-16"), age=170)
    box.write("é.py", "needle\n", age=180)
    (box.root / "link.txt").symlink_to("a.py")
    (box.root / "linkdir").symlink_to("src")


_CONTENT = [
    *("needle", "; *$", "end$|kept$", "ünïcode", "sharp", "caf. needle", r"^$", r"^\s*return\b.*'(\w+)'$", "w+needle"),
    *(r"(?<=const )needle", r"(?i)NEEDLE t", r"[[:alpha:]]+ here", r";\r$"),
]
SEARCHES: list[Json] = [
    *({"pattern": pattern, "mode": "content"} for pattern in _CONTENT),
    *({"pattern": pattern, "mode": "content", "ignore_case": True} for pattern in ("ÜNÏCODE", "KELVIN k", "sharp")),
    *({"pattern": pattern, "mode": "content", "multiline": True} for pattern in (r"here\nNEEDLE", r"1;\nlet")),
    {"pattern": r"needle.*x", "mode": "content", "multiline": True, "globs": ["nested/*"]},
    *({"pattern": "needle", "globs": globs} for globs in (["*.{ts,tsx}"], ["src/**/*.ts*"], ["*.log", "*.tmp"])),
    *({"pattern": "needle", **more} for more in ({}, {"ignore_case": True}, {"limit": 0}, {"type": "py"})),
    *({"pattern": "needle", "limit": 2, "offset": offset} for offset in (0, 2)),
    {"pattern": "needle", "mode": "content", "before": 1, "after": 2},
    {"pattern": "needle", "mode": "content", "after": 1, "limit": 7, "offset": 3},
    {"pattern": "needle", "mode": "content", "type": "ts"},
    {"pattern": "needle", "globs": ["!*.py", "!src"]},
    {"pattern": r"(foo|need)le", "mode": "count"},
    {"pattern": "-dash|needle", "globs": ["-dash.txt"], "mode": "content"},
    {"pattern": "nowhere at all"},
]


@pytest.mark.parametrize("repository", [True, False], ids=["git", "no git"])
async def test_every_backend_gives_the_same_answers(box: Toolbox, tmp_path: Path, repository: bool) -> None:
    _corpus(box, repository=repository)
    globs = ("*", "**/*.py", "*.{ts,tsx}", "src/**", "/a.py", ".*", "!*.txt", "**/x.tmp", "[ab].*", "w?ird*", "?.py")
    requests = [grep(root=box.root, **more) for more in SEARCHES]
    for request in (*requests, *(glob(box.root, globs=[pattern]) for pattern in globs)):
        answers = {name: answer({**request, **backend}) for name, backend in _backends(tmp_path).items()}
        expected = answers.pop("nothing")
        for name, found in answers.items():
            assert found == expected, f"{name}: {request}"


async def test_the_answer_is_the_right_one(box: Toolbox) -> None:
    _corpus(box)
    found = answer(grep("needle", box.root))
    assert found["items"] == [
        *("src/deep/c.tsx", "a.py", "src/b.ts", ".hidden/d.txt", "keep.log", "src/build/out.js", "sub/sub2/x.tmp"),
        *("late.dat", "latin.txt", "wide.txt", r"sp ace/we'ird\n.txt", "-dash.txt", "nested/open.txt"),
        *("mark8.txt", "utf16.txt", "é.py"),
    ]
    by_name = answer(grep("needle", box.root, globs=["?.py"]))
    assert by_name["items"] == ["a.py", "é.py"], "? stands for a character, not for a byte"
    lines = answer(grep("needle$", box.root, globs=["nested/*"], mode="content", before=1, after=1))
    shown = [":1:needle", ":2:needle", "-3-x", "--", "-6-x", ":7:needle"]
    assert lines["items"] == [line if line == "--" else f"nested/open.txt{line}" for line in shown]
    assert (lines["files"], lines["matches"], lines["more"]) == (1, 3, False)
    shutil.rmtree(box.root / ".git")
    ignored = answer(grep("needle ignored|needle built", box.root))
    assert sorted(ignored["items"]) == ["build/out.js", "debug.log"], "without a repository nothing is ignored"


async def test_rules_above_the_searched_directory_count_up_to_the_repository(box: Toolbox, tmp_path: Path) -> None:
    _corpus(box)
    subprocess.run(["git", "init", "-q", str(box.root / "vendor")], check=True)
    box.write("vendor/z.log", "needle\n")
    box.write("vendor/in/y.log", "needle\n")
    box.write("src/x.log", "needle\n")
    for name, backend in _backends(tmp_path).items():
        inner = answer(grep("needle", box.root / "vendor", limit=0, **backend))
        assert sorted(inner["items"]) == ["in/y.log", "z.log"], name
        outer = answer(grep("needle", box.root, globs=["*.log"], **backend))
        assert sorted(outer["items"]) == ["keep.log", "vendor/in/y.log", "vendor/z.log"], name
        below = answer(grep("needle", box.root / "src", globs=["*.log"], **backend))
        assert below["items"] == [], name
        ignored = answer(grep("needle", box.root / "node_modules" / "m", **backend))
        assert ignored["items"] == ["index.js"], name


_NAME = st.sampled_from(["a", "b", "ab", "a.log", "b.txt", "build", "x y", ".h"])
_PARTS = ["a", "b", "*", "a*", "*.log", "build", "**", "?", "[ab]", "[!a]*", "x\\ y", ".h"]
_RULE = st.builds(
    lambda neg, lead, parts, end: neg + lead + "/".join(parts) + end,
    st.sampled_from(["", "", "!"]),
    st.sampled_from(["", "/", "**/"]),
    st.lists(st.sampled_from(_PARTS), min_size=1, max_size=3),
    st.sampled_from(["", "/", "/**", " ", "\r"]),
)  # fmt: skip


@given(
    st.sets(st.lists(_NAME, min_size=1, max_size=3).map("/".join), max_size=12),
    st.lists(_RULE, max_size=5),
    st.lists(_RULE, max_size=3),
)
@pytest.mark.programs
def test_gitignore_means_what_it_means_to_git(
    tmp_path_factory: pytest.TempPathFactory, paths: set[str], rules: list[str], inner: list[str]
) -> None:
    root = tmp_path_factory.mktemp("tree")
    subprocess.run(["git", "init", "-q", str(root)], check=True)
    for path in sorted(paths):
        if not any((root / parent).is_file() for parent in Path(path).parents) and not (root / path).is_dir():
            write(root / path, "x")
    (root / ".gitignore").write_bytes(("\n".join(rules) + "\n").encode())
    if (root / "a").is_dir():
        (root / "a" / ".gitignore").write_bytes(("\n".join(inner) + "\n").encode())
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-per-directory=.gitignore"],
        cwd=root,
        check=True,
        stdout=subprocess.PIPE,
    )
    expected = sorted(name for name in listed.stdout.decode().split("\0") if name)
    limits = Limits(time.monotonic() + 20, Ignore.at(str(root)))
    assert sorted(walk(str(root), limits)) == expected
    assert sorted(files(str(root), [], limits, ripgrep())) == expected


@pytest.mark.parametrize(
    ("pattern", "matches", "others"),
    [
        ("*.py", ["a.py", "x/y/a.py", ".py"], ["a.pyc", "a.py/x"]),
        ("**/*.py", ["a.py", "x/y/a.py"], ["a.pyc"]),
        ("src/*.ts", ["src/a.ts"], ["src/x/a.ts", "x/src/a.ts"]),
        ("/a", ["a"], ["x/a"]),
        ("src/**", ["src/a", "src/x/y"], ["src", "x/src/a"]),
        ("src/", ["src/a"], ["a"]),
        ("a/**/b", ["a/b", "a/x/b", "a/x/y/b"], ["ab", "a/xb"]),
        ("*.{js,ts}{,x}", ["a.js", "a.tsx", "b.jsx"], ["a.j"]),
        ("{a,b{c,d}}", ["a", "bc", "bd"], ["b"]),
        ("[!a]?", ["bx"], ["ax", "b/"]),
        ("a{b", ["a{b"], ["ab"]),
        (r"\*", ["*"], ["a"]),
        ("!*.md", ["a.py", "x/b"], ["a.md", "x/a.md"]),
        ("!docs", ["a"], ["docs/a", "x/docs/y/z"]),
    ],
)
def test_globs(pattern: str, matches: list[str], others: list[str]) -> None:
    globs = Globs([pattern])
    assert [path for path in matches if not globs.match(path)] == []
    assert [path for path in others if globs.match(path)] == []


_REGEX = st.recursive(
    st.sampled_from(["ab", "abc", "k", "s", "é", ".", r"\w", "[a-c]", r"\b", "^", "$", "ab?", "a+"]),
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=3).map("".join),
        st.lists(inner, min_size=2, max_size=3).map(lambda parts: "(?:" + "|".join(parts) + ")"),
        st.tuples(inner, st.sampled_from(["*", "+", "?", "{2}", "{0,1}", "+?"])).map(lambda p: f"(?:{p[0]}){p[1]}"),
        inner.map(lambda p: f"(?i:{p})"),
        inner.map(lambda p: f"(?={p})"),
    ),
    max_leaves=6,
)


@given(_REGEX, st.text(alphabet="abcABCkKsſKéÉ ", max_size=12), st.booleans())
def test_no_match_lacks_its_required_texts(pattern: str, line: str, ignore_case: bool) -> None:
    found = Pattern(pattern, ignore_case)
    if found.regex.search(line):
        assert found.may_match(line.encode())


def test_required_texts_are_found() -> None:
    assert required(r"def\s+handle_\w+\(", 0) == (["handle_"], False)
    assert required(r"foo|barbar", 0) == (["barbar", "foo"], False)
    assert required(r"(abc)+x?", 0) == (["abc"], False)
    assert required(r"\d+", 0) == ([], False)
    assert required("Error Text", re.IGNORECASE) == (["Error Text"], True)
    assert required(r"(?i)kind", 0) == (["nd"], True)


@pytest.mark.parametrize("pattern", ["(", "[a", "a{2,1}", "*a", r"\p{L}", "[[:nothing:]]", "(?P<a"])
def test_what_is_no_pattern_is_a_clear_error(pattern: str) -> None:
    with pytest.raises(BadRequest, match=r"pattern"):
        Pattern(pattern)


async def test_grep_gives_paths_content_and_counts(box: Toolbox) -> None:
    box.write("a.py", "one\ntwo\nthree\n", age=10)
    box.write("b/c.py", "two two\n", age=5)
    assert await box.text("Grep", pattern="two") == "Found 2 files\nb/c.py\na.py"
    assert await box.text("Grep", pattern="two", output_mode="content") == "a.py:2:two\nb/c.py:1:two two"
    assert await box.text("Grep", pattern="two", output_mode="content", **{"-n": False, "-A": 1}) == (
        "a.py:two\na.py-three\n--\nb/c.py:two two"
    )
    counted = await box("Grep", pattern="two", output_mode="count")
    assert counted.content == "a.py:1\nb/c.py:1\n\nFound 2 matching lines in 2 files."
    assert counted.structured["numMatches"] == 2
    assert await box.text("Grep", pattern="two", path=str(box.root / "b")) == "Found 1 file\nb/c.py"
    assert await box.text("Grep", pattern="TWO", path="a.py", output_mode="content", **{"-i": True}) == "a.py:2:two"
    assert await box.text("Grep", pattern="four") == "No files found"
    assert await box.text("Grep", pattern="four", output_mode="content") == "No matches found"
    assert await box.text("Grep", pattern="two", glob="*.md, b/*.py") == "Found 1 file\nb/c.py"
    limited = await box.text("Grep", pattern="two", head_limit=1, output_mode="content")
    assert limited == "a.py:2:two\n[Showing results with pagination = limit: 1, offset: 0; go on with offset=1]"
    assert await box.text("Grep", pattern="two", head_limit=1, offset=1, output_mode="content") == "b/c.py:1:two two"


async def test_paths_are_relative_to_the_session_also_behind_a_link_and_others_absolute(tmp_path: Path) -> None:
    plant(tmp_path, "other/x: needle", "real/a: needle", "project -> real")
    async with opened_context(tmp_path / "project", tmp_path / "outputs") as context:
        result = await Grep().run({"pattern": "needle"}, context)
        assert result.content == "Found 1 file\na"
        result = await Grep().run({"pattern": "needle", "path": "a", "output_mode": "content"}, context)
        assert result.content == "a:1:needle"
        result = await Grep().run({"pattern": "needle", "path": str(tmp_path / "other")}, context)
        assert result.content == f"Found 1 file\n{tmp_path}/other/x"


@pytest.mark.parametrize("linked", [False, True], ids=["home", "a link to home"])
async def test_a_search_of_home_does_not_find_the_journals_of_its_sessions(linked: bool, tmp_path: Path) -> None:
    home = tmp_path / "home"
    session = home / ".local" / "state" / "ccb" / "sessions" / "3f2a9c1e"
    for path in (session / "journal.jsonl", session / "outputs" / "long", home / "mine"):
        write(path, "needle\n")
    root = tmp_path / "link" if linked else home
    if linked:
        root.symlink_to(home)
    async with opened_context(root, session / "outputs") as context:
        assert (await Grep().run({"pattern": "needle"}, context)).content == "Found 1 file\nmine"
        assert (await Glob().run({"pattern": "**"}, context)).content == str(root / "mine")
        within = await Grep().run({"pattern": "needle", "path": str(session / "outputs")}, context)
        assert "1 file" in str(within.content), "what the agent is told to look into is found there"


async def test_long_results_go_to_a_file(box: Toolbox) -> None:
    box.write("a", "".join(f"needle {n:05d} {'x' * 300}\n" for n in range(1000)))
    text = await box.text("Grep", pattern="needle", output_mode="content", head_limit=0)
    assert len(text) <= 30_000
    assert text.startswith("a:1:needle 00000")
    assert "a:1000:needle 00999" in text
    spilled = re.search(r"is in (\S+);", text)
    assert spilled
    assert Path(spilled[1]).read_text().count("needle") == 1000


async def test_searches_that_cannot_work_are_refused_before_they_start(box: Toolbox) -> None:
    assert "regular expression" in (box.refusal("Grep", pattern="(") or "")
    assert "multiline" in (box.refusal("Grep", pattern=r"a\nb") or "")
    assert box.refusal("Grep", pattern=r"a\\nb") is None
    assert "not known" in (box.refusal("Grep", pattern="a", type="klingon") or "")
    assert "256 patterns" in (box.refusal("Glob", pattern="{a,b}" * 9) or "")
    assert "10000" in (box.refusal("Grep", pattern="é" * 10_001) or "")
    assert await box.text("Grep", pattern="é" * 10_000) == "No files found"
    assert "does not exist" in await box.error("Grep", pattern="a", path="nowhere")
    assert "does not exist" in await box.error("Glob", pattern="a", path="nowhere")


async def test_a_pattern_that_explodes_freezes_nothing_and_ends(box: Toolbox, monkeypatch: pytest.MonkeyPatch) -> None:
    box.write("a", "a" * 60 + "!\n")
    monkeypatch.setattr("ccb.remote.tools.search_process._KILL_AFTER", 0.2)
    began = time.monotonic()
    try:  # on a busy machine the program notices the end of its time before it is killed
        found = await search(box.context, grep("(a+)+$", box.root, seconds=0.3), 0.3)
    except ToolRefused as failed:
        assert "stopped" in str(failed)
    else:
        assert found["partial"] or found["notes"]
    assert time.monotonic() - began < 20


async def test_what_was_listed_in_time_is_searched(box: Toolbox, tmp_path: Path) -> None:
    for age, name in enumerate(("one.txt", "two.txt", "cut.txt"), 1):
        box.write(name, "needle\n", age=age)
    slow = shell_script(tmp_path / "slow", "printf './one.txt\\0./two.txt\\0./cut.t'\nexec sleep 30")
    began = time.monotonic()
    more = {"seconds": 0.3, "rg": str(slow)}
    for request in (grep("needle", box.root, **more), glob(box.root, globs=["*"], **more)):
        found = answer(request)
        assert (found["items"], found["partial"]) == (["one.txt", "two.txt"], True)
    assert time.monotonic() - began < 20
    found = answer(grep("needle", box.root, seconds=-1))
    assert (found["items"], found["partial"]) == ([], True)


def test_the_program_loads_nothing_that_takes_long() -> None:
    shows = BOOT.replace("module.main(sys.argv[2])", "print(*sys.modules)")
    assert shows != BOOT
    argv = [sys.executable, "-I", "-S", "-c", shows, load_program(), "request"]
    loaded = subprocess.run(argv, capture_output=True, text=True, check=True).stdout.split()
    assert "ccb.remote.search_program.search_main" in loaded
    assert not {"subprocess", "threading", "typing", "asyncio"} & set(loaded)


async def test_devices_and_pipes_are_no_trouble(box: Toolbox) -> None:
    os.mkfifo(box.root / "pipe")
    box.write("a", "needle\n")
    assert await box.text("Grep", pattern="needle") == "Found 1 file\na"
    assert await box.text("Glob", pattern="*") == str(box.root / "a")
    assert "only files" in await box.error("Grep", pattern="x", path=str(box.root / "pipe"))


async def test_glob_gives_absolute_paths_newest_first(box: Toolbox) -> None:
    for number in range(105):
        box.write(f"d/{number:03d}.py", age=1000 - number)
    box.write("x/a.js", age=5)
    box.write("x/b.js", age=5000)
    assert await box.text("Glob", pattern="*.js") == f"{box.root}/x/a.js\n{box.root}/x/b.js"
    assert await box.text("Glob", pattern=f"{box.root}/x/*.js") == f"{box.root}/x/a.js\n{box.root}/x/b.js"
    assert await box.text("Glob", pattern="a*", path="x") == f"{box.root}/x/a.js"
    assert await box.text("Glob", pattern="*.rb") == "No files found"
    result = await box("Glob", pattern="**/*.py")
    lines = str(result.content).split("\n")
    assert lines[0].endswith("104.py")
    assert lines[100] == "(Results are truncated. Consider using a more specific path or pattern.)"
    assert (result.structured["numFiles"], result.structured["truncated"]) == (100, True)


async def test_the_program_runs_from_the_bundle_even_when_that_is_gone(tmp_path: Path) -> None:
    bundle = tmp_path / "worker.bundle"
    bundle.write_bytes(bundle_of_the_sources())
    write(tmp_path / "tree" / "a", "needle\n")
    script = f"""
{imports_from(bundle)}
import asyncio
from ccb.remote.tools.toolset import close_context, default_tools, make_context
async def main():
    tools = {{tool.name: tool for tool in default_tools()}}
    context = make_context({str(tmp_path / "tree")!r}, {str(tmp_path / "out")!r})
    print((await tools["Grep"].run({{"pattern": "needle"}}, context)).content)
    await close_context(context)
asyncio.run(main())
"""
    done = subprocess.run([sys.executable, "-I", "-c", script], stdout=subprocess.PIPE, check=True, cwd="/")
    assert done.stdout == b"Found 1 file\na\n"
