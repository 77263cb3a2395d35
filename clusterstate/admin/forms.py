"""Text fields for maps, and an action's errors beside the fields of a form."""

from collections.abc import Iterable, Mapping
from typing import Any

from django import forms
from unfold.widgets import UnfoldAdminTextareaWidget

from clusterstate.objects.values.errors import Invalid, StatusError


class MapField(forms.CharField):
    """A map as text, one ``key=value`` a line; ``clean`` returns ``dict[str, str]``."""

    def __init__(self, **options: Any) -> None:
        options.setdefault("required", False)
        options.setdefault("widget", UnfoldAdminTextareaWidget(attrs={"rows": 5}))
        options.setdefault("help_text", "One key=value a line.")
        super().__init__(**options)

    def prepare_value(self, value: Any) -> Any:
        """Return the text to show for a map; text that was submitted stays as it is."""
        if isinstance(value, dict):
            return as_lines(value)
        return value

    def clean(self, value: Any) -> Any:
        """Return the map.

        Raises:
            forms.ValidationError: a line without ``=``, or a key that comes twice.
        """
        result: dict[str, str] = {}
        for line in super().clean(value).splitlines():
            key, separator, content = line.strip().partition("=")
            if not key and not separator:
                continue
            if not separator:
                raise forms.ValidationError(f"“{key}” is not of the form key=value.")
            if key.strip() in result:
                raise forms.ValidationError(f"“{key.strip()}” comes twice.")
            result[key.strip()] = content.strip()
        return result

    def has_changed(self, initial: Any, data: Any) -> bool:
        """Return whether the map differs; order and spaces of lines are ignored."""
        try:
            return bool(self.clean(data) != (initial or {}))
        except forms.ValidationError:
            return True


def as_lines(value: Mapping[str, str]) -> str:
    """Return a map as text, sorted by key."""
    return "\n".join(f"{key}={value[key]}" for key in sorted(value))


def refusals(error: StatusError) -> list[tuple[str, str]]:
    """Return (field path, message) of each cause of an error; an empty path: the request."""
    if isinstance(error, Invalid):
        return [(wrong.field, f"{wrong.field}: {wrong.message()}") for wrong in error.errors]
    return [("", error.message)]


def show(
    form: forms.BaseForm, problems: Iterable[tuple[str, str]], fields: Mapping[str, str]
) -> None:
    """Add each problem to the form's field for its path; other problems to the form's top.

    ``fields`` maps the beginning of a path to the name of a form's field.
    """
    for path, message in problems:
        name = next((fields[start] for start in fields if path.startswith(start)), None)
        form.add_error(name if name in form.fields else None, message)
