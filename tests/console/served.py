"""The pages of the console that are asked for with GET, from its URL configuration.

Who measures or counts pages compares its list with ``pages``, so that a new page is in both.
"""

import re
from collections.abc import Iterator, Mapping, Sequence

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
        "fleet-beside", "fleet-columns", "fleet-pace", "find", "here", "why-columns", "why-helps",
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


def filled(path: str, named: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """Yield ``path`` with every value of each ``{name}`` in it; 1 where ``named`` has none."""
    found = re.search(r"\{(\w+)\}", path)
    if found is None:
        yield path
        return
    for value in named.get(found[1], ("1",)):
        yield from filled(path.replace(found[0], value, 1), named)


def addresses(named: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """Yield every address of the console, with every value of the names in it."""
    for entry in get_resolver("api.console.urls").url_patterns:
        pattern = re.sub(r"<(?:\w+:)?(\w+)>", r"{\1}", str(entry.pattern))
        yield from filled(f"/console/{pattern}", named)
