"""The time that is told to be left, against a clock that is set by hand."""

from __future__ import annotations

import pytest

from recombine.lab import progress
from recombine.lab.progress import Watch


class Clock:
    now = 1_000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(progress, "time", clock)
    return clock


def left(watch: Watch) -> float | None:
    return watch.state()[1]


def test_nothing_is_told_before_work_moves(clock):
    watch = Watch()
    watch.start("training", {"a": 100})
    watch.begin("a")
    for seconds, doing in enumerate(("preparing", "compiling", "training"), start=5):
        clock.now += seconds
        watch("a", 0, 10, doing)
        assert left(watch) is None
    assert watch.line() == "training: 0 % (training)"


def test_neither_compilation_nor_what_was_done_before_sets_the_pace(clock):
    watch = Watch()
    watch.start("training", {"a": 100})
    watch.begin("a")
    watch("a", 0, 10, "preparing")
    watch("a", 6, 10, "compiling")
    clock.now += 60
    watch("a", 6, 10, "training")
    clock.now += 2
    watch("a", 7, 10, "training")
    assert left(watch) == pytest.approx(6)
    assert watch.line() == "training: 70 %, about 6 s left (training)"


def test_each_kind_has_its_own_pace(clock):
    """A thousand small steps took ten seconds, so would a thousand large ones, until one is met."""
    watch = Watch()
    watch.start("training", {"small": 1000, "large": 1000}, {"small": "s", "large": "l"})
    watch("small", 0, 10, "training")
    clock.now += 5
    watch("small", 5, 10, "training")
    assert left(watch) == pytest.approx(5 + 10)
    clock.now += 5
    watch("small", 10, 10, "training")
    watch.finish("small")
    assert left(watch) == pytest.approx(10)
    watch("large", 0, 10, "training")
    clock.now += 30
    watch("large", 1, 10, "training")
    assert left(watch) == pytest.approx(270)


def test_what_runs_at_once_is_sooner_done_but_one_job_is_one_threads(clock):
    watch = Watch()
    watch.start("training", dict.fromkeys("abcd", 100))
    for job in "ab":
        watch(job, 0, 10, "training")
    clock.now += 10
    for job in "ab":
        watch(job, 5, 10, "training")
    assert left(watch) == pytest.approx(30)
    for job in "abc":
        watch.finish(job)
    assert left(watch) == pytest.approx(20)


def test_jobs_that_tell_nothing_are_timed_from_begin_to_end(clock):
    watch = Watch()
    watch.start("reading", dict.fromkeys("abcd", 1), {"a": 1, "b": 1, "c": 2, "d": 2})
    for job, seconds in (("a", 2), ("c", 8)):
        watch.begin(job)
        clock.now += seconds
        watch.finish(job)
    assert left(watch) == pytest.approx(10)


def test_a_job_that_fails_half_way_does_not_look_fast(clock):
    watch = Watch()
    watch.start("training", dict.fromkeys("ab", 100))
    watch("a", 0, 10, "training")
    clock.now += 10
    watch("a", 1, 10, "training")
    watch.finish("a")
    assert left(watch) == pytest.approx(100)


def test_halves_of_a_job_are_not_work_on_top(clock):
    watch = Watch()
    watch.start("training", {"whole": 100})
    watch("whole-half", 10, 10, "training")
    watch.finish("whole-half")
    watch.finish("whole")
    assert watch.line() == "training: 100 %"
