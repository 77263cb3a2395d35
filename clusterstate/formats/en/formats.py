"""Forms of times, by the names that Django looks for."""

from typing import Final

DATE_FORMAT: Final = "Y-m-d"
DATETIME_FORMAT: Final = r"Y-m-d H:i:s \U\T\C"
SHORT_DATE_FORMAT: Final = DATE_FORMAT
SHORT_DATETIME_FORMAT: Final = DATETIME_FORMAT
