"""What a person sees while work goes on: bars on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress

LINE_SECONDS = 15.0


@dataclass
class Watch:
    """Collects progress from worker threads; `draw` is called now and then by the main thread.

    Work is counted in steps of all shards together, so the estimate holds for the whole run.
    """

    quiet: bool = False
    title: str = ""
    total: int = 0
    done: dict[str, int] = field(default_factory=dict)
    doing: dict[str, str] = field(default_factory=dict)
    weights: dict[str, int] = field(default_factory=dict)
    _begun: float = 0.0
    _base: int = 0
    _last: float = 0.0
    _bar: Progress | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def start(self, title: str, weights: dict[str, int]) -> None:
        """`weights` gives each shard's share of the work: its steps times its members."""
        with self._lock:
            self.title, self.weights = title, dict(weights)
            self.total = sum(weights.values())
            self.done, self.doing = {}, {}
            self._begun, self._base, self._last = time.monotonic(), 0, 0.0

    def __call__(self, shard: str, done: int, total: int, doing: str) -> None:
        with self._lock:
            part = self.weights.get(shard, total) * done // max(total, 1)
            if shard not in self.done:
                self._base += part  # resumed work is done already, and says nothing of the pace
            self.done[shard], self.doing[shard] = part, doing

    def finish(self, shard: str) -> None:
        with self._lock:
            self.done[shard] = self.weights.get(shard, 0)
            self.doing.pop(shard, None)

    def state(self) -> tuple[int, float | None, str]:
        """(work done, seconds left if that can be told, what is being done)."""
        with self._lock:
            done = sum(self.done.values())
            seconds = time.monotonic() - self._begun
            fresh = done - self._base
            left = (self.total - done) * seconds / fresh if fresh > 0 else None
            return done, left, ", ".join(sorted(set(self.doing.values())))

    def line(self) -> str:
        done, left, doing = self.state()
        estimate = f", about {duration(left)} left" if left is not None else ""
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
        told = "" if left is None else f"about {duration(left)} left"
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
