"""The commands."""

from __future__ import annotations

import contextlib
import io
import os
import sys
import traceback
import warnings

# Readings run on threads of our own; BLAS threads on top of them fight for the cores (a reading
# of 0.07 s took 13 s). Must be set before numpy is loaded.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


def main(arguments: list[str] | None = None) -> None:
    """Runs one command; a user's error is one line and exit code 2."""
    from recombine.cli.parser import build
    from recombine.cli.words import say
    from recombine.errors import Interrupted, RecombineError

    # A terminal without a letter gets its number: a run that is done must not end in a traceback.
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    others = warnings.showwarning

    def tell(message, category, filename, *rest) -> None:
        """Warnings of ours are about a person's files: no line of a program belongs to them."""
        if filename == "recombine":
            say(f"recombine: warning: {message}")
        else:
            others(message, category, filename, *rest)

    warnings.showwarning = tell
    chosen = build().parse_args(arguments)
    try:
        code = chosen.run(chosen)
    except Interrupted as stop:
        if str(stop):
            say(f"recombine: {stop}")
        leave(stop.exit_code)
    except RecombineError as error:
        say(f"recombine: error: {' '.join(str(error).split())}")
        leave(2)
    except KeyboardInterrupt:  # before `run` listens for signals, or in another command
        print("recombine: stopped; the same command can be run again", file=sys.stderr)
        leave(130)
    except MemoryError:
        print("recombine: error: there is not enough memory: ask for less", file=sys.stderr)
        leave(2)
    except BrokenPipeError:  # the reader of our output went away
        leave(0)
    except OSError as error:
        where = f" {error.filename}" if error.filename else ""
        say(f"recombine: error: {error.strerror or error}:{where}")
        leave(2)
    except Exception:
        traceback.print_exc()
        leave(1)  # not by waiting for threads that may still be training
    else:
        sys.exit(code or 0)


def leave(code: int) -> None:
    """Ends at once: a thread that is still compiling holds nothing worth waiting for."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError):
            stream.flush()
    os._exit(code)
