"""Rate limit on early attempts that fail: attempts before the pod's backoff is over.

If many classes of pods fit nowhere and frequent events might help them, each event would start
attempts for all of them, and the scheduler would do nothing else. So the number of early attempts
that fail is limited per second. A pod above the limit waits for the end of its backoff, as in
Kubernetes.
"""


class Allowance:
    """A token bucket of attempts.

    ``a_second``: the attempts that are added per second; ``most``: the capacity. Times are seconds
    since the epoch. A clock that is set back by at most a second adds nothing until it has caught
    up; one that is set back further fills the bucket.
    """

    def __init__(self, a_second: float, most: int) -> None:
        self._a_second = a_second
        self._most = most
        self._attempts = float(most)
        self._at = 0.0

    def attempts(self, now: float) -> int:
        """Return the number of attempts in the bucket."""
        if now < self._at - 1.0:
            self._attempts = float(self._most)
            self._at = now
        elif now > self._at:
            grown = self._attempts + (now - self._at) * self._a_second
            self._attempts, self._at = min(grown, float(self._most)), now
        return int(self._attempts)

    def until(self, count: int, now: float) -> float:
        """Return the time at which the bucket has ``count`` attempts; ``now`` if it has them."""
        missing = count - self.attempts(now)
        # Rounding may leave the sum just short of a whole number; the added time covers that.
        return now if missing <= 0 else now + (missing + 0.001) / self._a_second

    def take(self, attempts: int) -> None:
        """Take ``attempts`` tokens out of the bucket."""
        self._attempts -= attempts

    def give_back(self) -> None:
        """Put one attempt back, because it succeeded."""
        self._attempts = min(self._attempts + 1.0, float(self._most))
