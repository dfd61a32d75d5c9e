"""The laboratory from Python: a fitted cell is read beside the further learners it needs."""

from __future__ import annotations

import gc
from dataclasses import replace

import pytest

from recombine.errors import InvalidRequest, NotApplicable
from recombine.families.odd_one_out import FieldsOdd
from recombine.instruments import Generalization, Subnetworks
from recombine.lab.api import fit, load
from recombine.lab.identity import node_id
from recombine.lab.store import Store
from recombine.learners import MaskLearner, OddOneOut
from recombine.models.items import ItemMLP

NETWORK = OddOneOut(
    FieldsOdd(fields=4, values=3), ItemMLP(4, 2, 4), training_steps=20, batch=8,
    evaluation_every=20, evaluation_problems=128,
)  # fmt: skip
MASK = MaskLearner(base=NETWORK, mask_steps=20, evaluation_every=20)
LOOK = Subnetworks(batches=1, draws=1)


def test_what_an_instrument_asks_for_is_trained_in_the_same_store_and_found_again(tmp_path, capsys):
    reading = fit(MASK, tmp_path).read(LOOK)
    assert {"overlap", "overlap_by_chance"} <= reading.values.keys()
    other = replace(MASK, part=1)
    store = Store.open(tmp_path)
    assert set(store.ids("cell")) == {node_id(one) for one in (NETWORK, MASK, other)}
    # From the other side both are there: nothing is trained, not even where nothing may be.
    files = sorted(path.name for path in tmp_path.rglob("*") if path.is_file())
    again = load(Store.open(tmp_path, read_only=True), node_id(other)).read(LOOK)
    assert again.values["overlap"] == reading.values["overlap"]
    assert sorted(path.name for path in tmp_path.rglob("*") if path.is_file()) == files
    assert capsys.readouterr().out == ""


def test_without_a_store_what_was_trained_lasts_as_long_as_the_fitted_cell(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    fitted = fit(MASK)
    folder = fitted.store.path
    assert folder.is_dir() and folder.parent == tmp_path
    assert "overlap" in fitted.read(LOOK).values
    assert len(fitted.store.ids("cell")) == 3, "the network itself was not trained again"
    del fitted
    gc.collect()
    assert not folder.exists()


def test_an_instrument_that_does_not_look_further_trains_nothing(tmp_path):
    fitted = fit(MASK, tmp_path)
    assert "overlap" not in fitted.read(replace(LOOK, overlaps=False)).values
    with pytest.raises(NotApplicable, match="generalization needs answer"):
        fitted.read(Generalization())
    assert set(fitted.store.ids("cell")) == {node_id(NETWORK), node_id(MASK)}


def test_a_learner_that_cannot_be_leaves_no_store_behind(tmp_path):
    with pytest.raises(InvalidRequest, match="part=2"):
        fit(replace(MASK, part=2), tmp_path / "runs")
    assert not (tmp_path / "runs").exists()
