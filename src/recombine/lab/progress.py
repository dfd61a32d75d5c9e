"""What a person sees while work goes on: bars on a terminal, plain lines elsewhere."""

from __future__ import annotations

import math
import sys
import threading
import time
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress

LINE_SECONDS = 15.0
# What a job does before its work moves. Work told here was done by an earlier command.
BEFORE = ("preparing", "compiling")


@dataclass
class Pace:
    """How long work of one kind took the threads that did it."""

    seconds: float = 0.0
    work: int = 0


@dataclass
class Watch:
    """Collects progress from worker threads; `draw` is called now and then by the main thread.

    Jobs of one kind take equally long for equal work, and how long is measured; until the first of
    a kind is under way it is expected to go at the pace of all others.
    """

    quiet: bool = False
    title: str = ""
    total: int = 0
    done: dict[str, int] = field(default_factory=dict)
    doing: dict[str, str] = field(default_factory=dict)
    weights: dict[str, int] = field(default_factory=dict)
    kinds: dict[str, Hashable] = field(default_factory=dict)
    _paces: dict[Hashable, Pace] = field(default_factory=dict)
    _clocks: dict[str, tuple[float, int]] = field(default_factory=dict)
    _measured: tuple[float, float] = (math.inf, -math.inf)  # from when to when paces were measured
    _last: float = 0.0
    _bar: Progress | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def start(
        self, title: str, weights: Mapping[str, int], kinds: Mapping[str, Hashable] | None = None
    ) -> None:
        """`weights` gives each job's work, `kinds` what is alike; without it all jobs are."""
        with self._lock:
            self.title, self.weights, self.kinds = title, dict(weights), dict(kinds or {})
            self.total = sum(weights.values())
            self.done, self.doing = {}, {}
            self._paces, self._clocks, self._measured = {}, {}, (math.inf, -math.inf)
            self._last = 0.0

    def begin(self, job: str) -> None:
        """A job begins; how long it took is known at its end if it tells nothing in between."""
        with self._lock:
            self._clocks[job] = (time.monotonic(), 0)

    def __call__(self, job: str, done: int, total: int, doing: str) -> None:
        with self._lock:
            part = self.weights.get(job, 0) * done // max(total, 1)
            if doing in BEFORE or job not in self.done:
                self._clocks.pop(job, None)
            if doing not in BEFORE:
                self._measure(job, part)
            self.done[job], self.doing[job] = part, doing

    def finish(self, job: str) -> None:
        with self._lock:
            if job not in self.done:
                self._measure(job, self.weights.get(job, 0))
            self.done[job] = self.weights.get(job, 0)
            self.doing.pop(job, None)

    def _measure(self, job: str, part: int) -> None:
        now = time.monotonic()
        then, before = self._clocks.get(job, (now, part))
        pace = self._paces.setdefault(self.kinds.get(job), Pace())
        pace.seconds, pace.work = pace.seconds + now - then, pace.work + part - before
        self._measured = min(self._measured[0], then), max(self._measured[1], now)
        self._clocks[job] = (now, part)

    def state(self) -> tuple[int, float | None, str]:
        """(work done, seconds left if that can be told, what is being done)."""
        with self._lock:
            doing = ", ".join(sorted(set(self.doing.values())))
            return sum(self.done.values()), self._left(), doing

    def _left(self) -> float | None:
        """Seconds left: what all jobs would take one thread, at as many at once as were so far."""
        paces = {kind: pace for kind, pace in self._paces.items() if pace.work > 0}
        seconds = sum(pace.seconds for pace in paces.values())
        begun, latest = self._measured
        if not seconds or latest <= begun:
            return None
        usual = seconds / sum(pace.work for pace in paces.values())
        each = {kind: pace.seconds / pace.work for kind, pace in paces.items()}
        jobs = [
            (weight - self.done.get(job, 0)) * each.get(self.kinds.get(job), usual)
            for job, weight in self.weights.items()
        ]
        at_once = seconds / (latest - begun)
        return max(sum(jobs) / at_once, max(jobs, default=0.0))

    def line(self) -> str:
        done, left, doing = self.state()
        estimate = f", about {duration(left)} left" if left else ""
        what = f" ({doing})" if doing else ""
        return f"{self.title}: {100 * done / max(self.total, 1):.0f} %{estimate}{what}"

    def draw(self, *, last: bool = False) -> None:
        if self.quiet or self.total == 0:
            return
        if sys.stderr.isatty():
            self._draw_bar(last)
        elif last or time.monotonic() - self._last > LINE_SECONDS:
            self._last = time.monotonic()
            print(self.line(), file=sys.stderr, flush=True)

    def _draw_bar(self, last: bool) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

        if self._bar is None:
            columns = (
                TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(),
                TextColumn("{task.fields[left]}"),
            )  # fmt: skip
            self._bar = Progress(*columns, console=Console(stderr=True))
            self._bar.start()
            self._bar.add_task(self.title, total=self.total, left="")
        done, left, doing = self.state()
        told = f"about {duration(left)} left" if left else ""
        task = self._bar.task_ids[0]
        self._bar.update(task, completed=done, left=f"{told} {doing}".strip())
        if last:
            self.close()

    def close(self) -> None:
        """Takes the bar off the terminal, so that what follows stands below it."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def say(self, text: str) -> None:
        if self.quiet:
            return
        if self._bar is not None:
            self._bar.console.print(text, markup=False, highlight=False)
        else:
            print(text, file=sys.stderr, flush=True)


def duration(seconds: float) -> str:
    """A time people can read.

    >>> duration(95), duration(7300)
    ('1 min 35 s', '2 h 02 min')
    """
    whole, minutes = round(seconds), round(seconds / 60)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{minutes // 60} h {minutes % 60:02d} min"
