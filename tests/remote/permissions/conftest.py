"""The project that most tests of permissions look at."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.worker.permission_desk import Desk


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)
