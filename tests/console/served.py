"""The pages of the console that are asked for with GET, from its URL configuration.

Who measures or counts pages compares its list with ``pages``, so that a new page is in both.
"""

from django.urls import get_resolver, resolve

ACTS = frozenset(
    {
        "plan-act", "what-if-add", "what-if-remove", "what-if-share", "gates", "permit",
        "canary-act", "examples", "sign-out",
    }
)  # fmt: skip
"""What is only posted to."""
OF_STRANGERS = frozenset({"sign-in", "sign-in-code", "company", "company-back"})
"""What nobody sees who is signed in."""


OF_PROGRAMS = frozenset(
    {
        "fleet-beside", "fleet-columns", "fleet-pace", "find", "why-columns", "why-helps",
        "nodes-csv", "decisions-csv", "objects-csv", "plan-yaml", "what-if-yaml",
    }
)  # fmt: skip
"""Parts of pages, and files: nobody reads them alone."""


def looked_at() -> set[str]:
    """Return the URL names of the pages that somebody sees in a browser, strangers included."""
    assert pages() >= OF_PROGRAMS, "a name here is served no more"
    return pages() - OF_PROGRAMS | {"sign-in", "sign-in-code"}


def pages() -> set[str]:
    """Return the URL names of all other pages."""
    names = {one.name for one in get_resolver("api.console.urls").url_patterns}
    assert names >= ACTS | OF_STRANGERS, "a name here is served no more"
    return names - ACTS - OF_STRANGERS


def name_of(address: str) -> str:
    """Return the URL name of an address."""
    found = resolve(address.partition("?")[0]).url_name
    assert found is not None
    return found
