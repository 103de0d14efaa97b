"""Numbers of the numbered streams: how much one `data` frame holds and how much may be under way unasked."""

from __future__ import annotations

CHUNK = 96 * 1024
"""Largest number of bytes in one `data` frame; base64 makes 128 KiB of it, well inside a line."""

INITIAL_CREDIT = 1024 * 1024
"""Bytes a sender may send on a new stream, in each direction, before the first `credit` arrives."""
