"""Runs of the simulator: configuration in, measurements out."""

from __future__ import annotations

import json
import os
import typing

from fivegates import _drill
from fivegates.errors import FivegatesError

__all__ = ["BUCKET", "DrillError", "Measured", "Progress", "Results", "Row",
           "STRATEGIES", "fault_names", "run"]

STRATEGIES = ("naive", "backoff", "disciplined", "fivegates", "oracle", "plain")
# What a bucket of the pictures holds, in this order; times are milliseconds.
BUCKET = ("requests", "attempts", "useful", "full", "b_requests", "b_useful",
          "wasted_tokens", "p50", "p95", "b_first_token_p95", "primary_busy",
          "primary_queue", "backup_busy", "backup_queue")

Progress = typing.Callable[[int, int], object]


class Measured(typing.TypedDict):
    """A value over the seeds: mean, standard deviation, runs that had it."""

    mean: float
    sd: float
    n: int


class Row(typing.TypedDict, total=False):
    """One fault and one strategy. Shares are per cent, times seconds."""

    fault: str
    strategy: str
    metrics: typing.Dict[str, "Measured | None"]
    buckets: typing.List[typing.List["int | None"]]


class Results(typing.TypedDict):
    """What the simulator answers."""

    seed: int
    seeds: int
    config: str
    events: int
    warm_s: int
    fault_s: int
    after_s: int
    bucket_s: int
    backup_slots: int
    primary_slots: int
    rows: typing.List[Row]


class DrillError(FivegatesError, ValueError):
    """A configuration that cannot be run: where it is wrong, and the remedy."""

    result = "arg"


def fault_names() -> "list[str]":
    """The faults that have names."""
    return _drill.faults()


def _error(exc: ValueError, files: "typing.Sequence[str]") -> DrillError:
    message, path, line, column, index = exc.args
    where = files[index] if 0 <= index < len(files) and files[index] else ""
    if where and line:
        where += f":{line}:{column}"
    return DrillError(": ".join(part for part in (where, path, message) if part))


def run(*configs: "str | typing.Mapping[str, object]",
        files: "typing.Sequence[str]" = (), threads: "int | None" = None,
        pictures: bool = False, progress: "Progress | None" = None,
        ledger: "str | None" = None) -> Results:
    """Runs what the configurations ask for, each over those before it.

    A configuration is JSON as text or as a mapping; files are their names, for
    errors. progress(done, total) is called now and then; what it raises ends
    the runs, as Ctrl-C does. ledger is a file for the engine's ledger, of one
    fault and one seed. Raises DrillError.
    """
    texts = [one if isinstance(one, str) else json.dumps(one) for one in configs]
    try:
        text = _drill.run(texts, threads or os.cpu_count() or 1, pictures,
                          progress, ledger)
    except OSError as exc:
        raise DrillError(f"{ledger}: {exc.strerror or exc}; name a file that can "
                         "be written") from None
    except ValueError as exc:
        if len(exc.args) != 5:
            raise
        raise _error(exc, files) from None
    return typing.cast(Results, json.loads(text))
