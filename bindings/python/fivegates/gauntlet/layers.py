"""Hidden retry layers, found by their fingerprints in what arrived.

All sendings of one conversation are looked at together. A layer that counts
its tries in a header is known by name. Sendings that the count does not tell
apart were made below it; a count that begins anew was made so by a layer
above. Where no header counts, the times speak: a back-off that grows is one
layer, a rhythm that comes again and again is one inside another.
"""

from __future__ import annotations

import itertools
import re
import statistics
import typing

from fivegates.provider.journal import Record

__all__ = ["Layer", "find_layers"]

# Headers that count tries, what begins them, and whose they are.
_COUNTED: "list[tuple[str, re.Pattern[str], str]]" = [
    ("x-stainless-retry-count", re.compile(r"(\d+)$"), "the SDK"),
    ("amz-sdk-request", re.compile(r"attempt=(\d+)"), "the AWS SDK"),
    ("x-envoy-attempt-count", re.compile(r"(\d+)$"), "Envoy"),
    ("x-goog-api-client", re.compile(r"attempt-count/(\d+)"), "Google's client"),
    ("x-request-attempt", re.compile(r"(\d+)$"), "the caller's engine"),
    ("x-retry-count", re.compile(r"(\d+)$"), "a counting client"),
    ("x-retry-attempt", re.compile(r"(\d+)$"), "a counting client"),
]
# Headers that a call keeps through its tries: another value is another call.
_CALL = ("idempotency-key", "x-client-request-id", "amz-sdk-invocation-id",
         "x-ms-client-request-id")
_SAME_S = 0.03  # times this near are equal: a scheduler's noise
_SAME = 1.6  # and so are those within this factor: jitter
_DROP = 0.6  # a gap this much shorter than the last is no growing back-off


class Layer(typing.NamedTuple):
    """A layer that sends what is inside it several times."""

    name: str
    tries: int
    how: str  # by what it was found
    sure: bool = True  # False: by times alone


def _counts(record: Record) -> "tuple[tuple[str, int, str], ...]":
    """Every count of tries in a request's headers: owner, count, header."""
    out = []
    for header, pattern, name in _COUNTED:
        found = pattern.search(record.headers.get(header, ""))
        if found:
            out.append((name, int(found.group(1)), header))
    return tuple(out)


def _equal(times: "typing.Sequence[float]") -> bool:
    return (max(times) - min(times) <= _SAME_S
            or max(times) <= _SAME * min(times))


def _rhythm(gaps: "typing.Sequence[float]") -> int:
    """How many sendings make a block that is repeated; 0: none is."""
    count = len(gaps) + 1
    grows = all(after >= _DROP * before or before - after <= _SAME_S
                for before, after in zip(gaps, gaps[1:]))
    if count < 4 or grows:
        return 0
    for block in range(2, count // 2 + 1):
        inner = [gaps[at::block] for at in range(block - 1)]
        between = gaps[block - 1::block]
        if count % block or not all(map(_equal, inner)):
            continue
        # Two blocks of two are four times by chance as well.
        if count == 4 and min(between) < 3 * max(map(max, inner)):
            continue
        return block
    return 0


def _by_time(records: "list[Record]", above: str) -> "list[Layer]":
    gaps = [after.at - before.at for before, after in zip(records, records[1:])]
    block = _rhythm(gaps)
    if not block:
        return [Layer(above, len(records), "the same conversation again")]
    return [Layer(above, len(records) // block, "a rhythm that begins anew",
                  False),
            Layer("a layer inside it", block, "a rhythm that comes again",
                  False)]


def find_layers(records: "list[Record]", normal: int) -> "list[Layer]":
    """The layers, outermost first, of the sendings of one conversation, which
    arrives `normal` times when there is no fault. One layer is no secret."""
    records = sorted(records, key=lambda one: one.at)
    if len(records) <= normal:
        return []
    counts = [_counts(one) for one in records]
    names = list(dict.fromkeys(name for one in counts for name, _, _ in one))
    headers = list(dict.fromkeys(
        (name, header) for one in counts for name, _, header in one))
    counted = []
    for name, header in headers:
        tries = {value for one in counts for _, value, where in one
                 if where == header}
        if len(tries) > 1:
            counted.append(Layer(name, len(tries), header))
    above = "a loop above " + names[0] if names else "the client"
    if not counted:
        if normal > 1:
            # Fewer than two each is a second try of a few: still two.
            return [Layer(above, max(2, round(len(records) / normal)),
                          "the same conversation again")]
        return _by_time(records, above)
    if normal > 1:  # several at once: their order tells nothing
        others = round(counts.count(min(counts)) / normal)
        return counted if others < 2 else [*counted, Layer(
            "a layer above or below " + names[0], others,
            "more sendings than its count explains")]
    runs = [(key[0], len(list(group))) for key, group in itertools.groupby(
        (count, [one.headers.get(name) for name in _CALL])
        for count, one in zip(counts, records))]
    outer = sum(key == min(counts) for key, _ in runs)
    inner = statistics.median_low([length for _, length in runs])
    out = list(counted)
    if outer > 1:
        out.insert(0, Layer(above, outer, "its count begins anew"))
    if inner > 1:
        out.append(Layer("a layer below " + names[0], inner,
                         "sendings of the same count"))
    return out
