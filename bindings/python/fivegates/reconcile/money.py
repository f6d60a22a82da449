"""Money and prices: decimal text in, whole picos of a currency inside, decimal
text out; never a float.

A pico is 1e-12 of the currency's unit: exact for every price per token in use
(the smallest today is 2.8e-9 USD), and 9.2 million units fit in 64 bits.
"""

from __future__ import annotations

import dataclasses
import decimal
import typing

__all__ = ["METERS", "Price", "PriceBook", "decimal_of", "pico", "text"]

_CONTEXT = decimal.Context(prec=60, rounding=decimal.ROUND_HALF_EVEN)
_LARGEST = 9_000_000  # units; the 64 bits end at 9.2 million

# What a token is billed as. cache_write_1h is Anthropic's dearer write.
METERS = ("input", "cache_read", "cache_write", "cache_write_1h", "output")


def decimal_of(value: object) -> decimal.Decimal:
    """A finite number given as text or a parsed JSON number; ValueError."""
    if isinstance(value, bool) or not isinstance(
            value, (str, int, decimal.Decimal)):
        raise ValueError(f"{value!r} is not a number")
    try:
        number = decimal.Decimal(value.strip() if isinstance(value, str)
                                 else value)
    except decimal.InvalidOperation:
        raise ValueError(f"{value!r} is not a number") from None
    if not number.is_finite():
        raise ValueError(f"{value!r} is not a finite number")
    return number


def pico(value: object) -> int:
    """An amount in picos, rounded half-even: OpenAI's dashboard writes a
    float's 30 digits, all noise after the twelfth. ValueError."""
    number = decimal_of(value)
    if abs(number) > _LARGEST:
        raise ValueError(f"{value!r} is more than one row can cost")
    return int(number.scaleb(12, _CONTEXT).to_integral_value(
        decimal.ROUND_HALF_EVEN))


def text(picos: int) -> str:
    """Picos as decimal text, without an exponent."""
    number = _CONTEXT.scaleb(decimal.Decimal(picos), -12)
    shown = format(number, "f")
    return shown.rstrip("0").rstrip(".") if "." in shown else shown


@dataclasses.dataclass(slots=True)
class Price:
    """What a bill says of a price, of one meter of one model.

    per_token: stated, in units of the currency; or amount (and tokens) to
    divide. tokens None: the tokens are those of the usage export of
    [t_lo, t_hi), in ms of Unix time.
    """

    provider: str
    model: str
    meter: str
    currency: str
    place: str
    per_token: "decimal.Decimal | None" = None
    amount: "decimal.Decimal | None" = None
    tokens: "decimal.Decimal | None" = None
    t_lo: int = 0
    t_hi: int = 0


def _shortest(lo: decimal.Decimal, hi: decimal.Decimal) -> "decimal.Decimal | None":
    """The shortest decimal in [lo, hi] where the two are near: list prices
    are short, and amounts in a bill are rounded."""
    if lo <= 0 or (hi - lo) > hi / 1000:
        return None
    for digits in range(1, 30):
        step = decimal.Decimal(1).scaleb(hi.adjusted() + 1 - digits)
        found = (lo / step).to_integral_value(decimal.ROUND_CEILING) * step
        if found <= hi:
            return found
    return None


Span = typing.Tuple[decimal.Decimal, decimal.Decimal]
Key = typing.Tuple[str, str, str]


class PriceBook:
    """Prices by provider, model and meter; each an interval, mostly a point.

    What the user gives wins over what a bill states, that over what is divided.
    """

    def __init__(self) -> None:
        self._given: "dict[Key, Span]" = {}
        self._stated: "dict[Key, Span]" = {}
        self._sums: "dict[Key, list[decimal.Decimal]]" = {}
        self._currency: "dict[str, tuple[str, str]]" = {}

    def currency(self, provider: str) -> "str | None":
        found = self._currency.get(provider)
        return found[0] if found else None

    def see_currency(self, provider: str, currency: str, place: str,
                     ) -> "tuple[str, str] | None":
        """Notes a currency; another one already seen, with its place."""
        first = self._currency.setdefault(provider, (currency, place))
        return first if first[0] != currency else None

    def give(self, provider: str, model: str, meter: str,
             per_token: decimal.Decimal) -> None:
        """A price the user states, per token."""
        _widen(self._given, (provider, model, meter), per_token)

    def learn(self, price: Price) -> None:
        """A price a bill states, or an amount and its tokens."""
        key = (price.provider, price.model, price.meter)
        if price.per_token is not None:
            _widen(self._stated, key, price.per_token)
        elif price.amount is not None and price.tokens:
            sums = self._sums.setdefault(key, [decimal.Decimal(0)] * 3)
            exponent = price.amount.as_tuple().exponent
            sums[0] += price.amount
            sums[1] += price.tokens
            # Half a unit of the amount's last place; no finer than a pico.
            sums[2] += decimal.Decimal(5).scaleb(
                max(exponent if isinstance(exponent, int) else 0, -12) - 1)

    def of(self, provider: str, model: str, meter: str) -> "Span | None":
        """Least and greatest price of a token; None when nothing says."""
        key = (provider, model, meter)
        if key in self._given:
            return self._given[key]
        if key in self._stated:
            return self._stated[key]
        if key in self._sums:
            amount, tokens, slack = self._sums[key]
            lo, hi = (amount - slack) / tokens, (amount + slack) / tokens
            short = _shortest(lo, hi)
            return (short, short) if short is not None else (max(lo, decimal.Decimal(0)), hi)
        if meter == "cache_write_1h":
            return None  # twice the input, or not: never guessed
        if meter != "input" and meter != "output" and key[:2] + ("input",) in self._given:
            return self._given[key[:2] + ("input",)]
        return None

    def cost(self, provider: str, model: str, tokens: "typing.Mapping[str, int]",
             ) -> "tuple[int, int] | None":
        """Picos, least and greatest, for tokens by meter; None when a meter
        in use has no price."""
        lo = hi = decimal.Decimal(0)
        for meter, count in tokens.items():
            if count == 0:
                continue
            price = self.of(provider, model, meter)
            if price is None:
                return None
            lo += price[0] * count
            hi += price[1] * count
        return pico(lo), pico(hi)


def _widen(book: "dict[Key, Span]", key: Key, value: decimal.Decimal) -> None:
    lo, hi = book.get(key, (value, value))
    book[key] = (min(lo, value), max(hi, value))
