"""`ccb usage`: what the model calls of this machine have used and cost."""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict

from ccb.tunnel.plain_text import one_line

from ...command_line.exit_codes import ExitCode
from ...config.log import state_dir
from ...ledger.dollars import dollars
from ...ledger.entries import UsageSum
from ...ledger.store import By, read_ledger
from ...terminal.guarded_streams import print_line
from ..running import CommandParser, exit_code
from ..sessions.table import age_text, cut

_GROUPS: tuple[By, ...] = ("host", "model", "day", "session")
_DAY_S = 86400
_MAX_NAME = 40
_HEADINGS = ("CALLS", "FAILED", "INPUT", "CACHED", "OUTPUT", "COST", "LAST")


def usage_parser() -> CommandParser:
    parser = CommandParser(
        prog="ccb usage", description="Show what the model calls of this machine have used and cost."
    )
    parser.add_argument("--by", choices=_GROUPS, default="day", help="one line for each of these (default: day)")
    parser.add_argument("--days", type=_days, metavar="N", help="count only the last N days")
    parser.add_argument("--json", action="store_true", help="print one JSON object in each line")
    return parser


def _days(text: str) -> float:
    try:
        days = float(text)
    except ValueError:
        days = 0.0
    if not 0 < days < 100_000:
        raise argparse.ArgumentTypeError(f"not a number of days: {text!r}")
    return days


def run_usage(args: Sequence[str], environ: Mapping[str, str] = os.environ) -> int:
    """Run `ccb usage ARGS` and return the exit code."""
    return exit_code(lambda: _run(args, environ))


def _run(args: Sequence[str], environ: Mapping[str, str]) -> int:
    options = usage_parser().parse_args(list(args))
    sums = _sums(options.by, options.days, environ)
    if options.json:
        for each in sums:
            fields = {options.by if name == "group" else name: value for name, value in asdict(each).items()}
            print_line(json.dumps(fields))
        return ExitCode.OK
    if not sums:
        print_line("No model calls yet.")
    for line in usage_table(options.by, sums, time.time()) if sums else ():
        print_line(line)
    return ExitCode.OK


def _sums(by: By, days: float | None, environ: Mapping[str, str]) -> list[UsageSum]:
    since = time.time() - days * _DAY_S if days else 0.0
    return read_ledger(state_dir(environ), lambda ledger: ledger.sums(by, since=since), [])


def usage_table(by: str, sums: Sequence[UsageSum], now: float) -> list[str]:
    """Return a heading, a line for each sum, and their total if there are several. `now` is the Unix time."""
    total = UsageSum(
        "total",
        calls=sum(each.calls for each in sums),
        failed=sum(each.failed for each in sums),
        input_tokens=sum(each.input_tokens for each in sums),
        cache_write_tokens=sum(each.cache_write_tokens for each in sums),
        cache_read_tokens=sum(each.cache_read_tokens for each in sums),
        output_tokens=sum(each.output_tokens for each in sums),
        usd=sum(each.usd for each in sums),
        last=max(each.last for each in sums),
        estimated=sum(each.estimated for each in sums),
    )
    rows = [(by.upper(), *_HEADINGS), *(_row(each, now) for each in (*sums, *([total] if len(sums) > 1 else [])))]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = []
    for name, *cells in rows:
        padded = [cell.rjust(width) for cell, width in zip(cells, widths[1:], strict=True)]
        lines.append("  ".join([name.ljust(widths[0]), *padded]))
    return lines


def _row(each: UsageSum, now: float) -> tuple[str, ...]:
    return (
        cut(one_line(each.group) or "-", _MAX_NAME),
        f"{each.calls:,}",
        f"{each.failed:,}",
        f"{each.input_tokens + each.cache_write_tokens:,}",
        f"{each.cache_read_tokens:,}",
        f"{each.output_tokens:,}",
        f"{'~' if each.estimated else ''}{dollars(each.usd)}",
        f"{age_text(now - each.last)} ago",
    )
