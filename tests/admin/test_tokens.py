"""API tokens in the admin: seen by who may, taken back, and never shown."""

from django.test import Client
from django.urls import reverse

from clusterstate.actions.people import tokens
from clusterstate.models.tokens import ApiToken
from tests.clock import NOW

LIST = "admin:clusterstate_apitoken_changelist"


def test_a_token_is_listed_and_taken_back(administrator: Client) -> None:
    secret = tokens.new_secret()
    tokens.create_token(user="system:node:n7", secret=secret, now=NOW, name="agent")
    page = administrator.get(reverse(LIST)).content.decode()
    assert "system:node:n7" in page
    assert secret not in page
    assert tokens.digest(secret).hex() not in page
    (token,) = ApiToken.objects.all()
    url = reverse("admin:clusterstate_apitoken_delete", args=[token.pk])
    assert administrator.post(url, {"post": "yes"}).status_code == 302
    assert not ApiToken.objects.exists()


def test_who_may_not_see_tokens_does_not(viewer: Client) -> None:
    assert viewer.get(reverse(LIST)).status_code == 403
