"""The dataclasses of wire and worker behave as those of the standard library, whatever is cheap about them."""

from __future__ import annotations

import copy
import dataclasses
from functools import cached_property
from typing import Any, Callable, ClassVar, Generic, TypeVar

import pytest

from ccb.tunnel.wire import dataclass as module

T = TypeVar("T")
cheap: Any = module.dataclass


def _classes(dataclass: Any) -> dict[str, Any]:
    @dataclass(frozen=True)
    class Base:
        kind: ClassVar[str] = "base"
        a: int
        b: str = "b"
        c: list[int] = dataclasses.field(default_factory=list)

        @cached_property
        def twice(self) -> int:
            return 2 * self.a

    @dataclass(frozen=True)
    class Heir(Base):
        d: Any = dataclasses.field(default=None, metadata={"key": "D"})

        def __post_init__(self) -> None:
            if self.d == "bad":
                raise ValueError("bad")

    @dataclass(frozen=True)
    class Box(Generic[T]):
        inner: T

    @dataclass(frozen=True)
    class Empty:
        pass

    @dataclass(frozen=True)
    class Own:  # noqa: PLW1641 - the decorator adds __hash__
        a: int

        def __repr__(self) -> str:
            return "own"

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Own)

    @dataclass(frozen=True)
    class Shy:
        secret: str = dataclasses.field(repr=False)
        shown: int = 1

    @dataclass
    class Open:
        a: int = 1

    return {"Base": Base, "Heir": Heir, "Box": Box, "Empty": Empty, "Own": Own, "Shy": Shy, "Open": Open}


def _tried(act: Callable[[], Any]) -> tuple[str, str]:
    """What an action returns or raises, as text without the name of the function that has defined the classes."""
    try:
        return "returned", repr(act())
    except (TypeError, AttributeError, ValueError) as error:
        return type(error).__name__, str(error)


ACTIONS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "defaults": lambda c: c["Base"](1),
    "all by position": lambda c: c["Base"](1, "x", [3]),
    "by name": lambda c: c["Heir"](a=1, d=4),
    "each object has its own list": lambda c: c["Base"](1).c is c["Base"](1).c,
    "a missing field": lambda c: c["Base"](),
    "an unknown field": lambda c: c["Base"](1, z=2),
    "too many": lambda c: c["Empty"](1),
    "no fields": lambda c: (c["Empty"](), c["Empty"]() == c["Empty"](), hash(c["Empty"]()) == hash(c["Empty"]())),
    "post init": lambda c: c["Heir"](1, d="bad"),
    "equal": lambda c: (c["Base"](1) == c["Base"](1), c["Base"](1) == c["Base"](2), c["Base"](1) != c["Base"](1)),
    "equal to others": lambda c: (c["Base"](1) == c["Heir"](1), c["Base"](1) == 1, c["Box"](1) == (1,)),
    "hash": lambda c: len({c["Box"](1), c["Box"](1), c["Box"](2), c["Heir"](1, c=()), c["Heir"](1, c=())}),
    "no hash of a list": lambda c: hash(c["Base"](1)),
    "set": lambda c: setattr(c["Base"](1), "a", 2),
    "set what is no field": lambda c: setattr(c["Base"](1), "z", 2),
    "delete": lambda c: delattr(c["Base"](1), "a"),
    "fields": lambda c: [(f.name, f.type, dict(f.metadata)) for f in dataclasses.fields(c["Heir"])],
    "class variable": lambda c: (c["Base"].kind, c["Base"](1).kind, c["Base"](1).b, c["Base"].b),
    "replace": lambda c: dataclasses.replace(c["Heir"](1, "x"), a=7),
    "asdict": lambda c: dataclasses.asdict(c["Heir"](1, d=c["Box"](2))),
    "copies": lambda c: (copy.copy(c["Base"](1)), copy.deepcopy(c["Base"](1, c=[1]))),
    "cached property": lambda c: (c["Base"](4).twice, c["Base"](4)),
    "generic": lambda c: c["Box"][int](1),
    "own methods": lambda c: (c["Own"](1), c["Own"](1) == c["Own"](2), hash(c["Own"](1)) == hash(c["Own"](1))),
    "what is not shown": lambda c: (c["Shy"]("s"), c["Shy"]("s") == c["Shy"]("t")),
    "not frozen": lambda c: [c["Open"](), c["Open"](2) == c["Open"](2), c["Open"](2).__setattr__("a", 3)],
    "is one": lambda c: [dataclasses.is_dataclass(each) for each in c.values()],
}


@pytest.mark.parametrize("name", ACTIONS)
def test_it_behaves_as_in_the_standard_library(name: str) -> None:
    ours, standard = (
        _tried(lambda: ACTIONS[name](_classes(cheap))),
        _tried(lambda: ACTIONS[name](_classes(dataclasses.dataclass))),
    )
    assert ours == standard


def test_nothing_is_compiled_before_the_first_object(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = []
    real = module._compile_init

    def watched(cls: type) -> Callable[..., None]:
        compiled.append(cls)
        return real(cls)

    monkeypatch.setattr(module, "_compile_init", watched)
    box = _classes(cheap)["Box"]
    assert not compiled
    assert box(1).inner == 1 and box(2).inner == 2
    assert compiled == [box]


def test_the_text_of_a_class_without_one_is_not_made_of_its_signature(monkeypatch: pytest.MonkeyPatch) -> None:
    """No class of the worker has a text: what travels is without prose."""
    asked: list[object] = []
    monkeypatch.setattr("inspect.signature", asked.append)

    @cheap(frozen=True)
    class Plain:
        a: int = 1

    assert (asked, Plain.__doc__, Plain().a) == ([], "Plain", 1)
