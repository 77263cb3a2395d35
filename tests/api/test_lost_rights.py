"""Who is looked at again while an answer stays open: one that fails keeps nobody else's open."""

from typing import Any

from django.contrib.auth import get_user_model

from api.access.impersonation import Claim
from api.streaming import rights
from clusterstate.access.rules import Attributes
from tests.api.conftest import make_token

WANTS = Attributes("watch", resource="pods", namespace="default")


def test_a_claim_that_cannot_be_judged_keeps_no_other_answer_open(db: None) -> None:
    good, lost = (
        (Claim(f"Bearer {make_token(name, ['stowage:readers'])}"), WANTS) for name in ("a", "b")
    )
    get_user_model().objects.filter(username="b").update(is_active=False)
    broken: Any = (None, WANTS)
    found = rights._lost([broken, good, lost])
    assert {claim: error.code for claim, error in found.items()} == {lost: 401}
