"""How the sources of the worker are made shorter: names, spaces and types go, and what runs stays."""

from __future__ import annotations

import ast

import pytest

from ccb.deploy.bundling.build import compact

TEXTS = {
    "def f(long):\n    other = long\n    return other\n": "def f(long):\n a=long\n return a\n",
    "def f():\n    one = two = 1\n    return one, two, one\n": "def f():\n a=b=1\n return a,b,a\n",
    "def f(a):\n    value = a\n    return value.value\n": "def f(a):\n b=a\n return b.value\n",
    "def f():\n    key = 1\n    return g(key=key)\n": "def f():\n a=1\n return g(key=a)\n",
    "def f():\n    x = 1\n    return f'{x!r:>{x}} {{x}} x'\n": "def f():\n a=1\n return f'{a!r:>{a}} {{x}} x'\n",
    "def f():\n    try:\n        g()\n    except E as error:\n        h(error)\n": (
        "def f():\n try:\n  g()\n except E as a:\n  h(a)\n"
    ),
    "def f():\n    return [each for each in each]\n": "def f():\n return[each for each in each]\n",
    "def f():\n    global kept\n    kept = 1\n": "def f():\n global kept\n kept=1\n",
    "def f():\n    import os\n    from a import copy\n    copy = 1\n": (
        "def f():\n import os\n from a import copy\n copy=1\n"
    ),
    "def f():\n    here = 1\n    return locals()\n": "def f():\n here=1\n return locals()\n",
    "def f():\n    class A:\n        name = 1\n    name = A\n": "def f():\n class A:\n  name=1\n name=A\n",
    "def f():\n    one = 1\n    def g(two):\n        nonlocal one\n        one = two\n": (
        "def f():\n one=1\n def g(two):\n  nonlocal one\n  one=two\n"
    ),
    "def f():\n    one = 1\n    def g(two):\n        return one, two\n": (
        "def f():\n a=1\n def g(two):\n  return a,two\n"
    ),
    "def f(xs):\n    if any((hit := x) for x in xs):\n        return hit\n": (
        "def f(xs):\n if any((a:=b)for b in xs):\n  return a\n"
    ),
    "x = 1 if y else 2\n": "x=1 if y else 2\n",
    "x = 'a' 'b' if y in 'b' else b'c'\n": "x='a' 'b'if y in'b'else b'c'\n",
    "x = (\n    1,\n)\n": "x=(\n1,\n)\n",
    "x = f(\n    1,\n)[1,]\n": "x=f(\n1\n)[1,]\n",
    "x = [\n    1,\n    (2,),\n    (3, 4,),\n]\n": "x=[\n1,\n(2,),\n(3,4)\n]\n",
    "x = '''\n    a  b\n'''\n": "x='''\n    a  b\n'''\n",
    "import os\nfrom typing import Any, cast\n\ndef f(a: Any, *b: Any) -> Any:\n    return cast(str, a)\n": (
        "import os\nfrom typing import cast\n\ndef f(a,*b):\n return cast(str,a)\n"
    ),
    "from a import B\n\nclass C:\n    x: B = 1\n    y: ClassVar[D] = 2\n": (
        "0\n\nclass C:\n x:0=1\n y:ClassVar[D]=2\n"
    ),
    "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from a import B\n": "0\n0\n\n",
}


@pytest.mark.parametrize(("source", "expected"), TEXTS.items())
def test_what_becomes_of_source(source: str, expected: str) -> None:
    assert compact(source, keep_fields=False).decode() == expected
    ast.parse(expected)


def test_the_fields_of_messages_keep_their_types() -> None:
    source = "from a import B\n\nclass C:\n    x: B\n"
    assert compact(source, keep_fields=True).decode() == "from a import B\n\nclass C:\n x:B\n"
