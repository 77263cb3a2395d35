"""Tables as files."""

import csv
import io
from collections.abc import Iterable, Sequence
from typing import Any, Final

from django.http import HttpResponse

_FORMULAS: Final = ("=", "+", "-", "@", "\t", "\r")


def plain(value: Any) -> Any:
    """Return a value that no spreadsheet treats as a formula, since users choose names."""
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULAS) else value


def as_csv(name: str, titles: Sequence[str], rows: Iterable[Iterable[Any]]) -> HttpResponse:
    """Return rows as a file ``NAME.csv``."""
    written = io.StringIO()
    writer = csv.writer(written)
    writer.writerow([plain(one) for one in titles])
    for row in rows:
        writer.writerow([plain(one) for one in row])
    response = HttpResponse(written.getvalue(), content_type="text/csv; charset=utf-8")
    response["Content-Disposition"] = f'attachment; filename="{name}.csv"'
    return response
