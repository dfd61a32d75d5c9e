"""Symmetry: whole units score one, fractured ones zero, and those that look elsewhere nothing."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from recombine.errors import InvalidRequest, NotApplicable
from recombine.families.odd_one_out import (
    FieldsOdd,
    OddFamily,
    PicturesOdd,
    SentencesOdd,
    Symmetric,
)
from recombine.instruments import Reading, Subject, Symmetry, check_instrument
from recombine.instruments.symmetry import Pair, Shown, Units, correlation, measured, one_each
from recombine.lab.api import fit
from recombine.learners._odd import OddSubject
from recombine.learners.odd_one_out import OddOneOut
from recombine.models.items import ItemConv, ItemMLP, ItemModel, ItemTransformer

FIELDS = FieldsOdd(fields=6, values=4)
RNG = np.random.default_rng(0)


def drawn(count: int = 4_000) -> tuple[np.ndarray, np.ndarray]:
    """Values of fields, either rule by chance."""
    values = RNG.integers(0, 4, (count, 6))
    for pair in (0, 1):
        equal = RNG.random(count) < 0.5
        other = (values[:, 2 * pair] + RNG.integers(1, 4, count)) % 4
        values[:, 2 * pair + 1] = np.where(equal, values[:, 2 * pair], other)
    return values, np.stack([values[:, 0] == values[:, 1], values[:, 2] == values[:, 3]], axis=1)


def read(unit) -> dict[str, float]:
    """What is measured of a layer of one hand-made unit and one of noise."""
    values, rules = drawn()
    items = np.eye(4)[values].reshape(len(values), -1)
    name, change = next(iter(FIELDS.symmetries(np.random.default_rng(1)).items()))
    assert name == "exchanged: fields 1 and 2"

    def layer(rows: np.ndarray) -> np.ndarray:
        there = rows.reshape(-1, 6, 4).argmax(axis=-1)
        return np.asarray(unit(there), float).reshape(len(there), -1)

    pair = Pair(layer(change.kept(items)), layer(change.lost(items)))
    return measured({"one": Units(layer(items), {name: pair})}, rules)


def test_a_unit_that_tells_of_a_rule_is_whole_and_untangled():
    found = read(lambda v: v[:, 0] == v[:, 1])
    assert found["concordance"] == pytest.approx(1, abs=0.02)
    assert found["disentanglement"] > 0.95


def test_a_unit_that_tells_of_one_case_of_one_field_is_fractured():
    whole = read(lambda v: np.minimum(v[:, 0], v[:, 1]))["concordance"]
    broken = read(lambda v: (v[:, 0] == 0) & (v[:, 1] == 1))["concordance"]
    assert whole == pytest.approx(1, abs=0.02) and abs(broken) < 0.1


def test_what_a_unit_sees_elsewhere_gives_it_nothing():
    """Plain agreement is high for a unit that mostly looks at fields the symmetry leaves alone."""
    mixed = read(lambda v: v[:, 4] + 0.3 * (v[:, 0] == 0) * (v[:, 1] == 1))
    assert mixed["agreement"] > 0.9 and mixed["concordance"] < 0.3
    both = read(lambda v: np.stack([v[:, 0] == v[:, 1], v[:, 4]], axis=1))
    assert both["concordance"] == pytest.approx(1, abs=0.05)


def test_a_correlation_is_that_of_numpy():
    one, two = RNG.normal(size=(2, 50, 3))
    expected = [np.corrcoef(one[:, n], two[:, n])[0, 1] for n in range(3)]
    np.testing.assert_allclose(correlation(one, two), expected)


@pytest.mark.slow  # make test-all runs it
@pytest.mark.parametrize(
    ("family", "model"),
    [
        (FieldsOdd(fields=4, values=3), ItemMLP(16, 2, 8)),
        (SentencesOdd(), ItemTransformer(1, 16, 2)),
        (PicturesOdd(), ItemConv(4, 2, 16, 8)),
        (PicturesOdd("inside-count"), ItemConv(4, 2, 16, 8)),
    ],
    ids=str,
)
def test_symmetry_keeps_the_contract_of_an_instrument(family, model: ItemModel):
    learner = OddOneOut(family, model, training_steps=20, batch=8, evaluation_every=10)
    done = fit(learner)
    check_instrument(
        Symmetry(items=128, sweeps=8, swept_items=32),
        learner,
        done.subject.weights(),
        done.untrained.weights(),
    )


class Crowds(FieldsOdd):
    """As if no rule could be told of a single item."""

    @property
    def in_company(self) -> tuple[str, ...]:
        return self.rules


class Mistaken(FieldsOdd):
    """Puts another field where the second of a pair stood, and calls it a symmetry."""

    def symmetries(self, rng: np.random.Generator) -> dict[str, Symmetric]:
        name, (_, lost) = next(iter(super().symmetries(rng).items()))

        def kept(items: np.ndarray) -> np.ndarray:
            rows = items.reshape(len(items), *self.item_shape)[:, [1, 2, 0, 3]]
            return rows.reshape(items.shape)

        return {name: Symmetric(kept, lost)}


def reading_of(family: OddFamily, model: ItemModel) -> Reading:
    """Of a network as it is drawn, which is its own untrained twin."""
    network = model.draw(jax.random.key(0), family.item_shape)
    subject = OddSubject(family, network, {}, evaluation_seed=0)
    return Symmetry(items=256, sweeps=1, swept_items=32).read(subject, subject, {})


def test_a_rule_that_needs_company_is_left_out_with_the_reason():
    """Whether a count is right can only be told among other pictures."""
    found = reading_of(PicturesOdd("inside-count"), ItemMLP(8, 1, 4))
    assert found.tables["notes"]["rule"] == ["count"]
    assert "among others" in found.tables["notes"]["why"][0]
    for numbers in (found.values, *found.controls.values()):
        assert "disentanglement" not in numbers and "completeness" in numbers
    # One unit that tells of the one rule that is left: noise beside it would be below 1.
    assert found.controls["planted"]["completeness"] == 1


def test_a_family_whose_rules_all_need_company_is_refused():
    with pytest.raises(NotApplicable, match="a single item obeys, and those of Crowds"):
        reading_of(Crowds(fields=4, values=3), ItemMLP(16, 2, 8))


def test_a_change_that_is_no_symmetry_is_found_by_the_planted_control():
    right, wrong = (
        reading_of(kind(fields=4, values=3), ItemMLP(16, 2, 8)) for kind in (FieldsOdd, Mistaken)
    )
    assert right.controls["planted"]["concordance"] == pytest.approx(1)
    assert wrong.controls["planted"]["concordance"] < 0.5
    assert "notes" not in right.tables


def test_words_that_no_rule_is_about_tell_nothing_of_the_planted_layer():
    """Adverbs stay what they are to both rules even if they are drawn anew."""
    family = SentencesOdd()
    items = np.asarray(family.valid(jax.random.key(0), 200))
    changes = family.symmetries(np.random.default_rng(0))
    changed = {name: Pair(one.kept(items), one.lost(items)) for name, one in changes.items()}
    planted = one_each(family, [True, True], Shown(items, changed, np.ones((200, 2), bool)))
    assert set(planted.changed) == {"other nouns", "other verbs"}


def test_what_has_no_items_is_refused_with_the_reason():
    class Other(Subject):
        abilities = frozenset({"activations", "weights"})

    with pytest.raises(NotApplicable, match="changes single items by the symmetries"):
        Symmetry().read(Other(), Other(), {})


@pytest.mark.parametrize("name", ["items", "sweeps", "swept_items"])
def test_numbers_that_cannot_be_are_refused(name):
    with pytest.raises(InvalidRequest, match=f"{name}=0: expected a whole number"):
        Symmetry(**{name: 0})
