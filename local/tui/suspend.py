"""The interface steps aside: a login asks its questions on the plain terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from textual.app import App


class _Leaving(Exception):
    """The interface ended while it stood aside; it must not come back."""


@contextmanager
def aside(app: App[Any], why: str) -> Iterator[None]:
    """Leave the terminal to the caller, who is told `why`. The interface goes on but draws nothing; it comes back whatever
    happens, unless it was left meanwhile."""
    failure: BaseException | None = None
    try:
        with app.batch_update(), app.suspend():
            sys.stderr.write(f"{why}\n")
            sys.stderr.flush()
            try:
                yield
            except BaseException as error:  # noqa: BLE001 - the terminal comes back first
                failure = error
            if app.return_value is not None:
                raise _Leaving
    except _Leaving:
        pass
    if failure is not None:
        raise failure
