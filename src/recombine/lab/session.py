"""One command's work on a store: its threads, how it stops, and what it writes down of failures."""

from __future__ import annotations

import threading
import time
import traceback
from collections.abc import Callable, Hashable, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field

from recombine.errors import Interrupted, InvalidRequest, NotApplicable, RecombineError, StoreError
from recombine.lab.identity import node_id
from recombine.lab.leases import Busy
from recombine.lab.progress import Watch
from recombine.lab.shards import Stop, checkpoint_seconds
from recombine.lab.store import Store
from recombine.learners._learner import Learner

POLL_SECONDS = 0.2
BUSY_SECONDS = 1.0


@dataclass
class Session:
    """One command's work on a store: how to stop it, who watches, what is allowed."""

    store: Store
    stop: Stop = field(default_factory=Stop)
    watch: Watch = field(default_factory=lambda: Watch(quiet=True))
    adopt: bool = False
    save_every: float = field(default_factory=checkpoint_seconds)
    stacked: int | None = None  # weights at most of what trains, and is committed, together
    # Held while a shard trains on an accelerator; the next ones compile meanwhile.
    turn: threading.Lock = field(default_factory=threading.Lock)

    def check(self) -> None:
        if self.stop.wanted:
            code = 128 + self.stop.signal if self.stop.signal is not None else 0
            raise Interrupted("stopped at a border; run the same command to continue", code)

    def carry_out(
        self, title: str, jobs: Mapping[str, Callable[[], None]], weights: Mapping[str, int],
        workers: int, kinds: Mapping[str, Hashable] | None = None,
    ) -> None:  # fmt: skip
        """Runs jobs on threads while this thread watches for signals and draws progress.

        A job that is being done by another process is left to it and looked at again later.
        """
        self.watch.start(title, weights, kinds)
        waiting = dict(jobs)
        running: dict[Future[None], str] = {}
        pool = ThreadPoolExecutor(workers)
        failed: BaseException | None = None
        try:
            pause = 0.0
            while waiting or running:
                self.check()
                if failed is not None:
                    raise failed
                if time.monotonic() >= pause:
                    for name in list(waiting)[: workers - len(running)]:
                        self.watch.begin(name)
                        running[pool.submit(waiting.pop(name))] = name
                ended, _ = wait(running, POLL_SECONDS, FIRST_COMPLETED)
                if not running:
                    time.sleep(POLL_SECONDS)
                for future in ended:
                    name = running.pop(future)
                    error = future.exception()
                    if isinstance(error, Busy):
                        waiting[name] = jobs[name]
                        pause = time.monotonic() + BUSY_SECONDS
                    elif error is not None:
                        failed = error
                    else:
                        self.watch.finish(name)
                self.watch.draw()
            if isinstance(failed, Interrupted):
                self.check()  # knows who asked for the stop, which the job does not
            if failed is not None:
                raise failed
        except BaseException:
            self.stop.given_up = True
            self.watch.close()
            raise
        finally:
            # Threads end at their next border; a compilation cannot be stopped, but holds nothing.
            pool.shutdown(wait=False, cancel_futures=True)
            if self.stop.wanted and running:
                wait(running, 4.0)
        self.watch.draw(last=True)


def is_whole(store: Store, cell: str) -> bool:
    """Whether a cell is here with its weights; a damaged one is set aside, and so is not."""
    try:
        return store.has("cell", cell) and "weights.safetensors" not in store.absent("cell", cell)
    except StoreError:
        return False


def has_needs(store: Store, learner: Learner) -> bool:
    """Whether everything that a learner's `prepare` is given is here."""
    return all(is_whole(store, node_id(up)) for up in learner.upstream().values()) and all(
        store.has("material", node_id(material)) for material in learner.materials().values()
    )


def hopeless(store: Store, kind: str, name: str) -> bool:
    """Whether a node failed for a reason that trying again cannot change."""
    failure = store.failure(kind, name)
    return failure is not None and not failure.get("retry", True)


def record_failure(
    session: Session, kind: str, name: str, log_name: str, error: BaseException
) -> None:
    """Says why in one line, and where the traceback is; only a wrong request is not retried."""
    log = session.store.log_path(log_name)
    log.write_text("".join(traceback.format_exception(error)), encoding="utf-8")
    reason = (str(error).splitlines() or [type(error).__name__])[0]
    if not isinstance(error, RecombineError):
        reason = f"{type(error).__name__}: {reason}"
    session.store.fail(
        kind, name, reason=reason[:500], detail=f"the traceback is in {log.name}",
        retry=not isinstance(error, InvalidRequest | NotApplicable),
    )  # fmt: skip
    session.watch.say(f"{kind} {name[:10]} failed: {reason[:200]}")
