"""Exact resource quantities: ``500m``, ``1.5Gi``, ``2e3``.

A quantity is a decimal number of any precision and the format it was written in. Nothing here ever
becomes a float. The rules are those of apimachinery's ``resource.Quantity``
(``pkg/api/resource/quantity.go`` and ``amount.go``, v1.36): parsing rounds what is finer than a
billionth away from zero, binary quantities are capped at 2^63-1, the canonical text has no
fraction and the largest suffix that loses nothing, and ``value`` and ``milli_value`` round away
from zero.

``Quantity`` is for admission, quota and display. Hot paths want integers: ``milli_value(text)``
and ``value(text)`` are cached and saturate at the int64 bounds.
"""

import re
from typing import Final

import msgspec

from clusterstate.objects.values.remembered import remembered

DECIMAL_SI: Final = "DecimalSI"
BINARY_SI: Final = "BinarySI"
DECIMAL_EXPONENT: Final = "DecimalExponent"

MAX_INT64: Final = 2**63 - 1
MIN_INT64: Final = -(2**63)

NANO_SCALE: Final = -9
_NANO: Final = 10**9
_MAX_EXPONENT: Final = 1000
_FORMAT_WRONG: Final = (
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
)
_NUMERIC_WRONG: Final = "unable to parse numeric part of quantity"
_SUFFIX_WRONG: Final = "unable to parse quantity's suffix"
# Possessive (*+): backtracking into digits would cost time quadratic in the length of the text.
_PATTERN: Final = re.compile(r"([+-]?)([0-9]*+)(?:\.([0-9]*+))?([eEinumkKMGTP]*+[-+]?[0-9]*+)")
_DECIMAL_SUFFIXES: Final = {
    "n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18,
}  # fmt: skip
_BINARY_SUFFIXES: Final = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_SUFFIX_OF_DECIMAL: Final = {exponent: suffix for suffix, exponent in _DECIMAL_SUFFIXES.items()}
_SUFFIX_OF_BINARY: Final = {
    0: "", **{e // 10: s for s, e in _BINARY_SUFFIXES.items()},
}  # fmt: skip


class QuantityError(ValueError):
    """The text is not a quantity; the message is Kubernetes' own."""


def _divide_away_from_zero(number: int, divisor: int) -> int:
    return -(-number // divisor) if number >= 0 else number // divisor


class Quantity(msgspec.Struct, frozen=True, eq=False):
    """The number ``unscaled * 10**scale`` and the ``format`` to write it in.

    Equality and order look at the number alone: ``1Ki == 1024``. What is parsed has billionths as
    its smallest unit; only arithmetic on other scales can be finer.
    """

    unscaled: int
    format: str = DECIMAL_SI
    scale: int = NANO_SCALE

    @classmethod
    def parse(cls, text: str | int | float) -> "Quantity":
        """Return the quantity that ``text`` (or a JSON number) states.

        Raises:
            QuantityError: ``text`` is no quantity. Exponents beyond a thousand, which Kubernetes
                accepts and then spends unbounded time on, are refused as a wrong suffix.
        """
        if isinstance(text, bool) or not isinstance(text, str | int | float):
            raise QuantityError(_FORMAT_WRONG)
        return _parse(text if isinstance(text, str) else repr(text))

    @classmethod
    def of(cls, number: int, quantity_format: str = DECIMAL_SI) -> "Quantity":
        """Return the quantity of a whole number."""
        return cls(number * _NANO, quantity_format)

    @property
    def nano(self) -> int:
        """The number of billionths, rounded away from zero."""
        return self.unscaled if self.scale == NANO_SCALE else self.scaled_value(NANO_SCALE)

    @property
    def sign(self) -> int:
        """-1, 0 or 1."""
        return (self.unscaled > 0) - (self.unscaled < 0)

    def value(self) -> int:
        """Return the number as an integer, rounded away from zero."""
        return self.scaled_value(0)

    def milli_value(self) -> int:
        """Return the number of thousandths, rounded away from zero."""
        return self.scaled_value(-3)

    def scaled_value(self, scale: int) -> int:
        """Return the number in units of ``10**scale``, rounded away from zero."""
        if scale <= self.scale:
            return self._at(scale)
        return _divide_away_from_zero(self.unscaled, 10 ** (scale - self.scale))

    def add(self, other: "Quantity") -> "Quantity":
        """Return the sum, in this format; a zero takes over the other's format."""
        scale = min(self.scale, other.scale)
        total = self._at(scale) + other._at(scale)
        return Quantity(total, self.format if self.unscaled else other.format, scale)

    def sub(self, other: "Quantity") -> "Quantity":
        """Return the difference, in this format; a zero takes over the other's format."""
        scale = min(self.scale, other.scale)
        total = self._at(scale) - other._at(scale)
        return Quantity(total, self.format if self.unscaled else other.format, scale)

    def mul(self, by: int) -> "Quantity":
        """Return the product with a whole number."""
        return Quantity(self.unscaled * by, self.format, self.scale)

    def cmp(self, other: "Quantity") -> int:
        """Return -1, 0 or 1 as this number is below, equal to or above the other."""
        scale = min(self.scale, other.scale)
        mine, others = self._at(scale), other._at(scale)
        return (mine > others) - (mine < others)

    def round_up(self, scale: int) -> tuple["Quantity", bool]:
        """Return the number rounded away from zero to a multiple of ``10**scale``, and exactness.

        The second value is true if nothing was lost.
        """
        if scale <= self.scale:
            return self, True
        rounded = Quantity(self.scaled_value(scale), self.format, scale)
        return rounded, rounded == self

    def _at(self, scale: int) -> int:
        """Return the number in units of ``10**scale``, which is not coarser than its own."""
        if scale == self.scale:
            return self.unscaled
        return self.unscaled * int(10 ** (self.scale - scale))

    def __str__(self) -> str:
        """Return the canonical text: no fraction, nothing lost, the largest suffix.

        There is no suffix below ``n``: like Kubernetes, finer numbers are written without one.
        Numbers too large for a suffix have an exponent, or all their digits (v1.38, #140459).
        """
        if not self.unscaled:
            return "0"
        if self.format == BINARY_SI:
            whole = self.value()
            if abs(whole) >= 1024 and self == Quantity(whole, scale=0):
                exponent = 0
                while not whole % 1024:
                    whole //= 1024
                    exponent += 1
                if exponent in _SUFFIX_OF_BINARY:
                    return f"{whole}{_SUFFIX_OF_BINARY[exponent]}"
        decimals = self.scale % 3
        mantissa, exponent = self.unscaled * 10**decimals, self.scale - decimals
        while not mantissa % 1000:
            mantissa //= 1000
            exponent += 3
        if self.format == DECIMAL_EXPONENT or exponent > 18:
            return f"{mantissa}e{exponent}" if exponent else str(mantissa)
        return f"{mantissa}{_SUFFIX_OF_DECIMAL.get(exponent, '')}"

    def __repr__(self) -> str:
        return f"Quantity({str(self)!r})"

    def __bool__(self) -> bool:
        return self.unscaled != 0

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Quantity) and self.cmp(other) == 0

    def __ne__(self, other: object) -> bool:  # msgspec's compares identities
        return not self == other

    def __lt__(self, other: "Quantity") -> bool:
        return self.cmp(other) < 0

    def __le__(self, other: "Quantity") -> bool:
        return self.cmp(other) <= 0

    def __gt__(self, other: "Quantity") -> bool:
        return self.cmp(other) > 0

    def __ge__(self, other: "Quantity") -> bool:
        return self.cmp(other) >= 0

    def __hash__(self) -> int:
        return hash(self.nano)


ZERO: Final = Quantity(0)


@remembered(65_536, longest=64)
def _parse(text: str) -> Quantity:
    """Parse as ``ParseQuantity`` does, with its oddities: ``+``, ``.`` and ``M`` are zero."""
    match = _PATTERN.fullmatch(text) if text else None
    if match is None:
        raise QuantityError(_FORMAT_WRONG)
    sign, whole, fraction, suffix = match.groups()
    fraction = fraction or ""
    if len(whole) + len(fraction) > 4000:
        raise QuantityError(_NUMERIC_WRONG)
    digits = int(whole + fraction or "0")
    binary = _BINARY_SUFFIXES.get(suffix)
    if binary is not None:
        nano = _divide_away_from_zero((digits << binary) * _NANO, 10 ** len(fraction))
        nano = min(nano, MAX_INT64 * _NANO)
        quantity_format = DECIMAL_SI if 0 < nano < _NANO else BINARY_SI
        return Quantity(-nano if sign == "-" else nano, quantity_format)
    exponent = _DECIMAL_SUFFIXES.get(suffix)
    quantity_format = DECIMAL_SI
    if exponent is None:
        exponent = _exponent(suffix)
        quantity_format = DECIMAL_EXPONENT
        if exponent < -9 and not whole and not fraction:
            raise QuantityError(_NUMERIC_WRONG)
    shift = exponent - len(fraction) + 9
    nano = digits * 10**shift if shift >= 0 else _divide_away_from_zero(digits, 10**-shift)
    return Quantity(-nano if sign == "-" else nano, quantity_format)


def _exponent(suffix: str) -> int:
    digits = suffix[2:] if suffix[1:2] in ("+", "-") else suffix[1:]
    if suffix[:1] not in ("e", "E") or not digits.isdigit() or len(digits) > 18:
        raise QuantityError(_SUFFIX_WRONG)
    exponent = int(suffix[1:])
    if abs(exponent) > _MAX_EXPONENT:
        raise QuantityError(_SUFFIX_WRONG)
    return exponent


@remembered(65_536, longest=64)
def milli_value(text: str | int | float) -> int:
    """Return thousandths, rounded away from zero, within int64. Raises ``QuantityError``."""
    return min(max(Quantity.parse(text).milli_value(), MIN_INT64), MAX_INT64)


@remembered(65_536, longest=64)
def value(text: str | int | float) -> int:
    """Return whole units, rounded away from zero, within int64. Raises ``QuantityError``."""
    return min(max(Quantity.parse(text).value(), MIN_INT64), MAX_INT64)
