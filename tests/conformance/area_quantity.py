"""Area quantity: parsing, canonical text and arithmetic of resource quantities."""

from decimal import Decimal, localcontext
from typing import Any

from clusterstate.objects.values.quantity import Quantity, QuantityError

DOCUMENTED = ("string", "format", "exact", "sign", "value", "milliValue")


def check(case: dict[str, Any]) -> str | None:
    """Return what differs, None if nothing does."""
    operation = case["op"]
    if operation == "parse":
        return _parse(case)
    a = _recorded(case["a"])
    if operation == "add":
        return _same(a.add(_recorded(case["b"])), case["result"])
    if operation == "sub":
        return _same(a.sub(_recorded(case["b"])), case["result"])
    if operation == "cmp":
        return _equal(a.cmp(_recorded(case["b"])), case["result"])
    if operation == "mul":
        return _same(a.mul(int(case["by"])), case["result"])
    if operation == "scaledValue":
        return _equal(str(a.scaled_value(case["scale"])), str(case["result"]))
    if operation == "roundUp":
        rounded, exact = a.round_up(case["scale"])
        return _equal(exact, case["exactFit"]) or _same(rounded, case["result"])
    return f"unknown op {operation!r}"


def _recorded(recorded: dict[str, Any]) -> Quantity:
    """Return a recorded quantity, which may have a format that its canonical text does not show."""
    if "exact" not in recorded:
        return Quantity.parse(recorded["string"])
    sign, digits, exponent = Decimal(recorded["exact"]).as_tuple()
    unscaled = int("".join(map(str, digits))) * (-1 if sign else 1)
    return Quantity(unscaled, recorded["format"], int(exponent))


def _parse(case: dict[str, Any]) -> str | None:
    try:
        found = Quantity.parse(case["input"])
    except QuantityError as error:
        return _equal(str(error), case.get("error"))
    return _same(found, case["result"]) if "result" in case else f"parsed as {found}"


def _same(found: Quantity, wanted: dict[str, Any]) -> str | None:
    with localcontext() as context:
        context.prec = 200
        shown = {
            "string": str(found),
            "format": found.format,
            "exact": Decimal(found.unscaled).scaleb(found.scale),
            "sign": found.sign,
            "value": str(found.value()),
            "milliValue": str(found.milli_value()),
        }
        expected = {key: wanted[key] for key in DOCUMENTED if key in wanted}
        if "exact" in expected:
            expected["exact"] = Decimal(expected["exact"])
    different = {key: shown[key] for key in expected if shown[key] != expected[key]}
    return f"{different}, wanted {wanted}" if different else None


def _equal(found: object, wanted: object) -> str | None:
    return None if found == wanted else f"{found!r}, wanted {wanted!r}"
