"""The proof of the audit: twenty datasets with planted defects, and twenty without."""

from __future__ import annotations

from functools import cache

import pytest

from .planted import PLANS, Plan, audited

SEED = 0
FALSE_SHARE = 0.05

Alarms = tuple[tuple[str, str], ...]


@cache
def alarms(name: str, clean: bool) -> tuple[Alarms, frozenset[tuple[str, str]]]:
    """What the audit raised, and what was planted."""
    plan = next(plan for plan in PLANS if plan.name == name)
    found, made = audited(plan.clean if clean else plan, SEED)
    return tuple((f.kind, f.where) for f in found.findings), made.defects


@pytest.mark.parametrize("plan", PLANS, ids=lambda plan: plan.name)
def test_every_planted_defect_is_found_by_kind_and_place(plan: Plan) -> None:
    found, planted = alarms(plan.name, clean=False)
    assert planted and planted - set(found) == set()


def test_at_most_one_alarm_in_twenty_is_false_over_all_datasets() -> None:
    told = [alarms(plan.name, clean=False) for plan in PLANS]
    raised = [(alarm, planted) for found, planted in told for alarm in found]
    false = [alarm for alarm, planted in raised if alarm not in planted]
    assert len(raised) > 50 and len(false) <= FALSE_SHARE * len(raised), false
    assert all(len(set(found)) == len(found) for found, _ in told)  # each defect is told once


def test_clean_twins_raise_hardly_an_alarm() -> None:
    planted = sum(len(alarms(plan.name, clean=False)[1]) for plan in PLANS)
    twins = {plan.name: alarms(plan.name, clean=True)[0] for plan in PLANS}
    assert sum(map(len, twins.values())) <= FALSE_SHARE * planted, twins


def test_the_plans_hold_every_kind_of_defect_in_tables_of_every_kind() -> None:
    kinds = {kind for plan in PLANS for kind, _ in alarms(plan.name, clean=False)[1]}
    assert kinds == {
        "hole", "thin value", "disconnected part", "forbidden but seen", "label noise",
        "failing slice", "failing combination",
    }  # fmt: skip
    assert len(PLANS) == len({plan.name for plan in PLANS}) == 20
    assert {len(plan.names) for plan in PLANS} >= {3, 4, 5, 6, 8}
    assert min(plan.rows for plan in PLANS) < 1_000 and max(plan.rows for plan in PLANS) >= 30_000
    for said in ("numbers", "list_of", "missing", "follows", "skew", "rules"):
        assert any(getattr(plan, said) for plan in PLANS), said


def test_a_forbidden_pair_that_is_absent_is_no_hole() -> None:
    plan = next(plan for plan in PLANS if plan.name == "rules that hold")
    found, _ = audited(plan, SEED)
    assert "a=a0, b=b1" not in {f.where for f in found.findings}
    unruled = Plan(plan.name, plan.rows, plan.sizes, holes=(*plan.holes, "a0 b1"))
    found, _ = audited(unruled, SEED)
    assert ("hole", "a=a0, b=b1") in {(f.kind, f.where) for f in found.findings}


def test_holes_between_parts_are_told_once_as_a_part() -> None:
    plan = next(plan for plan in PLANS if plan.name == "two parts that never meet")
    found, _ = audited(plan, SEED)
    (finding,) = found.findings
    crossing = [hole for hole in found.holes[2] if hole.alarm]
    (a, b, c), sizes = plan.apart, plan.sizes
    inside = a * b + a * c + b * c
    beyond = [size - cut for size, cut in zip(sizes, plan.apart, strict=True)]
    outside = beyond[0] * beyond[1] + beyond[0] * beyond[2] + beyond[1] * beyond[2]
    pairs = sizes[0] * sizes[1] + sizes[0] * sizes[2] + sizes[1] * sizes[2]
    assert len(crossing) == pairs - inside - outside
    assert f"({len(crossing)} holes lie between parts)" in finding.sentence
