"""Amounts of dollars as the person reads them."""

from __future__ import annotations

import math


def dollars(amount: float) -> str:
    """Return an amount in cents, or with two digits that tell something if it is smaller: $1.50, $0.02, $0.00045."""
    if not amount or abs(amount) >= 0.01:
        return f"${amount:,.2f}"
    digits = 1 - math.floor(math.log10(abs(amount)))
    return f"${amount:.{min(digits, 12)}f}".rstrip("0")
