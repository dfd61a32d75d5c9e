"""Repeating a study on other seeds: what is drawn anew, and what a verdict's fate is called."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from recombine.lab.identity import canonical
from recombine.lab.judge import Judgement
from recombine.lab.plan import materials, part
from recombine.lab.repeat import Repeated, again, conclusion
from recombine.lab.run import Request, study_named
from recombine.lab.study import Claim, Evidence
from recombine.studies import REGISTRY


def leaves(document: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(document, dict):
        for name, value in document.items():
            yield from leaves(value, f"{path}.{name}")
    else:
        yield path, document


@pytest.mark.parametrize("name", REGISTRY)
def test_another_first_seed_draws_everything_anew_and_changes_nothing_else(name):
    study = study_named(name)
    request = Request(study, "quick")
    first, second = (part(again(request, number).cells()).cells for number in (0, 1))
    assert len(first) == len(second)
    assert not {cell.id for cell in first} & {cell.id for cell in second}
    assert not set(materials(c.learner for c in first)) & set(materials(c.learner for c in second))
    for before, after in zip(first, second, strict=True):
        told = zip(leaves(canonical(before.learner)), leaves(canonical(after.learner)), strict=True)
        for (path, old), (_, new) in told:
            seed = path.rsplit(".", 2)[-2:]
            drawn = "seed" in seed[-1] or "seeds" in seed[0] or path.endswith("family.content")
            if drawn and not path.endswith(("kind", "version")):
                assert old != new, path
            else:
                assert old == new, path


def test_claims_are_the_same_on_other_seeds():
    for name in REGISTRY:
        request = Request(study_named(name), "quick")
        told = [
            [(claim.name, claim.sentence, claim.criterion) for claim in r.study.claims(r.grid)]
            for r in (request, again(request, 1))
        ]
        assert told[0] == told[1], name


@pytest.mark.parametrize(
    ("verdicts", "standing"),
    [
        (("supported", "supported"), "holds"),
        (("supported", "inconclusive"), "moves"),
        (("supported", "inconclusive", "refuted"), "is contradicted"),
        (("not tested here", "refuted"), "not tested twice"),
        (("not tested here", "refuted", "refuted"), "holds"),
    ],
)
def test_a_verdict_holds_moves_or_is_contradicted(verdicts, standing):
    claim = Claim("one", "One is above zero", lambda results: Evidence.of_values([1.0]), above=0.0)
    found = Repeated(tuple(Judgement(claim, verdict) for verdict in verdicts))
    assert found.standing == standing
    tested = standing != "not tested twice"
    assert conclusion([found]).startswith("Of 1 claims" if tested else "No claim")
