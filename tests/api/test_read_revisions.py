"""What reads say of revisions, and the other parameters of each verb, as Kubernetes validates them.

Rules: apiserver ``endpoints/handlers``, ``storage/errors.go`` and ``registry/store.go``, v1.36.
"""

import pytest

from tests.api.builders import pod

PODS = "/api/v1/namespaces/ns/pods"
ONE = f"{PODS}/p"
NONSENSE = ("abc", "-5", "1.5", " 1", "99999999999999999999999", "18446744073709551616", "\u0661")
FUTURE = ("999999999999", "9223372036854775807", "18446744073709551615")


@pytest.fixture
def made(api):
    return api.post(PODS, pod("p")).ok(201)["metadata"]["resourceVersion"]


@pytest.mark.parametrize("path", [ONE, f"{ONE}/status", PODS, "/api/v1/pods", "/api/v1/nodes"])
def test_reads_take_a_revision_that_is_one(api, made, path):
    for text in NONSENSE:
        status = api.get(f"{path}?resourceVersion={text}").fails(400, "BadRequest")
        assert "resourceVersion" in status["message"]
    for text in ("", "0", "1", made):
        api.get(f"{path}?resourceVersion={text}").ok()


@pytest.mark.parametrize("path", [ONE, f"{ONE}/status", PODS])
@pytest.mark.parametrize("text", FUTURE)
def test_a_revision_that_is_not_there_yet_is_told_as_such(api, made, path, text):
    exact = f"{path}?resourceVersion={text}&resourceVersionMatch=Exact"
    for asked in (f"{path}?resourceVersion={text}", exact):
        answer = api.get(asked)
        status = answer.fails(504, "Timeout")
        assert status["message"].startswith(f"Timeout: Too large resource version: {text}, current")
        assert status["details"]["retryAfterSeconds"] == 1
        (cause,) = status["details"]["causes"]
        assert cause == {
            "reason": "ResourceVersionTooLarge", "message": "Too large resource version",
        }  # fmt: skip
        assert answer.headers["Retry-After"] == "1"


@pytest.mark.parametrize(
    ("query", "code", "reason"),
    [
        ("resourceVersion=abc", 400, "BadRequest"),
        ("resourceVersion=999999999999", 504, "Timeout"),
        ("resourceVersionMatch=Exact", 422, "Invalid"),
        ("resourceVersion=1&resourceVersionMatch=Nonsense", 422, "Invalid"),
        ("sendInitialEvents=true", 422, "Invalid"),
        ("continue=abc", 400, "BadRequest"),
        ("limit=abc", 400, "BadRequest"),
        ("timeoutSeconds=x", 400, "BadRequest"),
        ("labelSelector=a%20in%20(", 400, "BadRequest"),
        ("fieldSelector=spec.containers%3D1", 400, "BadRequest"),
        ("dryRun=Some", 422, "Invalid"),
        ("propagationPolicy=Sideways", 422, "Invalid"),
        ("gracePeriodSeconds=soon", 400, "BadRequest"),
    ],
)
def test_a_collection_is_deleted_by_parameters_that_are_right(api, made, query, code, reason):
    api.delete(f"{PODS}?{query}").fails(code, reason)
    api.get(ONE).ok()


def test_a_limit_bounds_what_is_deleted(api, made):
    api.post(PODS, pod("q")).ok(201)
    api.delete(f"{PODS}?limit=1&gracePeriodSeconds=0").ok()
    api.get(ONE).fails(404, "NotFound")
    api.get(f"{PODS}/q").ok()
    api.delete(f"{PODS}?limit=-1&gracePeriodSeconds=0").ok()
    api.get(f"{PODS}/q").fails(404, "NotFound")


@pytest.mark.parametrize("limit", ["9223372036854775807", "0", "-1", "1"])
def test_a_limit_may_be_any_number(api, made, limit):
    assert len(api.get(f"{PODS}?limit={limit}").ok()["items"]) == 1
    api.get(f"{PODS}?limit=9223372036854775808").fails(400, "BadRequest")
