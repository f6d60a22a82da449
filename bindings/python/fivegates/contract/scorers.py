"""How an answer is judged: equality, words, patterns, JSON, tool calls, numbers,
or a function of the user's.

A judgement is a score in parts per million and, where that is not the whole, a
reason that repeats nothing of the answer. What an answer must be at least, to
be judged at all, is not asked here: see runs.py.
"""

from __future__ import annotations

import copy
import dataclasses
import decimal
import fractions
import importlib
import json
import math
import re
import sys
import typing

from fivegates.contract import patterns, schemas
from fivegates.contract.patterns import ScorerError
from fivegates.contract.schemas import Schema, TooLong
from fivegates.errors import FivegatesError

__all__ = ["Answer", "BUILT_IN", "Function", "Judge", "Judgement", "ScorerBroke",
           "ScorerError", "WHOLE", "function_of", "judge_of", "same_json"]

Json = typing.Dict[str, typing.Any]
Function = typing.Callable[[Json, Json], typing.Any]

WHOLE = 1_000_000  # ppm
_NUMBER = re.compile(r"[-+]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?")
# Digits and exponent of a number that is compared exactly: beyond them is no
# measurement, but memory.
_DIGITS_MAX = 400


class ScorerBroke(FivegatesError):
    """A function of the user's raised, or returned what is no score."""

    result = "arg"


@dataclasses.dataclass(frozen=True)
class Answer:
    """What came: the text, the tool calls ({id, name, arguments as JSON text}),
    the finish reason in the engine's words (None: not told)."""

    text: str
    tool_calls: "tuple[Json, ...]" = ()
    finish: "str | None" = None


class Judgement(typing.NamedTuple):
    """ppm of the answer, and why it is less than asked for."""

    ppm: int
    passed: bool
    reason: str = ""


Verdict = typing.Callable[[Answer, Json], Judgement]


class Judge(typing.NamedTuple):
    """One `expect`, ready to judge answers: judge.of(answer, row)."""

    name: str
    of: Verdict


def _yes(passed: bool, reason: str) -> Judgement:
    return Judgement(WHOLE, True) if passed else Judgement(0, False, reason)


# ---- reading an `expect`


def _only(expect: Json, *names: str) -> None:
    for key in expect:
        if key != "scorer" and key not in names:
            raise ScorerError(f"{key} is no key of {expect['scorer']}; it has "
                              f"{', '.join(names)}")


def _flag(expect: Json, name: str) -> bool:
    value = expect.get(name, False)
    if not isinstance(value, bool):
        raise ScorerError(f"{name} is true or false")
    return value


def _texts(expect: Json) -> "list[str]":
    """`value`: a text, or a list of which one is enough."""
    value = expect.get("value")
    texts: "list[typing.Any]" = value if isinstance(value, list) else [value]
    if not texts or not all(isinstance(one, str) and one for one in texts):
        raise ScorerError(f"{expect['scorer']} needs a value: a text that is not "
                          "empty, or a list of them of which one is enough")
    return texts


def _of_texts(match: "typing.Callable[[str, str], bool]") -> "typing.Callable[[Json], Verdict]":
    def read(expect: Json) -> Verdict:
        _only(expect, "value", "ignore_case", "not")
        fold = str.casefold if _flag(expect, "ignore_case") else str
        wanted = [fold(one).strip() for one in _texts(expect)]
        negate, name = _flag(expect, "not"), expect["scorer"]

        def judge(answer: Answer, row: Json) -> Judgement:
            text = fold(answer.text).strip()
            found = any(match(text, one) for one in wanted)
            return _yes(found != negate, f"{'not ' if negate else ''}{name}")
        return judge
    return read


# ---- patterns


def _regex(expect: Json) -> Verdict:
    _only(expect, "pattern", "ignore_case", "not")
    pattern = expect.get("pattern")
    if not isinstance(pattern, str) or not pattern:
        raise ScorerError("regex needs a pattern: a text that is not empty")
    compiled = patterns.compiled(pattern, _flag(expect, "ignore_case"))
    negate = _flag(expect, "not")

    def judge(answer: Answer, row: Json) -> Judgement:
        found = patterns.found_in(compiled, answer.text)
        if found is None:
            return _yes(False, f"regex took over {patterns.REGEX_S:g} s")
        return _yes(found != negate, "not regex" if negate else "regex")
    return judge


# ---- JSON


def same_json(a: object, b: object) -> bool:
    """Equality of JSON values: 1 is 1.0, and true is not 1."""
    if isinstance(a, bool) or isinstance(b, bool):
        return a is b
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(same_json(a[k], b[k]) for k in a)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(same_json, a, b))
    if isinstance(a, (int, float, decimal.Decimal)) and isinstance(
            b, (int, float, decimal.Decimal)):
        return _decimal(a) == _decimal(b)
    return type(a) is type(b) and a == b


def _decimal(number: "int | float | decimal.Decimal") -> decimal.Decimal:
    # repr() of a double is the shortest text that reads as it: what was written.
    return (decimal.Decimal(repr(number)) if isinstance(number, float)
            else decimal.Decimal(number))


def _refuse(word: str) -> typing.NoReturn:
    raise ValueError(f"{word} is not JSON")


def _as_written(text: str) -> decimal.Decimal:
    try:
        return decimal.Decimal(text)
    except decimal.InvalidOperation:  # an exponent that no decimal has
        raise ValueError("a number out of range") from None


def _finite(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise ValueError("a number out of range")
    return value


def _parsed(text: str, exact: bool = True) -> typing.Any:
    """One JSON document; ValueError, RecursionError. exact: numbers as decimals."""
    return json.loads(text, parse_constant=_refuse,
                      parse_float=_as_written if exact else _finite)


def _json(expect: Json) -> Verdict:
    _only(expect, "value")
    if "value" not in expect:
        raise ScorerError("json needs a value: any JSON")
    wanted = expect["value"]

    def judge(answer: Answer, row: Json) -> Judgement:
        try:
            return _yes(same_json(_parsed(answer.text), wanted), "json: another value")
        except (ValueError, RecursionError):
            return _yes(False, "json: not one JSON document")
    return judge


def _json_schema(expect: Json) -> Verdict:
    _only(expect, "schema")
    schema = Schema(expect.get("schema"))

    def judge(answer: Answer, row: Json) -> Judgement:
        try:
            value = _parsed(answer.text, exact=False)
        except (ValueError, RecursionError):
            return _yes(False, "json_schema: not one JSON document")
        try:
            error = schema.check(value)
        except RecursionError:
            return _yes(False, "json_schema: nested too deep, or a reference to itself")
        except TooLong:
            return _yes(False, f"json_schema took over {schemas.SCHEMA_S:g} s")
        except (ArithmeticError, ValueError):  # multipleOf, of numbers without bound
            return _yes(False, "json_schema: a number out of range")
        except Exception as exc:  # a reference to what is no schema
            raise ScorerBroke(f"the schema of case {row['id']} cannot be used: "
                              f"{type(exc).__name__}; mend it and run again") from exc
        # The schema's own path: the answer's would repeat its keys.
        return _yes(error is None, "" if error is None else "json_schema: " + (
            "/".join(map(str, error.absolute_schema_path)) or "the schema"))
    return judge


# ---- tool calls


def _calls(expect: Json) -> "list[Json]":
    calls = expect.get("calls")
    if not isinstance(calls, list) or not all(
            isinstance(one, dict) and isinstance(one.get("name"), str)
            and isinstance(one.get("arguments", {}), dict)
            and one.keys() <= {"name", "arguments"} for one in calls):
        raise ScorerError("tool_calls needs calls: a list of {name, arguments}; "
                          "arguments is an object")
    return calls


def _tool_calls(expect: Json) -> Verdict:
    _only(expect, "calls", "order")
    wanted = _calls(expect)
    order = expect.get("order", "stated")
    if order not in ("stated", "any"):
        raise ScorerError("order is stated or any")

    def judge(answer: Answer, row: Json) -> Judgement:
        if len(answer.tool_calls) != len(wanted):
            return _yes(False, f"tool_calls: {len(answer.tool_calls)}, not {len(wanted)}")
        left = list(wanted)
        for number, call in enumerate(answer.tool_calls, 1):
            try:
                given = _parsed(call.get("arguments") or "{}")
            except (ValueError, RecursionError, TypeError):
                return _yes(False, f"tool_calls: arguments of call {number} are not JSON")
            fits = [i for i, one in enumerate(left if order == "any" else left[:1])
                    if one["name"] == call.get("name")
                    and same_json(one.get("arguments", {}), given)]
            if not fits:
                return _yes(False, f"tool_calls: call {number} is another")
            del left[fits[0]]
        return Judgement(WHOLE, True)
    return judge


# ---- numbers


def _exact(text: str) -> "fractions.Fraction | None":
    """A number as it is written; None: none, or none anybody measures."""
    text = text.strip()
    if not _NUMBER.fullmatch(text) or len(text) > _DIGITS_MAX:
        return None
    try:
        value = _as_written(text)
    except ValueError:
        return None
    exponent = value.as_tuple().exponent
    if not isinstance(exponent, int) or abs(exponent) > _DIGITS_MAX:
        return None
    return fractions.Fraction(value)


def _stated(expect: Json, name: str) -> "fractions.Fraction | None":
    """A number of an `expect`, as text or number; None: not stated."""
    if name not in expect:
        return None
    value = expect[name]
    found = None
    if isinstance(value, str):
        found = _exact(value)
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        found = _exact(repr(value))
    if found is None or (name != "value" and found < 0):
        raise ScorerError(f"{name} of number is a number or its text"
                          + ("" if name == "value" else ", not below 0"))
    return found


def _number(expect: Json) -> Verdict:
    _only(expect, "value", "abs", "rel", "find")
    wanted = _stated(expect, "value")
    if wanted is None:
        raise ScorerError("number needs a value: a number or its text")
    room = max(_stated(expect, "abs") or 0,
               (_stated(expect, "rel") or 0) * abs(wanted))
    find = expect.get("find", "whole")
    if find not in ("whole", "first", "last"):
        raise ScorerError("find is whole, first or last")

    def judge(answer: Answer, row: Json) -> Judgement:
        texts = [answer.text] if find == "whole" else _NUMBER.findall(answer.text)
        given = _exact(texts[0 if find == "first" else -1]) if texts else None
        if given is None:
            return _yes(False, "number: none in the answer" if find != "whole"
                        else "number: the answer is none")
        return _yes(abs(given - wanted) <= room, "number: too far off")
    return judge


# ---- functions of the user's


def function_of(name: str) -> Function:
    """The function of "module:function"; ScorerError: there is none."""
    module, mark, attribute = name.partition(":")
    if not mark or not module or not attribute:
        raise ScorerError(f"{name} is no module:function")
    if "" not in sys.path:
        sys.path.insert(0, "")  # where the command was started
    try:
        found: typing.Any = importlib.import_module(module)
    except (Exception, SystemExit) as exc:
        raise ScorerError(f"the module {module} does not load: "
                          f"{type(exc).__name__}: {exc}") from None
    for part in attribute.split("."):
        found = getattr(found, part, None)
    if not callable(found):
        raise ScorerError(f"the module {module} has no function {attribute}")
    return typing.cast(Function, found)


def _share(value: object, name: str) -> fractions.Fraction:
    """What a function returned, as a share of 1; ScorerBroke."""
    if isinstance(value, bool):
        return fractions.Fraction(int(value))
    if isinstance(value, (int, float, decimal.Decimal, fractions.Fraction)):
        try:  # the shortest text of a double is what was meant: 0.3
            share = fractions.Fraction(str(value))
        except (ValueError, ZeroDivisionError):
            share = fractions.Fraction(-1)  # NaN, infinite
        if 0 <= share <= 1:
            return share
        raise ScorerBroke(f"{name} returned a number outside 0 to 1")
    raise ScorerBroke(f"{name} returned {type(value).__name__}; return True, False "
                      "or a number from 0 to 1")


def _called(expect: Json, name: str, function: Function) -> Verdict:
    _only(expect, "value", "pass_at")
    least = _stated(expect, "pass_at") or fractions.Fraction(1)
    if not 0 < least <= 1:
        raise ScorerError("pass_at is over 0, and 1 at most")

    def judge(answer: Answer, row: Json) -> Judgement:
        try:
            # Copies: what it does to them is not done to the cases.
            value = function(*copy.deepcopy((
                {"text": answer.text, "tool_calls": list(answer.tool_calls),
                 "finish_reason": answer.finish}, {**row, "expect": expect})))
        except BaseException as exc:  # also sys.exit(); its words might repeat the answer
            raise ScorerBroke(f"{name} raised {type(exc).__name__} for case "
                              f"{row['id']}; mend it and run again") from exc
        share = _share(value, name)
        passed = share >= least
        return Judgement(int(share * WHOLE), passed, "" if passed else name)
    return judge


_READERS: "dict[str, typing.Callable[[Json], Verdict]]" = {
    "exact": _of_texts(lambda text, one: text == one),
    "contains": _of_texts(lambda text, one: one in text),
    "starts_with": _of_texts(lambda text, one: text.startswith(one)),
    "regex": _regex, "json": _json, "json_schema": _json_schema,
    "tool_calls": _tool_calls, "number": _number,
}
BUILT_IN = tuple(_READERS)


def judge_of(expect: object, functions: "typing.Mapping[str, Function]") -> Judge:
    """Reads one `expect`. functions: those named on the command line; a file of
    fixtures can have no other called. Raises ScorerError.
    """
    if not isinstance(expect, dict) or not isinstance(expect.get("scorer"), str):
        raise ScorerError('expect is {"scorer": ..., ...} or a list of them; scorers '
                          f"are {', '.join(BUILT_IN)} and module:function")
    name = expect["scorer"]
    if name in _READERS:
        return Judge(name, _READERS[name](expect))
    if name in functions:
        return Judge(name, _called(expect, name, functions[name]))
    if ":" in name:
        raise ScorerError(f"the function {name} is not called unless the command "
                          f"line says so; add --scorer {name}")
    raise ScorerError(f"no scorer is called {name}; there are {', '.join(BUILT_IN)} "
                      "and module:function")
