"""A result as JSON, as a table for a terminal, and as JUnit's XML."""

from __future__ import annotations

import dataclasses
import typing
import xml.etree.ElementTree as xml

from rich.table import Table
from rich.text import Text

from fivegates.gauntlet.play import Played, Result

__all__ = ["findings_text", "result_json", "result_junit", "result_table",
           "summary"]

Json = typing.Dict[str, typing.Any]


def _layers(played: Played) -> str:
    return " x ".join(str(one.tries) for one in played.measures.layers)


def summary(result: Result) -> str:
    """The result in a line."""
    failed = sum(not one.passed for one in result.played)
    skipped = len(result.skipped)
    return (f"{len(result.played) - failed} of {len(result.played)} faults "
            "survived" + (f", {skipped} of tools left out: the program offers "
                          "none" if skipped else "")
            + f"; without a fault: requests {result.healthy.requests}, tokens "
            f"{result.healthy.billed}, seconds {result.healthy.seconds:.1f}")


def result_table(result: Result) -> Table:
    """A row for each fault."""
    table = Table("fault", "", "ended with", "requests each", "layers",
                  "tokens billed", "delivered", "after it left",
                  "seconds", box=None, pad_edge=False)
    for column in table.columns[3:]:
        column.justify = "right"
    for one in result.played:
        m = one.measures
        table.add_row(
            Text(one.trial.name),
            Text("passed", style="green") if one.passed
            else Text("FAILED", style="bold red"),
            one.verdict.result, f"{m.fan_out:.1f}", _layers(one),
            str(m.billed), str(m.delivered), f"{m.ran_on_s:.1f} s",
            f"{one.outcome.seconds:.1f}")
    return table


def findings_text(result: Result) -> "list[str]":
    """What failed, and what is worth knowing."""
    out = []
    for one in result.played:
        out += [f"{one.trial.name}: {finding.text} [{finding.code}]"
                for finding in one.verdict.findings]
        out += [f"{one.trial.name}: note: {note}" for note in one.verdict.notes]
    return out


def _played_json(one: Played) -> Json:
    measures = dataclasses.asdict(one.measures)
    measures["layers"] = [layer._asdict() for layer in one.measures.layers]
    return {
        "fault": one.trial.name, "why": one.trial.why, "passed": one.passed,
        "result": one.verdict.result,
        "findings": [finding._asdict() for finding in one.verdict.findings],
        "notes": one.verdict.notes, "measures": measures,
        "limits": dataclasses.asdict(one.trial.limits),
        "program": dataclasses.asdict(one.outcome),
        "requests": [record.to_dict() for record in one.records],
        "effects": [dataclasses.asdict(effect) for effect in one.effects]}


def result_json(result: Result) -> Json:
    """All of a result."""
    healthy = result.healthy
    return {
        "command": result.command, "passed": result.passed,
        "summary": summary(result),
        "healthy": {"requests": healthy.requests, "billed": healthy.billed,
                    "seconds": round(healthy.seconds, 3),
                    "conversations": len(healthy.sent),
                    "effects": healthy.effects, "tools": healthy.tools},
        "faults": [_played_json(one) for one in result.played],
        "skipped": [one.name for one in result.skipped]}


def result_junit(result: Result) -> str:
    """The result for the tools that read JUnit's XML."""
    suite = xml.Element(
        "testsuite", name="fivegates gauntlet",
        tests=str(len(result.played) + len(result.skipped)),
        failures=str(sum(not one.passed for one in result.played)),
        skipped=str(len(result.skipped)), errors="0")
    for one in result.played:
        case = xml.SubElement(suite, "testcase", classname="gauntlet",
                              name=one.trial.name,
                              time=f"{one.outcome.seconds:.3f}")
        if one.verdict.findings:
            failure = xml.SubElement(
                case, "failure", type=one.verdict.findings[0].code,
                message=_plain("; ".join(finding.text for finding in
                                         one.verdict.findings)))
            failure.text = _plain(one.outcome.said())
    for trial in result.skipped:
        xml.SubElement(xml.SubElement(
            suite, "testcase", classname="gauntlet", name=trial.name),
            "skipped", message="the program offers no tool")
    return '<?xml version="1.0" encoding="utf-8"?>\n' + xml.tostring(
        suite, encoding="unicode") + "\n"


def _plain(text: str) -> str:
    """Text without the control letters that XML cannot hold."""
    return "".join(one if one >= " " or one in "\t\n" else "?" for one in text)
