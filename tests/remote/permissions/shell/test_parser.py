"""What the reader of command lines understands, and what it leaves to a person."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import tempfile
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccb.remote.permissions.shell.shell_parser import parse
from ccb.remote.permissions.shell.shell_words import NotUnderstood
from ccb.remote.permissions.shell.wrappers import effective

SHELLS = [path for path in map(shutil.which, ("bash", "dash", "busybox")) if path]


def names(text: str) -> list[list[str]]:
    return [[word.text for word in command.words] for command in parse(text)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        *(("ls -l", [["ls", "-l"]]), ("a; b && c || d | e & f\ng |& h", [[c] for c in "abcdefgh"])),
        *(("(a; b) && { c; } | d", [["a"], ["b"], ["c"], ["d"]]), ("! a", [["a"]]), (r"\rm x", [["rm", "x"]])),
        *(('"rm" x', [["rm", "x"]]), ("r''m x", [["rm", "x"]]), ("r\\\nm x", [["rm", "x"]])),
        ("echo 'a;b' \"c && d\" e\\;f", [["echo", "a;b", "c && d", "e;f"]]),
        *(("echo a#b # rm x\nc", [["echo", "a#b"], ["c"]]), ("A=1 B=2 c", [["c"]])),
        ('echo $(a $(b)) `c` "$(d)" <(e) >(f)', [["b"], ["a", ""], ["c"], ["d"], ["e"], ["f"], ["echo"] + [""] * 5]),
        *(("cat <<X\nrm y\nX\nc", [["cat"], ["c"]]), ("cat <<-'X'\n$(rm y)\n\tX\nc", [["cat"], ["c"]])),
        ("a 2>&1 >/dev/null 2>/dev/null <<<x", [["a"]]),
        ("find . \\( -name a \\) -exec b {} \\;", [["find", ".", "(", "-name", "a", ")", "-exec", "b", "{}", ";"]]),
    ],
)
def test_every_simple_command_is_found(text: str, expected: list[list[str]]) -> None:
    assert names(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        *("echo 'a", 'echo "a', "echo a\\", "echo $(a", "(a", "a)", "{ a;", "}", "a;;b", "a; )", "echo `a"),
        *("$x y", "$(a) b", "`a` b", "a$x b", "~/a", "/bin/r* x", "r?", "{rm,x}", "echo {a,b}", "echo {1..3}"),
        *("f() { a; }", "f () ( a )", "function f { a; }", "if a; then b; fi", "for i in a; do b; done"),
        "while a; do b; done",
        *("case a in b) c;; esac", "[[ a ]]", "a &>f b", "coproc a", "select x in a; do b; done"),
        "until a; do b; done",
        *("((a=1))", "echo $((1))", "echo $[1]", "a=(b c)", "echo @(a|b)", "${x:=y} a", "echo ${x@P}", "echo ${!x}"),
        *("$'rm' x", "echo $'a'", 'echo $"a"', 'echo "$\\\n(rm x)"', "echo $\\\n(rm x)", "<\\\n(rm x)"),
        *("a\u00a0b", "a\u2028b", "a\u200bb", "a\rb", "a\x00b", "a\x1b[2Jb", "r\u043c x", "a\ud800"),
        *("cat <<X\n$(rm y)\nX", "cat <<X\na\\\nX\nX", "cat <<X\nabc", "cat <<$X\nX", "cat << \\X\na\nX"),
        "$(cat <<X\na\nX\n)",
        *("echo `a \\`b\\``", "a >", "a > | b", "a <", "-a", "=a", "a" * 30_000, "(" * 40 + "a" + ")" * 40),
    ],
    ids=ascii,
)
def test_what_is_not_certain_is_not_understood(text: str) -> None:
    with pytest.raises(NotUnderstood):
        parse(text)


@pytest.mark.parametrize(
    ("text", "writes", "reads"),
    [
        *(("a > f", ["f"], []), ("a >> f 2> g", ["f", "g"], []), ("a >| f", ["f"], []), ("a &> f", ["f"], [])),
        *(("a &>> f", ["f"], []), ("a >& f", ["f"], []), ("a <> f", ["f"], ["f"]), ("a < f", [], ["f"])),
        *(("> f", ["f"], []), ("a 2>&1 >&2 2>&- <&3", [], []), ("a 'x > y' \\> z", [], []), ("(a; b) > f", ["f"], [])),
        *(("{ a; } > f < g", ["f"], ["g"]), ("a>f", ["f"], []), ("a 3>f", ["f"], [])),
    ],
)
def test_redirections_name_the_files_they_open(text: str, writes: list[str], reads: list[str]) -> None:
    redirects = [redirect for command in parse(text) for redirect in command.redirects]
    assert [r.target.text for r in redirects if r.writes] == writes
    assert [r.target.text for r in redirects if not r.writes] == reads


@pytest.mark.parametrize(
    "text", ["{" * 6000 + "," * 6000, "{" * 2000 + "." * 4000, "=~" * 9000, "$x" * 9000, "[" * 19_000]
)
def test_reading_takes_linear_time(text: str) -> None:
    """A line as long as lines can be took minutes once."""
    began = time.process_time()
    with contextlib.suppress(NotUnderstood):
        parse(f"ls {text}")
    assert time.process_time() - began < 2


_ALPHABET = [
    *"a \n\\'\"$()`;&|<>#{}=~*!\t,",
    *("b c", "\\\n", "mark", "mark ", " mark", "time ", "&>", "$(", "<<E", "E", "x=1"),
]


@pytest.mark.parametrize("shell", SHELLS)
@given(st.lists(st.sampled_from(_ALPHABET), max_size=12).map("".join))
def test_a_shell_runs_nothing_that_the_reader_did_not_find(shell: str, text: str) -> None:
    """`mark` leaves a trace when it runs; then the reader must have found it, refused the line, or not followed it."""
    try:
        started = [effective(command) for command in parse(text)]
    except NotUnderstood:
        return
    if None in started or "mark" not in text:
        return
    script = 'mark() { echo RAN >&9; }\nexec 9>&1 >/dev/null 2>&1 </dev/null\neval "$LINE"'
    with tempfile.TemporaryDirectory() as empty:
        done = subprocess.run(
            [shell, *(["sh"] if shell.endswith("busybox") else []), "-c", script],
            env={"LINE": text, "PATH": empty, "HOME": empty},
            capture_output=True,
            timeout=20,
            check=False,
            cwd=empty,
        )
    if b"RAN" in done.stdout:
        assert "mark" in {command.name for command in started if command}
