"""`dataclass(frozen=True)` as in the standard library, at a tenth of the cost of its definition: 0.4 ms, which every
start of a worker would pay about 120 times. The methods of all classes share their code, and `__init__` is compiled
when the first object of a class is made. `fields`, `replace`, `field` and `asdict` are those of the standard
library."""

from __future__ import annotations

from dataclasses import MISSING, FrozenInstanceError, fields
from dataclasses import dataclass as _standard
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Callable, TypeVar

C = TypeVar("C", bound=type)

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:

    def dataclass(cls=None, *, frozen=False, **options):
        make = _frozen if frozen and not options else _standard(frozen=frozen, **options)
        return make if cls is None else make(cls)


def _frozen(cls: C) -> C:
    if not cls.__doc__:  # else the standard library makes it of the signature, which takes longer than all the rest
        cls.__doc__ = cls.__name__
    _standard(init=False, repr=False, eq=False)(cls)  # the fields and their defaults
    names = [each.name for each in fields(cls)]
    methods = {
        "__init__": _init_on_first_use(cls),
        "__repr__": _repr,
        "__setattr__": _refuse_to_set,
        "__delattr__": _refuse_to_delete,
        **_comparison(attrgetter(*names) if names else lambda self: ()),
    }
    for name, method in methods.items():
        if name not in cls.__dict__ or (name == "__hash__" and cls.__hash__ is None):
            setattr(cls, name, method)
    return cls


def _init_on_first_use(cls: type) -> Callable[..., None]:
    """Return an `__init__` that replaces itself with the compiled one."""

    def __init__(self: object, *args: object, **values: object) -> None:
        made = _compile_init(cls)
        cls.__init__ = made  # type: ignore[misc]
        made(self, *args, **values)

    return __init__


def _compile_init(cls: type) -> Callable[..., None]:
    scope: dict[str, Any] = {"_set": object.__setattr__, "_made": object()}
    parameters, body = ["self"], []
    for each in fields(cls):
        name, value = each.name, each.name
        if each.default is not MISSING:
            scope["_default_" + name] = each.default
            parameters.append(f"{name}=_default_{name}")
        elif each.default_factory is not MISSING:
            scope["_make_" + name] = each.default_factory
            parameters.append(f"{name}=_made")
            value = f"_make_{name}() if {name} is _made else {name}"
        else:
            parameters.append(name)
        body.append(f" _set(self, {name!r}, {value})")
    if hasattr(cls, "__post_init__"):
        body.append(" self.__post_init__()")
    text = f"def __init__({', '.join(parameters)}):\n" + "\n".join(body or [" pass"])
    exec(text, scope)  # noqa: S102 - it is made of names of fields
    init: Callable[..., None] = scope["__init__"]
    init.__qualname__ = f"{cls.__qualname__}.__init__"
    return init


def _comparison(values: Callable[[object], object]) -> dict[str, Callable[..., object]]:
    def __eq__(self: object, other: object) -> bool:
        return values(self) == values(other) if other.__class__ is self.__class__ else NotImplemented

    def __hash__(self: object) -> int:
        return hash(values(self))

    return {"__eq__": __eq__, "__hash__": __hash__}


def _repr(self: Any) -> str:
    shown = ", ".join(f"{each.name}={getattr(self, each.name)!r}" for each in fields(self) if each.repr)
    return f"{self.__class__.__qualname__}({shown})"


def _refuse_to_set(self: object, name: str, value: object) -> None:
    raise FrozenInstanceError(f"cannot assign to field {name!r}")


def _refuse_to_delete(self: object, name: str) -> None:
    raise FrozenInstanceError(f"cannot delete field {name!r}")
