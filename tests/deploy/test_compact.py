"""How the sources of the worker are made shorter: names, spaces and types go, and what runs stays."""

from __future__ import annotations

import ast

import pytest

from ccb.deploy.bundling.build import compact

TEXTS = {
    "def f(long):\n    other = long\n    return other\n": "def f(a):\n b=a\n return b\n",
    "def f(long):\n    return long\n\nf(long=1)\n": "def f(long):\n return long\n\nf(long=1)\n",
    "def f(long):\n    return f.g(long=long)\n": "def f(long):\n return f.g(long=long)\n",
    "def f(long):\n    return g(long=long)\n\ndef g(long=1):\n    pass\n": (
        "def f(a):\n return g(long=a)\n\ndef g(long=1):\n pass\n"
    ),
    "def f(long, more=1):\n    return more\n\nf(**x)\n": "def f(long,more=1):\n return more\n\nf(**x)\n",
    "def f(long=1):\n    return lambda one, two=long: long\n": "def f(a=1):\n return lambda one,two=a:a\n",
    "class C:\n    def __init__(self, long):\n        pass\n\nC(long=1)\n": (
        "class C:\n def __init__(self,long):\n  pass\n\nC(long=1)\n"
    ),
    "_long = 1\n\ndef _function():\n    return f'{_long}'\n": "_a=1\n\ndef _b():\n return f'{_a}'\n",
    "class C:\n    def _more(self):\n        self._all = self._more\n": (
        "class C:\n def _a(self):\n  self._b=self._a\n"
    ),
    "_long = 1\nx = '_long'\n": "_long=1\nx='_long'\n",
    "_long = 1\nx = f(_long=_long)\n": "_long=1\nx=f(_long=_long)\n",
    "import os\n\ndef _exit():\n    os._exit(1)\n": "import os\n\ndef _exit():\n os._exit(1)\n",
    "import os\n\nclass C(os.A):\n    _long = 1\n": "import os\n\nclass C(os.A):\n _long=1\n",
    "x = y._long\n": "x=y._long\n",
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
        "def f():\n one=1\n def g(a):\n  nonlocal one\n  one=a\n"
    ),
    "def f():\n    one = 1\n    def g(two):\n        return one, two\n": ("def f():\n a=1\n def g(b):\n  return a,b\n"),
    "def f(xs):\n    if any((hit := x) for x in xs):\n        return hit\n": (
        "def f(a):\n if any((c:=b)for b in a):\n  return c\n"
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
    "from a import B\n\nclass C:\n    x: B = 1\n    y: ClassVar[D] = 2\n": ("\n\nclass C:\n x:0=1\n y:ClassVar[D]=2\n"),
    "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from a import B\n": "\n0\n\n",
    "from __future__ import annotations\nx: int = 1\n": "\nx=1\n",
    "from __future__ import annotations\nx: int\n": "from __future__ import annotations\nx:int\n",
}


@pytest.mark.parametrize(("source", "expected"), TEXTS.items())
def test_what_becomes_of_source(source: str, expected: str) -> None:
    assert _compact(source) == expected
    ast.parse(expected)


def test_the_fields_of_messages_keep_their_types() -> None:
    source = "from a import B\n\nclass C:\n    x: B\n"
    assert _compact(source, "ccb/tunnel/wire/m.py") == "from a import B\n\nclass C:\n x:B\n"


def test_modules_share_the_private_names_that_both_may_mean() -> None:
    sources = {
        "ccb/remote/a.py": "class A:\n    def _one(self): pass\n    def _two(self): pass\n",
        "ccb/remote/b.py": "from .a import A\n",
        "ccb/remote/c/d.py": "from ..b import A\nclass D(A):\n    _more = 1\n    def _two(self): self._one()\n",
        "ccb/remote/e.py": "class E:\n    _two = _one = 1\n",
        "ccb/remote/f.py": "_three = 1\n_one = _two = 2\n",
        "ccb/remote/g.py": "from .f import _three\n_four = 2\n",
    }
    assert {name: text.decode() for name, text in compact(sources).items()} == {
        "ccb/remote/a.py": "class A:\n def _a(self):pass\n def _b(self):pass\n",
        "ccb/remote/b.py": "from .a import A\n",
        "ccb/remote/c/d.py": "from ..b import A\nclass D(A):\n _c=1\n def _b(self):self._a()\n",
        "ccb/remote/e.py": "class E:\n _a=_b=1\n",
        "ccb/remote/f.py": "_three=1\n_a=_b=2\n",
        "ccb/remote/g.py": "from .f import _three\n_a=2\n",
    }


def _compact(source: str, file: str = "ccb/remote/m.py") -> str:
    return compact({file: source})[file].decode()
