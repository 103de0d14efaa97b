"""The words of a packed bundle: what the laptop codes, the stub spells out again, however the network cuts it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from ccb.deploy.bundle import load
from ccb.deploy.bundling.files import files_of, joined
from ccb.deploy.bundling.words import coded

_STUB = (Path(__file__).resolve().parents[2] / "deploy" / "stub.py").read_text(encoding="utf-8")


def _spelled(packed: bytes, size: int) -> bytes:
    stub: dict[str, Any] = {}
    exec(_STUB[_STUB.index("class Words:") : _STUB.index("def unpacker(")], {"re": __import__("re")}, stub)
    words = stub["Words"]()
    return b"".join(words.spell(packed[at : at + size]) for at in range(0, len(packed), size))


_WORDS = st.sampled_from(["self", "Self", "SELF", "return ", "a", "\n", " ", "é", "…", "\x01", "\x7f", "\x90", "_x"])
_SOURCES = st.lists(_WORDS, max_size=60).map("".join)


@given(st.lists(st.tuples(_SOURCES, _SOURCES), max_size=4), st.integers(1, 70))
def test_every_bundle_is_spelled_out_again(files: list[tuple[str, str]], size: int) -> None:
    bundle = joined({f"{number}{name}": text for number, (name, text) in enumerate(files)})
    assert _spelled(coded(bundle), size) == bundle


def test_the_worker_is_spelled_out_again_and_shorter() -> None:
    bundle = load().data
    packed = coded(bundle)
    assert len(packed) < len(bundle) * 2 / 3
    assert _spelled(packed, 9973) == bundle
    assert joined(files_of(bundle)) == bundle
