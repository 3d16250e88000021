"""A clock that tests move, in the place of the one that all deadlines and durations are read from."""

from kernelopt.support import clock


class Clock:
    """Seconds that pass where a test adds them to `now`, and by `tick` at each reading."""

    def __init__(self, tick=0.0):
        self.now, self.tick, self.readings = 0.0, tick, 0

    def __call__(self):
        self.readings += 1
        self.now += self.tick
        return self.now


def moved(monkeypatch, tick=0.0):
    """A clock that stands still but for its ticks, from now until the end of the test."""
    found = Clock(tick)
    monkeypatch.setattr(clock, "perf_counter", found)
    return found
