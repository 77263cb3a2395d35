"""The page about scale: its tables are what the script makes of the measured costs."""

from tools import scale


def test_the_tables_of_the_page_are_those_of_the_script() -> None:
    page = scale.PAGE.read_text()
    assert scale.written(page) == page


def test_moves_let_pods_in_that_a_full_cell_keeps_out() -> None:
    still, moving = scale.week(0.9, moves=0), scale.week(0.9, moves=scale.MOVES_AN_HOUR)
    assert still.moved == 0
    assert moving.waited < still.waited / 10
    assert moving.spread < still.spread
