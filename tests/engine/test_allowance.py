"""So many attempts may come before their time: the allowance for them grows with time."""

from scheduling.engine.queue.allowance import Allowance


def test_what_is_taken_grows_again_with_time_and_not_beyond_the_most():
    allowance = Allowance(10.0, 20)
    assert allowance.attempts(1000.0) == 20
    allowance.take(20)
    assert allowance.attempts(1000.0) == 0
    assert allowance.attempts(1000.5) == 5
    assert allowance.attempts(1009.0) == 20


def test_it_says_when_there_will_be_so_many():
    allowance = Allowance(10.0, 20)
    assert allowance.until(20, 1000.0) == 1000.0
    allowance.take(20)
    at = allowance.until(5, 1000.0)
    assert 1000.5 <= at < 1000.6
    assert allowance.attempts(at) == 5


def test_what_is_given_back_may_be_taken_again():
    allowance = Allowance(10.0, 20)
    allowance.attempts(1000.0)
    allowance.give_back()
    assert allowance.attempts(1000.0) == 20
    allowance.take(3)
    allowance.give_back()
    assert allowance.attempts(1000.0) == 18


def test_a_clock_that_is_set_back_takes_nothing_away():
    allowance = Allowance(10.0, 20)
    allowance.attempts(1000.0)
    allowance.take(15)
    assert allowance.attempts(999.9) == 5, "a little: nothing grows"
    assert allowance.attempts(500.0) == 20, "far: it does not wait for that time to come again"
    allowance.take(20)
    assert allowance.attempts(501.0) == 10
