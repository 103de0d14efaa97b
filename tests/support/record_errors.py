"""A pytest plugin that says which test is running, for `recording/sitecustomize.py`."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

WHERE = Path(__file__).resolve().parents[2] / ".make" / "recorded"


def pytest_runtest_setup(item: pytest.Item) -> None:
    (WHERE / f"{os.getpid()}.test").write_text(item.nodeid.partition("[")[0], encoding="utf-8")
