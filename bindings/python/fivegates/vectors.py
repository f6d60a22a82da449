"""Replays vector files; the format is tests/vectors/README.md.

The C runner reads the same files: counts and dumped answers must be equal.
"""

from __future__ import annotations

import json
import pathlib
import typing

from fivegates.vector_case import Case
from fivegates.vector_json import Fault, Json, only

__all__ = ["Report", "replay", "vector_files"]


class Report:
    """Counts, and where lines go."""

    def __init__(self, say: "typing.Callable[[str], object]" = print,
                 dump: "typing.TextIO | None" = None) -> None:
        self.passed = 0
        self.failed = 0
        self.say = say
        self._dump = dump

    def dump(self, line: str) -> None:
        if self._dump is not None:
            self._dump.write(line + "\n")


def vector_files(path: "str | pathlib.Path") -> "list[str]":
    """A file itself; of a folder all .json below but schema.json, in byte
    order, folders among the files by name."""
    root = pathlib.Path(path)
    if not root.is_dir():
        return [str(path)]
    out: "list[str]" = []
    names = sorted((one.name for one in root.iterdir()
                    if not one.name.startswith(".")
                    and one.name != "schema.json"), key=str.encode)
    for name in names:
        child = root / name
        if child.is_dir():
            out += vector_files(child)
        elif name.endswith(".json"):
            out.append(str(child))
    return out


def _unique(pairs: "list[tuple[str, typing.Any]]") -> Json:
    out: Json = {}
    for key, value in pairs:
        if key in out:
            raise Fault(f'key "{key}" twice')
        out[key] = value
    return out


def _run_file(path: str, report: Report) -> None:
    try:
        text = pathlib.Path(path).read_bytes().decode("utf-8")
        document = json.loads(text, object_pairs_hook=_unique)
        only(document, "the file", "name why needs cases")
        cases = document.get("cases")
        if not isinstance(cases, list):
            raise Fault("has no cases")
    except OSError:
        fault = "cannot be read"
    except json.JSONDecodeError as exc:
        fault = (f"is not JSON at line {exc.lineno}, column {exc.colno}: "
                 f"{exc.msg}; one object with name, why, cases is wanted")
    except UnicodeDecodeError:
        fault = "is not UTF-8; save it as UTF-8"
    except (ValueError, RecursionError) as exc:
        fault = f"is not JSON: {exc}"
    except Fault as exc:
        fault = str(exc)
    else:
        for spec in cases:
            Case(path, spec if isinstance(spec, dict) else {}, report).run()
        return
    report.say(f"{path}: {fault}")
    report.failed += 1


def replay(paths: "typing.Iterable[str | pathlib.Path]",
           say: "typing.Callable[[str], object]" = print,
           dump: "typing.TextIO | None" = None,
           tick: "typing.Callable[[str], object] | None" = None) -> Report:
    """Replays files and folders; tick(path) is called before each file."""
    report = Report(say, dump)
    for path in paths:
        for file in vector_files(path):
            if tick is not None:
                tick(file)
            _run_file(file, report)
    return report
