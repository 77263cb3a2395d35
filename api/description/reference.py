"""``/docs/``: the operations of the API, as pages for people.

The pages are rendered on the server from the documents of ``/openapi/v3``, which have every
operation of every kind and of ``stowage.dev``. They need no script and load nothing from elsewhere,
so the strictest content security policy holds. (Swagger UI and ReDoc would be a megabyte of script
each, and need styles that the policy of all other pages forbids.)
"""

from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any

import msgspec
from django.http import HttpResponse
from django.template.loader import render_to_string

from api.description import openapi3
from api.forms import errors, pages
from api.forms.pages import Link
from api.kinds import views
from api.requests import Request
from clusterstate.access.rules import Attributes
from clusterstate.objects.values.errors import NotFound

_METHODS = ("get", "post", "put", "patch", "delete")


class Operation(msgspec.Struct, frozen=True):
    """One method of one path."""

    method: str
    action: str
    kind: Link
    parameters: list[Link]
    body: Link
    answer: Link


class Path(msgspec.Struct, frozen=True):
    """A path and its operations."""

    path: str
    operations: list[Operation]


class Field(msgspec.Struct, frozen=True):
    """A field of a schema."""

    name: str
    type: Link
    about: str


class Schema(msgspec.Struct, frozen=True):
    """The schema of an object."""

    name: str
    about: str
    fields: list[Field]


class ReferenceView(views.StatusView):
    """The list of groups, or the page of one group and version."""

    def wants(self, request: Request) -> Iterable[Attributes]:
        """Return the right to read the documents behind the pages."""
        return (Attributes(verb="get", path="/openapi/v3"),)

    def get(self, request: Request, key: str = "") -> HttpResponse:
        """Return a page."""
        response = HttpResponse(page(key), content_type="text/html; charset=utf-8")
        response["Content-Security-Policy"] = pages.POLICY
        response["Cache-Control"] = errors.NO_CACHE
        return response


@cache
def page(key: str) -> str:
    """Return a page, rendered once: the served API does not change while a process lives.

    Raises:
        NotFound: no such group and version.
    """
    versions = {one: (group, version) for group, version, one in openapi3.versions()}
    context: dict[str, Any] = {
        "title": key or "API reference",
        "crumbs": [Link("Stowage", "/"), Link("docs", "/docs/" if key else "")],
    }
    if not key:
        context["groups"] = [Link(one, f"/docs/{one}/") for one in versions]
    elif key in versions:
        document = openapi3.document(*versions[key])
        context["crumbs"].append(Link(key))
        context["paths"] = list(_paths(document))
        context["schemas"] = list(_schemas(document))
    else:
        raise NotFound(errors.UNKNOWN_PATH)
    return render_to_string("api/reference.html", context)


def _paths(document: dict[str, Any]) -> Iterator[Path]:
    for path, item in sorted(document["paths"].items()):
        shared = item.get("parameters", [])
        operations = []
        for method in _METHODS:
            if method not in item:
                continue
            one = item[method]
            bodies = one.get("requestBody", {}).get("content", {}).values()
            answers = one["responses"].get("200", {}).get("content", {}).values()
            operations.append(
                Operation(
                    method.upper(),
                    one["x-kubernetes-action"],
                    Link(one["x-kubernetes-group-version-kind"]["kind"]),
                    [
                        Link(each["name"], about=each["description"])
                        for each in (*shared, *one.get("parameters", []))
                    ],
                    *(
                        next((_type(each["schema"]) for each in found), Link(""))
                        for found in (bodies, answers)
                    ),
                )
            )
        yield Path(path, operations)


def _schemas(document: dict[str, Any]) -> Iterator[Schema]:
    for name, schema in sorted(document["components"]["schemas"].items()):
        fields = [
            Field(field, _type(one), one.get("description", ""))
            for field, one in schema.get("properties", {}).items()
        ]
        yield Schema(name, schema.get("description", ""), fields)


def _type(schema: dict[str, Any]) -> Link:
    """Return the type of a value, with a link to its schema if that has a name."""
    (reference,) = [one["$ref"] for one in (schema, *schema.get("allOf", ())) if "$ref" in one] or [
        ""
    ]
    if reference:
        name = reference.rpartition("/")[2]
        return Link(name.rpartition(".")[2], f"#{name}")
    if "items" in schema:
        inner = _type(schema["items"])
        return Link(f"list of {inner.text}", inner.address)
    if "additionalProperties" in schema:
        inner = _type(schema["additionalProperties"])
        return Link(f"map of {inner.text}", inner.address)
    return Link(schema.get("format") or schema.get("type", "value"))
