"""Fixtures of the test kit, for every test."""

from __future__ import annotations

from tests.support.fake_model import fake_model

__all__ = ["fake_model"]
