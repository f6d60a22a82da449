"""The live region for a terminal."""

from __future__ import annotations

import typing

from rich import box
from rich.console import Group, RenderableType
from rich.table import Column, Table
from rich.text import Text

from fivegates.status.live import RECOVERY, Json

__all__ = ["terminal"]

_LOOK: typing.Dict[str, typing.Any] = {
    "box": box.SIMPLE_HEAD, "title_justify": "left", "pad_edge": False}
_SHORT = {"primary_success": "primary", "retry_recovery": "retry",
          "fallback_recovery": "fallback", "failed_closed": "failed"}


def _right(*names: str) -> "list[Column]":
    return [Column(name, justify="right") for name in names]


def _state(one: Json) -> Text:
    """What keeps a route from being used, if anything does."""
    if one["latch"] != "none":
        return Text(f"{one['latch'].replace('_', ' ')}, {one['latch_for_ms'] / 1000:.0f} s",
                    style="bold red")
    if one["breaker"] == "open":
        return Text(f"open, {one['open_for_ms'] / 1000:.0f} s", style="red")
    if one["breaker"] != "closed":
        return Text(one["breaker"].replace("_", " "), style="yellow")
    if one["health"] != "ok":
        return Text(one["health"].replace("_", " "), style="yellow")
    return Text("ok", style="green")


def _routes(routes: "list[Json]") -> Table:
    table = Table("route", "state", *_right(
        "in flight", "limit", "per second", "retry tokens", "attempts",
        "failures", "opened"), **_LOOK)
    for one in routes:
        rate = one["requests_per_second"]
        table.add_row(
            Text(one["route"]), _state(one), str(one["in_flight"]),
            "" if one["limit"] is None else str(one["limit"]),
            "" if rate is None else f"{rate:g}", f"{one['retry_tokens']:g}",
            str(one["attempts"]), str(one["failures"]), str(one["opened_count"]))
    return table


def _workflows(workflows: "list[Json]") -> Table:
    table = Table("workflow", *_right(
        "calls", *(_SHORT.get(word, word) for word in RECOVERY), "open",
        "retries this hour", "spent today, USD"), **_LOOK)
    for one in workflows:
        spent = one["spent_today_usd"]
        if one["spend_per_day_usd"] is not None:
            spent += f" of {one['spend_per_day_usd']}"
        table.add_row(
            Text(one["workflow"]), str(one["calls"]),
            *(str(one[word] or "") for word in RECOVERY), str(one["open"] or ""),
            str(one["retries_this_hour"]), spent)
    return table


def terminal(state: Json) -> RenderableType:
    """What asks for a person first, then every route and workflow."""
    said: "list[RenderableType]" = [Text(line, style="bold")
                                    for line in state["attention"]]
    return Group(*(said or [Text("nothing asks for a person", style="green")]),
                 _routes(state["routes"]), _workflows(state["workflows"]))
