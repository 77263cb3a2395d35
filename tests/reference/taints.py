"""What ``kubectl taint`` and the node controller do to lists of taints.

Clients do these edits; the service stores what they send. The recorded cases of ``pkg/util/taints``
are checked against this statement of the rules. Source: ``pkg/util/taints``, v1.36.
"""

from collections.abc import Iterable, Sequence

from clusterstate.objects.rules.matching import EFFECTS, same_taint, taint_exists
from clusterstate.objects.values.labels import is_qualified_name, is_valid_label_value
from clusterstate.objects.values.node import Taint


class TaintError(ValueError):
    """A taint is malformed; the message is that of ``kubectl taint``."""


def taints_already_exist(old: Iterable[Taint], taints: Iterable[Taint]) -> str:
    """Return the keys of ``taints`` that ``old`` has with the same effect, joined by commas."""
    old = list(old)
    return ",".join(taint.key for taint in taints for other in old if same_taint(taint, other))


def add_or_update_taint(taints: Sequence[Taint], taint: Taint) -> tuple[list[Taint], bool]:
    """Return the taints with ``taint`` put in place or appended, and whether anything changed."""
    result: list[Taint] = []
    found = False
    for existing in taints:
        if not same_taint(existing, taint):
            result.append(existing)
        elif existing == taint:
            return list(taints), False
        else:
            result.append(taint)
            found = True
    return (result if found else [*result, taint]), True


def delete_taint(taints: Iterable[Taint], taint: Taint) -> tuple[list[Taint], bool]:
    """Return the taints without those of this key and effect, and whether any was removed."""
    taints = list(taints)
    kept = [existing for existing in taints if not same_taint(existing, taint)]
    return kept, len(kept) != len(taints)


def delete_taints_by_key(taints: Iterable[Taint], key: str) -> tuple[list[Taint], bool]:
    """Return the taints without those of this key, and whether any was removed."""
    taints = list(taints)
    kept = [existing for existing in taints if existing.key != key]
    return kept, len(kept) != len(taints)


def taint_set_diff(new: Sequence[Taint], old: Sequence[Taint]) -> tuple[list[Taint], list[Taint]]:
    """Return (to add, to remove): what only ``new`` has, what only ``old`` has."""
    return (
        [taint for taint in new if not taint_exists(old, taint)],
        [taint for taint in old if not taint_exists(new, taint)],
    )


def validate_taint(taint: Taint) -> None:
    """Check key, value and effect; an empty effect is allowed (``CheckTaintValidation``).

    Raises:
        TaintError: one of them is wrong.
    """
    if problems := is_qualified_name(taint.key):
        raise TaintError(f"invalid taint key: {'; '.join(problems)}")
    if problems := is_valid_label_value(taint.value):
        raise TaintError(f"invalid taint value: {'; '.join(problems)}")
    if taint.effect:
        _check_effect(taint.effect)


def _check_effect(effect: str) -> None:
    if effect not in EFFECTS:
        raise TaintError(f"invalid taint effect: {effect}, unsupported taint effect")


def parse_taint(spec: str) -> Taint:
    """Return the taint of ``key=value:effect``, ``key:effect`` or ``key``.

    Raises:
        TaintError: the text has another form or a part is not valid.
    """
    parts = spec.split(":")
    if len(parts) > 2:
        raise TaintError(f"invalid taint spec: {spec}")
    key, value, effect = parts[0], "", ""
    if len(parts) == 2:
        effect = parts[1]
        _check_effect(effect)
        pair = key.split("=")
        if len(pair) > 2:
            raise TaintError(f"invalid taint spec: {spec}")
        if len(pair) == 2:
            key, value = pair
            if problems := is_valid_label_value(value):
                raise TaintError(f"invalid taint spec: {spec}, {'; '.join(problems)}")
    if problems := is_qualified_name(key):
        raise TaintError(f"invalid taint spec: {spec}, {'; '.join(problems)}")
    return Taint(key=key, value=value, effect=effect)


def parse_taints(specs: Iterable[str]) -> tuple[list[Taint], list[Taint]]:
    """Return (to add, to remove) of ``kubectl taint`` arguments; a trailing ``-`` removes (R112).

    Raises:
        TaintError: an argument is malformed, lacks an effect to add, or repeats key and effect.
    """
    add: list[Taint] = []
    remove: list[Taint] = []
    for spec in specs:
        if spec.endswith("-"):
            taint = parse_taint(spec[:-1])
            remove.append(Taint(key=taint.key, effect=taint.effect))
            continue
        taint = parse_taint(spec)
        if not taint.effect:
            raise TaintError(f"invalid taint spec: {spec}")
        if taint_exists(add, taint):
            raise TaintError(
                "duplicated taints with the same key and effect: "
                f"{{{taint.key} {taint.value} {taint.effect} <nil>}}"
            )
        add.append(taint)
    return add, remove
