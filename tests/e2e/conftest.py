"""Fixtures of whole sessions."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.model.fake_model import FakeModel
from tests.support.person.laptop import Laptop, tidy_laptop


@pytest.fixture
def laptop(tmp_path: Path, fake_model: FakeModel) -> Iterator[Laptop]:
    """A laptop with the scripted model. A while after the test, none of its processes may run any more."""
    with tidy_laptop(tmp_path, fake_model.url) as made:
        yield made
