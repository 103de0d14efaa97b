"""Fixtures of the black-box tests of the agent's features."""

from __future__ import annotations

from tests.remote.conftest import host, session

__all__ = ["host", "session"]
