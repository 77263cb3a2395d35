"""Rate limit on early retries that fail: attempts before the backoff of their pod is over.

Where many classes of pods fit nowhere and frequent events might help them, each event would have
all of them tried again at once, and the scheduler would do nothing else. So the number of early
attempts that fail is limited per second. A pod above the limit waits for the end of its backoff, as
in Kubernetes.
"""


class Allowance:
    """A number of attempts that grows with time.

    ``a_second``: by so much it grows. ``most``: more are not kept. Times are seconds since the
    epoch. While a clock that was set back is not yet where it was, nothing grows; one that was set
    back by more than a second begins anew, with all of them.
    """

    def __init__(self, a_second: float, most: int) -> None:
        self._a_second = a_second
        self._most = most
        self._attempts = float(most)
        self._at = 0.0

    def attempts(self, now: float) -> int:
        """Return how many attempts there are."""
        if now < self._at - 1.0:
            self._attempts = float(self._most)
            self._at = now
        elif now > self._at:
            grown = self._attempts + (now - self._at) * self._a_second
            self._attempts, self._at = min(grown, float(self._most)), now
        return int(self._attempts)

    def until(self, count: int, now: float) -> float:
        """Return when there are this many, now if there are."""
        missing = count - self.attempts(now)
        # The same quantities added in another order may fall short of a whole number.
        return now if missing <= 0 else now + (missing + 0.001) / self._a_second

    def take(self, attempts: int) -> None:
        """Use up this many."""
        self._attempts -= attempts

    def give_back(self) -> None:
        """Return one attempt, which did not come to nothing."""
        self._attempts = min(self._attempts + 1.0, float(self._most))
