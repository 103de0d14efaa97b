"""The small project of `make demo`, with one failing test, and the script its model follows."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from tests.support.model.model_script import uses

CART = '''"""A shopping cart."""


def total(prices: list[float], discount: float = 0.0) -> float:
    """The sum of `prices` less `discount` (0.1 is ten per cent)."""
    return sum(prices) * (1 + discount)
'''

TEST = """import unittest

from cart import total


class TotalTest(unittest.TestCase):
    def test_without_discount(self) -> None:
        self.assertEqual(total([10, 20]), 30)

    def test_ten_per_cent_off(self) -> None:
        self.assertEqual(total([10, 20], 0.1), 27)


if __name__ == "__main__":
    unittest.main()
"""

PROMPT = "The test suite of this project fails. Find out why, fix the code and run the tests again."
TEST_COMMAND = "python3 -m unittest -q"

_OLD = 1_700_000_000  # seconds since the epoch


def make_project(directory: Path) -> None:
    """Write the project; `directory` must not exist."""
    directory.mkdir(parents=True)
    cart = directory / "cart.py"
    cart.write_text(CART, encoding="utf-8")
    os.utime(cart, (_OLD, _OLD))  # an edit in the same second and of the same size would meet a stale .pyc
    (directory / "test_cart.py").write_text(TEST, encoding="utf-8")
    (directory / "AGENTS.md").write_text(f"Run the tests with `{TEST_COMMAND}`.\n", encoding="utf-8")


def script(directory: Path) -> list[dict[str, Any]]:
    """The replies of the scripted model, in order (see `tests.support.model.fake_model`)."""
    cart, test = str(directory / "cart.py"), str(directory / "test_cart.py")
    reads = [block for path in (cart, test) for block in uses("Read", file_path=path)["blocks"]]
    runs = uses("Bash", command=TEST_COMMAND, description="Run the test suite")["blocks"]
    wrong, right = "sum(prices) * (1 + discount)", "sum(prices) * (1 - discount)"
    edits = uses("Edit", file_path=cart, old_string=wrong, new_string=right)["blocks"]
    look = {"type": "text", "text": "I will look at the code and run the tests."}
    found = {"type": "text", "text": "`total` adds the discount instead of taking it off. I will change the sign."}
    fixed = "Fixed: `total` in `cart.py` now subtracts the discount, and **both tests pass**."
    return [
        {"blocks": [look, *reads, *runs]},
        {"blocks": [found, *edits], "when": {"tool_result_contains": "FAILED"}},
        {"blocks": runs, "when": {"has_tool_result": True}},
        {"text": fixed, "when": {"tool_result_contains": "OK"}},
        {"text": "I am a scripted model and know one task only: repairing this project.", "times": 0},
    ]
