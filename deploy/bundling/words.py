"""A bundle in which codes of one or two bytes stand for words: xz makes 8 % less of it.

The words come first, with commas between, and a zero byte behind them. The stub knows the same codes: see `Words`
there.
"""

from __future__ import annotations

import re
from collections import Counter

_WITH_SPACE = b"and|async|await|class|def|for|from|if|import|in|is|not|of|or|raise|return|the|to|while|with"
"""Words that a space follows nearly always."""

_WORD = re.compile(
    rb"\n {1,4}| import |\.get\(|self\._?|(?:" + _WITH_SPACE + rb") |[A-Z]?[a-z]{2,}|[A-Z]{2,}|[^ -~\n\0]"
)
"""A word, a beginning of a line, or a byte that is a code itself and so needs another one."""

_ONE = [bytes([code]) for code in (*range(1, 10), *range(11, 32), 127, *range(144, 256))]
_TWO = [bytes([first, second]) for first in range(128, 144) for second in range(128, 256)]

_MIN_COUNT = 3


def coded(bundle: bytes) -> bytes:
    """Return `bundle` with its words in front and their codes in it."""
    counts = Counter(_WORD.findall(bundle))
    words = sorted(counts, key=lambda word: (-(len(word) + 1) * counts[word], word))
    bytes_alone = [word for word in words if len(word) == 1]
    words = [word for word in words if len(word) > 1]
    # Alike words have codes that lie together: xz predicts what follows a byte from the upper half of its bits.
    short = sorted(
        words[: len(_ONE)], key=lambda word: (not word.endswith(b" "), not word.islower(), -counts[word], word)
    )
    rest = [word for word in words[len(_ONE) :] if counts[word] >= _MIN_COUNT]
    long = bytes_alone + rest[: len(_TWO) - len(bytes_alone)]
    codes = dict(zip([*short, *sorted(long)], _ONE + _TWO, strict=False))
    text = _WORD.sub(lambda match: codes.get(match[0], match[0]), bundle)
    return b",".join(codes) + b"\0" + text
