"""What of a route's static part can be filled in from data, and what cannot."""

from __future__ import annotations

import dataclasses
import decimal
import typing

from fivegates.contract.cards import CardFile, Json
from fivegates.contract.questions import QUESTIONS
from fivegates.contract.sources import Source

__all__ = ["Question", "Row", "draft", "questions", "write"]

_MODALITIES = ("text", "image", "audio", "video", "file")
_PARTS = ("input", "cached_input", "output")
# What the data may know, in the order it is shown.
_KEYS = ("price", "input.context_tokens", "input.modalities", "input.system_prompt",
         "input.prefill", "output.max_tokens", "output.json_schema",
         "output.reasoning", "tools.names", "tools.parallel_calls",
         "operations.streaming", "economics.cache")


@dataclasses.dataclass
class Row:
    """One key: what the data says, what the card does, and what follows.

    state: new (the data knows it, the card does not state it), stated (both say
    the same), differs, disputed (the sources disagree, and none is believed),
    unknown (no data says so, which is no `no`). said: by source, its value.
    """

    key: str
    state: str
    value: typing.Any = None
    card: typing.Any = None
    said: "dict[str, typing.Any]" = dataclasses.field(default_factory=dict)


@dataclasses.dataclass
class Question:
    """Something that only a person knows: its key, and what the workflow wants."""

    key: str
    text: str
    required: object = None


def draft(card: CardFile, route: str, sources: "typing.Sequence[Source]",
          ) -> "list[Row]":
    """What the sources say of a route's model, beside what the card states."""
    here = card.data["routes"][route]
    rows: "list[Row]" = []
    for key in _KEYS:
        section, _, name = key.partition(".")
        stated = here.get("price") if key == "price" else (
            (here.get("provides") or {}).get(section) or {}).get(name)
        if key == "price":
            parts = {part: f"price.{part}" for part in _PARTS}
            rows += _composed(key, stated, parts, sources, _price)
        elif key == "input.modalities":
            parts = {one: f"{key}.{one}" for one in _MODALITIES}
            rows += _composed(key, stated, parts, sources, _modalities)
        else:
            rows.append(_single(key, stated, _said(key, sources)))
    return rows


def _said(key: str, sources: "typing.Sequence[Source]") -> "dict[str, typing.Any]":
    return {one.name: one.facts[key] for one in sources if key in one.facts}


def _agreed(said: "dict[str, typing.Any]") -> typing.Any:
    """The value of all that say one; None: none does, or they disagree."""
    values = list(said.values())
    return values[0] if values and all(one == values[0] for one in values) else None


def _single(key: str, stated: typing.Any, said: "dict[str, typing.Any]") -> Row:
    value = _agreed(said)
    if value is None:
        return Row(key, "disputed" if said else "unknown", None, stated, said)
    if key == "tools.names":  # tools of any name, or none at all
        value = ["*"] if value else []
        if stated and value:  # fewer names are no contradiction
            return Row(key, "stated", value, stated, said)
    return Row(key, _state(value, stated), value, stated, said)


def _state(value: typing.Any, stated: typing.Any) -> str:
    return ("new" if stated is None else "stated" if _same(value, stated)
            else "differs")


def _same(value: typing.Any, stated: typing.Any) -> bool:
    if isinstance(value, list) and isinstance(stated, list):
        return set(value) == set(stated)
    if isinstance(value, dict):  # a price, in one of the forms of a card
        return _whole_price(value) == _whole_price(stated)
    return bool(value == stated)


def _whole_price(price: typing.Any) -> "dict[str, decimal.Decimal]":
    if not isinstance(price, dict):
        return dict.fromkeys(_PARTS, decimal.Decimal(0))
    return {part: decimal.Decimal(str(price.get(part, price["input"])))
            for part in _PARTS}


def _composed(key: str, stated: typing.Any, parts: "dict[str, str]",
              sources: "typing.Sequence[Source]",
              made: "typing.Callable[[Json], typing.Any]") -> "list[Row]":
    """A value of several facts, and rows for those that are disputed."""
    said = {part: _said(name, sources) for part, name in parts.items()}
    rows = [Row(parts[part], "disputed", None, None, each)
            for part, each in said.items() if each and _agreed(each) is None]
    value = made({part: _agreed(each) for part, each in said.items()})
    if value is None:
        return rows or [Row(key, "unknown", None, stated)]
    names = dict.fromkeys(name for each in said.values() for name in each)
    state = _state(value, stated)
    if key == "input.modalities" and state == "differs" and not any(
            _agreed(said[one]) is False for one in stated) and (
            set(value) <= set(stated)):
        state = "stated"  # the card knows of more than the data does
    return [Row(key, state, value, stated, dict.fromkeys(names, value)), *rows]


def _price(parts: Json) -> "Json | None":
    """input and output must be known; without cached_input it costs as input."""
    if parts["input"] is None or parts["output"] is None:
        return None
    return {part: value for part, value in parts.items() if value is not None}


def _modalities(parts: Json) -> "list[str] | None":
    return [part for part, value in parts.items() if value] or None


def write(card: CardFile, route: str, rows: "typing.Sequence[Row]",
          overwrite: bool) -> None:
    """Writes what is new, and with overwrite what differs, into the card."""
    for row in rows:
        if row.state == "new" or row.state == "differs" and overwrite:
            section, _, key = row.key.partition(".")
            if row.key == "price":
                card.put_price(route, row.value)
            else:
                card.put_provides(route, section, key, row.value)


def questions(card: CardFile, workflow: str, route: str) -> "list[Question]":
    """What a person is asked: what the workflow requires and the card does not
    state, first; then what else no data knows."""
    provides = card.data["routes"][route].get("provides") or {}
    requires = card.data["workflows"][workflow].get("requires") or {}
    wanted = {f"{section}.{key}": value for section, keys in requires.items()
              for key, value in keys.items()
              if section != "quality" and value is not False
              and (section, key) not in (("economics", "price_max"), ("output", "schema"))}
    stated = {f"{section}.{key}" for section, keys in provides.items() for key in keys}
    return [Question(key, QUESTIONS.get(key, "what does it provide?"), wanted.get(key))
            for key in {**wanted, **QUESTIONS} if key not in stated]
