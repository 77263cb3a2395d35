"""What a refusal says of wrong fields, however many and however long they are."""

from clusterstate.objects.values.errors import (
    INVALID,
    MOST_TOLD,
    NOT_SUPPORTED,
    FieldError,
    Invalid,
)


def test_every_wrong_field_is_named():
    errors = [FieldError(INVALID, f"spec.f{n}", n, "must be even") for n in (1, 3)]
    refused = Invalid("Pod", "web", errors)
    assert refused.message == (
        'Pod "web" is invalid: [spec.f1: Invalid value: 1: must be even,'
        " spec.f3: Invalid value: 3: must be even]"
    )
    assert [cause["field"] for cause in refused.details["causes"]] == ["spec.f1", "spec.f3"]


def test_a_refusal_is_not_larger_than_a_person_reads():
    long = "x" * 1_000_000
    errors = [FieldError(INVALID, f"spec.f{n}", long, long) for n in range(10_000)]
    refused = Invalid("Pod", "web", errors)
    assert refused.message.endswith(f", and {10_000 - MOST_TOLD} more]")
    assert len(refused.details["causes"]) == MOST_TOLD
    assert len(refused.message) < 300_000
    assert refused.errors is errors


def test_of_a_long_value_the_beginning_is_shown():
    message = FieldError(NOT_SUPPORTED, "f", ["a" * 5000], 'supported values: "b"').message()
    assert message.startswith('Unsupported value: ["aaa')
    assert message.endswith('aaa...: supported values: "b"')
    assert len(message) < 1100
    assert FieldError(INVALID, "f", "a" * 900, "wrong").message() == (
        f'Invalid value: "{"a" * 900}": wrong'
    )
