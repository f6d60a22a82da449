"""JSON Schemas of fixtures: nothing is fetched, and each judgement has an end."""

from __future__ import annotations

import importlib
import threading
import time
import typing

from fivegates.contract.patterns import ScorerError, compiled, found_in

__all__ = ["SCHEMA_S", "Schema", "TooLong"]

Json = typing.Dict[str, typing.Any]

# Seconds of one judgement: a schema whose references multiply takes for ever.
SCHEMA_S = 1.0
_DRAFT = "https://json-schema.org/draft/2020-12/schema"
# Keywords whose value is data, and those whose value has schemas by name.
_VALUES = ("const", "enum", "default", "examples")
_BY_NAME = ("$defs", "definitions", "dependentSchemas", "properties")


def _walk(schema: object, lookup: "typing.Callable[[str], object]",
          top: bool = True, names: bool = False) -> None:
    """Refuses what leads out of a schema or to nowhere in it, or past the guard on
    patterns. names: the keys are those of values, not words of a schema."""
    if isinstance(schema, list):
        for at in schema:
            _walk(at, lookup, False)
    if not isinstance(schema, dict):
        return
    for key, value in schema.items():
        if names:
            _walk(value, lookup, False)
            continue
        if key in ("$ref", "$dynamicRef") and isinstance(value, str):
            if not value.startswith("#"):
                raise ScorerError(f"{key} {value} leads out of the schema; write it "
                                  "out under $defs")
            try:
                lookup(value)
            except Exception:  # no such place, or a way to it that is none
                raise ScorerError(f"{key} {value} leads nowhere; write it out under "
                                  "$defs") from None
        elif key == "$id" and not top:
            raise ScorerError("a schema in the schema has an $id; write it out under "
                              "$defs, without one")
        elif key == "pattern" and isinstance(value, str):
            compiled(value, False)
        elif key == "patternProperties":
            raise ScorerError("patternProperties is not supported; use "
                              "propertyNames with a pattern, or a function")
        elif key not in _VALUES:
            _walk(value, lookup, False, key in _BY_NAME)


class TooLong(Exception):
    """A schema that multiplies by its references, or a pattern that explodes."""


class Schema:
    """A JSON Schema, ready to judge: check(value) is the first error or None.

    Raises TooLong, and RecursionError where a reference leads back to itself
    or the value is nested too deep.
    """

    def __init__(self, schema: object) -> None:
        if not isinstance(schema, (dict, bool)):
            raise ScorerError("json_schema needs a schema: an object")
        if isinstance(schema, dict) and schema.get("$schema", _DRAFT) != _DRAFT:
            raise ScorerError(f"$schema is {schema['$schema']}; schemas are read by "
                              f"{_DRAFT}")
        try:
            jsonschema: typing.Any = importlib.import_module("jsonschema")
            referencing: typing.Any = importlib.import_module("referencing")
            drafts: typing.Any = importlib.import_module("referencing.jsonschema")
        except ImportError:
            raise ScorerError("json_schema needs the package jsonschema; pip install "
                              "'fivegates[contract]'") from None
        self._error = jsonschema.ValidationError
        self._until = threading.local()  # judges run in several threads
        known = jsonschema.Draft202012Validator
        kind = jsonschema.validators.extend(known, {
            "pattern": self._pattern,
            **{key: self._timed(known.VALIDATORS[key]) for key in ("$ref", "$dynamicRef")}})
        # A registry of its own: the default one may fetch what a $ref names.
        registry = referencing.Registry()
        try:
            kind.check_schema(schema)
            _walk(schema, registry.resolver_with_root(
                drafts.DRAFT202012.create_resource(schema)).lookup)
        except jsonschema.SchemaError as exc:
            raise ScorerError(f"the schema is none: {exc.json_path}: {exc.message:.200}"
                              ) from None
        except RecursionError:
            raise ScorerError("the schema is nested too deep") from None
        self._validator = kind(schema, registry=registry)

    def _pattern(self, validator: typing.Any, pattern: str, instance: object,
                 schema: Json) -> "typing.Iterator[typing.Any]":
        if not isinstance(instance, str):
            return
        found = found_in(compiled(pattern, False), instance)
        if found is None:  # no error either: `not` would make it pass
            raise TooLong
        if not found:
            yield self._error("pattern")

    def _timed(self, keyword: typing.Any) -> typing.Any:
        """A reference, followed only as long as there is time: without references
        the work is bounded by the sizes of schema and value."""
        def followed(*args: typing.Any) -> typing.Any:
            if time.monotonic() > self._until.at:
                raise TooLong
            return keyword(*args)
        return followed

    def check(self, value: object) -> typing.Any:
        self._until.at = time.monotonic() + SCHEMA_S
        return next(self._validator.iter_errors(value), None)
