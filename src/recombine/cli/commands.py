"""What each command does; everything it needs is imported when it runs."""

from __future__ import annotations

import json
import sys
from argparse import Namespace
from pathlib import Path
from typing import Any

from recombine.cli.words import parse_duration, say, settings_of, text_table
from recombine.errors import InvalidRequest, StoreError


def list(chosen: Namespace) -> None:
    from recombine.cli.catalogue import kits, parts, studies

    found, live = studies(Path(chosen.store)), kits()
    everything = parts() if chosen.all else {}
    if chosen.json:
        print(json.dumps({"studies": found, "kits": live, **everything}, indent=1))
        return
    print(text_table(["study", "question", "verdict here"],
                     [[s["name"], s["question"], s["verdict"]] for s in found]))  # fmt: skip
    for kind, entries in {"live kits": live, **everything}.items():
        print(f"\n{kind}")
        print(text_table(["name", "what"], [[e["name"], e["text"]] for e in entries]))
    if not chosen.all:
        print("\nrecombine plan STUDY | recombine run STUDY | recombine KIT --dry-run | "
              "recombine list --all")  # fmt: skip


def plan(chosen: Namespace) -> None:
    from recombine.cli.planning import document, lines
    from recombine.lab.progress import Watch

    found = document(_request(chosen), Watch(quiet=chosen.json or not sys.stderr.isatty()))
    print(json.dumps(found, indent=1) if chosen.json else "\n".join(lines(found)))


def run(chosen: Namespace) -> int:
    from recombine.cli.running import run_to_end

    limit = None if chosen.time is None else parse_duration(chosen.time)
    return run_to_end(
        _request(chosen), chosen.store, limit=limit, quiet=chosen.quiet, adopt=chosen.adopt,
        as_json=chosen.json,
    )  # fmt: skip


def repeat(chosen: Namespace) -> int:
    from recombine.cli.running import repeat_to_end

    limit = None if chosen.time is None else parse_duration(chosen.time)
    return repeat_to_end(
        _request(chosen), chosen.times, chosen.store, limit=limit, quiet=chosen.quiet,
        as_json=chosen.json,
    )  # fmt: skip


def demo(chosen: Namespace) -> int:
    from recombine.cli.running import run_to_end
    from recombine.lab.run import Request, study_named

    if not (chosen.quiet or chosen.json):
        say("Networks of two widths learn tasks composed of 8 modules, at most 3 at a time;")
        say("a quarter, three quarters or nine tenths of the combinations are held out.")
    request = Request(study_named("data-scaling"), "quick")
    return run_to_end(request, chosen.store, quiet=chosen.quiet, as_json=chosen.json)


def status(chosen: Namespace) -> None:
    from recombine.cli.state import of_store, of_study

    store = _open(chosen)
    found = of_store(store) if chosen.study is None else of_study(store, _request(chosen))
    if chosen.json:
        print(json.dumps(found, indent=1))
        return
    for name, value in found.items():
        if isinstance(value, dict):
            print(f"{name}: " + ", ".join(f"{k} {v}" for k, v in value.items()))
        else:
            print(f"{name}: {value}")


def report(chosen: Namespace) -> None:
    from recombine.lab.run import collect
    from recombine.report.study import summary_of, write_report

    store = _open(chosen)
    outcome = collect(_request(chosen), store)
    if not len(outcome.results):
        raise InvalidRequest(
            f"nothing of {chosen.study} at preset {chosen.preset} is finished in {chosen.store}: "
            f"recombine run {chosen.study} --preset {chosen.preset}"
        )
    to = Path(chosen.to) if chosen.to else None
    if to is None and store.read_only:
        to = Path.cwd()
    page, numbers = write_report(store, outcome, to)
    if chosen.json:
        print(json.dumps({**summary_of(outcome), "page": str(page), "summary": str(numbers)}))
    else:
        print(page)


def show(chosen: Namespace) -> None:
    from recombine.cli.state import all_cells, cell_document, cell_lines

    if chosen.cell is None:
        cells = all_cells(_open(chosen))
        columns = ["cell", "learner", "settings", "result"]
        _print(chosen, {"cells": cells},
               [text_table(columns, [[c[name] for name in columns] for c in cells])])  # fmt: skip
        return
    found = cell_document(_open(chosen), chosen.cell)
    print(json.dumps(found, indent=1) if chosen.json else "\n".join(cell_lines(found)))


def coverage(chosen: Namespace) -> None:
    from recombine.combinations import Slots, Subsets
    from recombine.supports import SupportRule, novelty

    space = (
        Slots(_numbers(chosen.levels)) if chosen.levels else Subsets(chosen.modules, chosen.active)
    )
    rule = SupportRule(
        rule=chosen.rule, held_out=chosen.held_out, count=chosen.count, law=chosen.law
    )
    rule.check(space)
    support = rule.build(space, chosen.seed)
    found: dict[str, Any] = {**support.summary(), "novelty": novelty(support, limit=10**7).counts()}
    if chosen.json:
        print(json.dumps(found))
        return
    for name, value in found.items():
        if name == "usage":
            print(f"usage per module: {' '.join(str(n) for n in value)}")
        elif name == "usage_by_factor":
            for factor, counts in enumerate(value):
                print(f"usage of factor {factor}: {' '.join(str(n) for n in counts)}")
        elif isinstance(value, float):
            print(f"{name.replace('_', ' ')}: {value:.4g}")
        elif isinstance(value, dict):
            print(f"{name.replace('_', ' ')}: " + ", ".join(f"{k}: {n}" for k, n in value.items()))
        else:
            print(f"{name.replace('_', ' ')}: {value}")


def _numbers(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(word) for word in text.split(","))
    except ValueError:
        raise InvalidRequest(
            f"--levels {text}: expected the number of values of each factor, such as 4,5,5,5"
        ) from None


def construct(chosen: Namespace) -> None:
    from recombine.cli.constructing import document, lines

    found = document(chosen)
    _print(chosen, found, lines(found))


def generator(chosen: Namespace) -> None:
    from recombine.cli.generator import document, lines

    found = document(chosen)
    _print(chosen, found, lines(found))


def doctor(chosen: Namespace) -> None:
    from recombine.cli.checkup import document, lines

    found = document()
    print(json.dumps(found, indent=1) if chosen.json else "\n".join(lines(found)))


def bundle(chosen: Namespace) -> None:
    from recombine.lab.bundle import bundle as pack

    if not 0.1 <= chosen.max_mib < 2**20:
        raise InvalidRequest(
            f"--max-mib takes a size from 0.1 on, such as 15, got {chosen.max_mib}"
        )
    kinds = tuple(kind for kind in chosen.kinds.split(",") if kind)
    written = pack(_open(chosen), Path(chosen.out), kinds=kinds, weights=chosen.weights,
                   max_bytes=int(chosen.max_mib * 2**20))  # fmt: skip
    _print(chosen, {"files": [str(path) for path in written]}, [str(path) for path in written])


def import_bundles(chosen: Namespace) -> None:
    from recombine.lab.bundle import import_bundle
    from recombine.lab.store import Store

    for file in chosen.files:
        if not Path(file).is_file():
            raise InvalidRequest(f"there is no file {file}")
    found = import_bundle(Store.open(chosen.store), [Path(file) for file in chosen.files])
    _print(chosen, dict(found), [", ".join(f"{n} {what}" for what, n in found.items())])


def store_du(chosen: Namespace) -> None:
    usage = _open(chosen).usage()
    rows = [
        [kind, use.get("count", ""), f"{use['bytes'] / 2**20:.1f} MiB"]
        for kind, use in usage.items()
    ]
    _print(chosen, usage, [text_table(["kind", "nodes", "room"], rows)])


def store_verify(chosen: Namespace) -> int:
    problems = _open(chosen).verify(set_aside=chosen.set_aside)
    told = [{"kind": p.kind, "id": p.id, "file": p.file, "reason": p.reason} for p in problems]
    lines = [f"{p['kind']} {p['id']}: {p['file']}: {p['reason']}" for p in told]
    _print(chosen, {"problems": told}, lines or ["every sum agrees"])
    return 1 if problems else 0


def store_clean(chosen: Namespace) -> None:
    freed = _open(chosen).clean(dry_run=chosen.dry_run)
    word = "would free" if chosen.dry_run else "freed"
    lines = [f"{word} {n / 2**20:.1f} MiB of {what}" for what, n in freed.items() if n]
    _print(chosen, freed, lines or ["nothing to remove"])


def completion(chosen: Namespace) -> None:
    try:
        import shtab
    except ImportError as error:
        raise InvalidRequest("completion needs the package shtab: pip install shtab") from error
    from recombine.cli.parser import build, with_choices

    script = shtab.complete(with_choices(build()), shell=chosen.shell)
    _print(chosen, {"shell": chosen.shell, "script": script}, [script])


def _request(chosen: Namespace) -> Any:
    from recombine.lab.run import Request, study_named

    request = Request(study_named(chosen.study), chosen.preset, settings_of(chosen.settings))
    _ = request.grid  # refuses unknown presets and values before any work
    return request


def _open(chosen: Namespace) -> Any:
    from recombine.lab.store import Store

    try:
        return Store.open(chosen.store, create=False)
    except StoreError as error:
        raise StoreError(f"{error} (recombine run makes one)") from error


def _print(chosen: Namespace, document: dict, lines: Any) -> None:
    print(json.dumps(document) if chosen.json else "\n".join(lines))
