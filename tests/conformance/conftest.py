"""What the tests with the official SDKs have in common."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.conformance.official_sdks import require_sdks
from tests.support.model.fake_model import FakeModel
from tests.support.person.laptop import Laptop, make_laptop


@pytest.fixture
def laptop(tmp_path: Path, fake_model: FakeModel) -> Laptop:
    """A laptop, if the SDKs are installed."""
    require_sdks()
    return make_laptop(tmp_path, fake_model.url)
