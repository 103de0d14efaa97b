"""Makes command lines: from a grammar over bash and dash, and by changing the lines of the corpus."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator

from tests.remote.permissions.corpus.rows import FILES, rows


def _words(text: str) -> list[str]:
    return text.split()


_READERS = _words(
    "cat ls echo printf head wc grep find sort uniq test [ git xargs env timeout nice command time sed jq rg diff cut"
    " basename dirname stat date tr true : cd pwd id which type seq tac nl od cmp comm paste fold realpath readlink"
    " file tree du sha256sum md5sum printenv set exit sleep nohup stdbuf tail expand join column whereis"
)
_OTHERS = _words(
    "touch rm cp tee sh bash eval exec read export declare unset ./run run source . alias trap let mapfile pushd popd"
    " local typeset readonly getopts shopt hash builtin enable wait mkdir ln python3 awk make"
)
_PATHS = _words(
    "a.txt src/b.py c all link -link - é out l way secrets/key sub/same src sub . .. ../other/c ../other ../oth* ./-"
    " l/../.. out/c sub/../a.txt OUT/c OUT HOME/.ssh/id ~ ~/.ssh/id ~/x a=~/.ssh/id a=~/x b:~/x made ./run run"
    " /dev/null /dev/stdin /proc/self/cwd/a.txt /proc/self/root ~root ~+ ~- -n -l -la -r -R -f -e -v -c -o -i -1 -- x"
    " 1 5 -exec {} + \\; {PATH} {a[y]} {x} ! = ( ) -type d -name"
)
_GLOBS = _words("* ? ?? l* lin? [l]ink .* ../* ../oth* src/* src/?.py OUT/* OUT/.* */same é* [a-z]* [[:alpha:]]* *.txt")
_EXPANSIONS = _words(
    '$x ${x} "$x" $HOME $PATH $_ $? $$ $! $# $@ $* $1 $- ${x:-y} ${x:=made} ${x@P} ${!x} ${#x} ${x[y]} $BASH_COMMAND'
    ' $((1)) $((PATH=0)) $[1] "${x}" $IFS ${PATH} $PWD'
)
_FORMATS = _words("%s %d %n %5n %% %b %q %*d %(%F)T -v %s\\n '%s %n' %c")
_GIT = _words(
    "status diff log show branch tag blame ls-files grep config stash remote describe reflog -c core.pager=./run"
    " --no-index --output=made --ext-diff --textconv -p --stat HEAD HEAD~1 --format=%G? --show-signature -C .. --list"
    " --get user.name -O --submodule=diff -- a.txt"
)
_SEPARATORS = ["; ", " && ", " || ", " | ", " & ", "\n", " |& ", ";", "&", "|", "\\\n", " \\\n", "&&\\\n"]
_REDIRECTS = [">", ">>", "<", "2>", "&>", "<>", ">|", ">&", "<&", "<<<", "{PATH}>", "{x}<", "1\\\n2>", ">\\\n", "2>&1"]
_SPLICES = [
    *("\\\n", "\\", "'", '"', "$", "(", ")", "`", ";", "&", "|", "<", ">", "#", "{", "}", "=", "~", "*", "!", "?", "["),
    *(" ", "\t", "\n", ",", "$(", "((", "))", "${", "&>", "<<E\n", "\nE\n", "x=", "$'", '$"', "é", "\u00a0", "日\\"),
    *("-", "--", "%n", "]", ":", "=~", "{PATH}>", "{a[y]}>", "$x", "touch made", "./run", " made", "../other/c", "^"),
]
_TOKEN = re.compile(r"\s+|[A-Za-z0-9_./%=~-]+|.", re.DOTALL)


class Lines:
    """An endless source of lines. `outside` and `home` are directories of the playground, for absolute paths."""

    def __init__(self, seed: int, outside: str, home: str) -> None:
        self._random = random.Random(seed)
        self._places = {"OUT": outside, "HOME": home}
        every = [(self._moved(row.command), row.expected.value) for file in FILES for row in rows(file)]
        self.corpus = [line for line, _ in every]
        self._let_through = [line for line, expected in every if expected == "allow"]

    def __iter__(self) -> Iterator[str]:
        while True:
            kind = self._random.random()
            if kind < 0.35:
                yield self._list(0)
            elif kind < 0.85:
                yield self._changed(self._random.choice(self._let_through))
            else:
                yield self._changed(self._random.choice(self.corpus))

    def _moved(self, line: str) -> str:
        """Return a line with absolute paths in the playground, and with a harmless command for a harmful one."""
        line = line.replace("/etc/passwd", self._places["OUT"] + "/c").replace("/root", self._places["HOME"])
        line = line.replace("/etc", self._places["OUT"])
        return re.sub(r"\brm\b", "touch", line)

    def _pick(self, items: list[str]) -> str:
        return self._random.choice(items)

    def _chance(self, probability: float) -> bool:
        return self._random.random() < probability

    def _list(self, depth: int) -> str:
        parts = [self._command(depth)]
        while self._chance(0.3):
            parts += [self._pick(_SEPARATORS), self._command(depth)]
        return "".join(parts)

    def _command(self, depth: int) -> str:
        kind = self._random.random()
        if depth < 2 and kind < 0.05:
            return f"({self._list(depth + 1)})"
        if depth < 2 and kind < 0.09:
            return "{ " + self._list(depth + 1) + "; }"
        if depth < 2 and kind < 0.11:
            return self._pick(["if {}; then {}; fi", "for x in a; do {}; {}; done", "f() {{ {}; }}; {}"]).format(
                self._list(depth + 1), self._list(depth + 1)
            )
        return self._simple(depth)

    def _simple(self, depth: int) -> str:
        words: list[str] = []
        if self._chance(0.2):
            words.append(self._pick(_words("x= y= PATH= LC_ALL= TZ= IFS= x+= CDPATH=")) + self._word(depth))
        if not words or self._chance(0.8):
            name = self._pick(_READERS) if self._chance(0.9) else self._pick(_OTHERS)
            words.append(name if self._chance(0.93) else self._quoted(name))
            words += self._arguments(name, depth)
        if self._chance(0.2):
            at = self._random.randrange(len(words) + 1)
            words.insert(at, self._pick(_REDIRECTS) + self._pick(["", " "]) + self._word(depth))
        return " ".join(words)

    def _arguments(self, name: str, depth: int) -> list[str]:
        if name == "git":
            return [self._pick(_GIT) for _ in range(self._random.randrange(1, 4))]
        if name == "printf" and self._chance(0.8):
            return [self._pick(_FORMATS), self._word(depth)]
        if name in ("sleep", "seq", "timeout"):
            return ["0.01", *(self._word(depth) for _ in range(self._random.randrange(2)))]
        if name == "find" and self._chance(0.6):
            tail = self._pick(["-name x", "-type f", "-type f -exec {} {{}} +", "-exec {} {{}} \\;", "-print", "-L"])
            return [self._pick(_PATHS), tail.format(self._pick(_READERS))]
        if name in ("env", "nice", "command", "time", "nohup", "xargs", "stdbuf") and self._chance(0.7):
            return [self._simple(depth + 1)] if depth < 3 else ["ls"]
        return [self._word(depth) for _ in range(self._random.randrange(4))]

    def _word(self, depth: int) -> str:
        kind = self._random.random()
        if kind < 0.5:
            word = self._pick(_PATHS)
        elif kind < 0.65:
            word = self._pick(_GLOBS)
        elif kind < 0.8:
            word = self._pick(_EXPANSIONS)
        elif kind < 0.86 and depth < 2:
            word = self._pick(["$({})", "`{}`", '"$({})"', "<({})", ">({})", "$(\\\n{})"]).format(self._list(depth + 1))
        elif kind < 0.9:
            word = self._pick(["$'\\x2e\\x2e/other/c'", "{a.txt,link}", "{1..2}", "a\\\n.txt", "''", '""'])
        else:
            word = self._quoted(self._pick(_PATHS))
        for name, path in self._places.items():
            word = word.replace(name + "/", path + "/") if "$" not in word else word
        return word + self._word(depth + 1) if self._chance(0.08) else word

    def _quoted(self, text: str) -> str:
        quote = self._pick(["'", '"', "\\"])
        if quote == "\\":
            at = self._random.randrange(len(text)) if text else 0
            return text[:at] + "\\" + text[at:]
        return quote + text + quote

    def _changed(self, line: str) -> str:
        """Return a line with a few tokens put in, taken out, doubled, exchanged, or replaced by those of another."""
        tokens = _TOKEN.findall(line) or [""]
        for _ in range(self._random.choice((1, 1, 1, 2, 2, 3))):
            at = self._random.randrange(len(tokens) + 1)
            kind = self._random.random()
            if kind < 0.4:
                tokens.insert(at, self._pick(_SPLICES))
            elif kind < 0.5:
                del tokens[at : at + 1]
            elif kind < 0.6:
                tokens[at:at] = tokens[at : at + 2]
            elif kind < 0.75:
                tokens[at : at + 1] = [self._word(1)]
            elif kind < 0.9:
                other = _TOKEN.findall(self._pick(self.corpus))
                start = self._random.randrange(len(other) + 1)
                tokens[at:at] = other[start : start + self._random.randrange(1, 5)]
            else:
                tokens.insert(at, self._pick(_SEPARATORS) + self._simple(1))
        return "".join(tokens)
