"""The instruments on PyTorch modules: what they leave alone, refuse and measure."""

from __future__ import annotations

import importlib
import subprocess
import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from torch_parts import ROOT, heavy, parts_of

from recombine import adapters
from recombine.adapters import (
    Grid,
    Picture,
    Scenes,
    checksum,
    inspect_module,
    learn_masks,
    read_binding,
    read_fracture,
    read_maps,
    read_subnetworks,
    untrained_twin,
)
from recombine.cppn import coordinates, fracture, sweep_symmetry
from recombine.errors import InvalidRequest, NotApplicable
from recombine.families.objects import Objects, glyph_bank, palette
from recombine.instruments.fracture import matched_change

# Without PyTorch


@settings(max_examples=25)
@given(st.floats(2.0**-9, 1000), st.floats(1e-3, 1), st.floats(0.5, 3))
def test_a_weight_is_moved_to_the_effect_that_is_wanted_or_not_counted(size, wanted, power):
    def change(by):
        return np.full(4, wanted * (by / size) ** power)

    found = matched_change(change, wanted, 2.0**-8)
    assert found is not None and found.mean() == pytest.approx(wanted, rel=0.03)
    for never in (lambda by: np.minimum(change(by), wanted / 2), lambda by: change(by) * np.nan,
                  lambda by: 4 * wanted * (change(by) >= wanted)):  # fmt: skip
        assert matched_change(never, wanted, 2.0**-8) is None


def test_without_torch_the_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(InvalidRequest, match=r"recombine\[torch\]"):
        inspect_module(object())


def test_the_package_loads_neither_torch_nor_jax():
    code = "import sys, recombine.adapters as a; print(*{'jax', 'torch'} & set(sys.modules))"
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert found.stdout.strip() == ""
    assert all(hasattr(adapters, name) for name in adapters.__all__)


# What a module is left like


@heavy
def test_a_module_is_left_as_it_was(torch, network):
    modes = [part.training for part in network.modules()]
    before, state = checksum(network), torch.get_rng_state()
    latents = np.eye(4)[np.arange(12) % 4] + np.eye(4)[np.arange(12) // 3]
    report = inspect_module(
        network, parts=parts_of(torch), steps=5, grid=Grid(np.ones((12, 3, 4)), latents),
        picture=Picture(coordinates(4).reshape(4, 4, 4), sweeps=2),
    )  # fmt: skip
    assert {type(report[f"subnetworks/part {n}"]).__name__ for n in range(2)} == {"Reading"}
    assert report["fracture"] == "every unit of the layers shown is constant on this grid"
    assert type(report["feature maps"]).__name__ == "Reading"
    assert checksum(network) == before and (torch.get_rng_state() == state).all()
    assert [part.training for part in network.modules()] == modes
    assert all(p.grad is None and p.requires_grad for p in network.parameters())
    assert not any(part._forward_hooks for part in network.modules())
    assert isinstance(network[0].weight, torch.nn.Parameter)


@heavy
def test_a_function_that_changes_weights_is_told_and_they_are_put_back(torch, network):
    def spoils(module, x):
        with torch.no_grad():
            module[0].bias.add_(1)
        return module(x).sum()

    before = checksum(network)
    with pytest.raises(InvalidRequest, match="have been put back"):
        learn_masks(network, parts_of(torch, loss=spoils), steps=2)
    assert checksum(network) == before
    with pytest.raises(InvalidRequest, match="ZeroDivisionError"):
        learn_masks(network, parts_of(torch, loss=lambda m, x: spoils(m, x) / (1 // 0)), steps=2)
    assert checksum(network) == before


@heavy
def test_what_a_module_counts_in_its_buffers_is_forgotten(torch):
    class Counts(torch.nn.Linear):
        def __init__(self):
            super().__init__(4, 2)
            self.register_buffer("calls", torch.zeros(()))

        def forward(self, x):
            self.calls += 1
            return super().forward(x)

    module = Counts()
    learn_masks(module, parts_of(torch), steps=3)
    assert module.calls == 0


@heavy
@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"loss": lambda m, x: 0.5}, "is float: expected a tensor of one number"),
        ({"loss": lambda m, x: m(x)}, r"is \(32, 2\): expected a tensor of one number"),
        ({"loss": lambda m, x: m(x).detach().sum()}, "has no gradient in 0, 3"),
        ({"loss": lambda m, x: m(x).sum() * float("nan")}, "is nan at step 0"),
        ({"loss": lambda m, x: m.encoder(x)}, "the loss of part part 0 failed: AttributeError"),
        ({"draw": lambda g: 1 / 0}, "a draw of part part 0 failed: ZeroDivisionError"),
    ],
)
def test_a_part_that_cannot_be_learnt_says_why(torch, network, wrong, told):
    with pytest.raises(InvalidRequest, match=told):
        learn_masks(network, parts_of(torch, **wrong), steps=2)


@heavy
@pytest.mark.parametrize(
    ("score", "told"),
    [
        (lambda m, x: m(x)[:, 0] > 0, r"the score of part part 0 is \(32,\): expected one number"),
        (lambda m, x: None, "is NoneType: expected one number"),
        (lambda m, x: m(x).mean() * float("nan"), "is nan: expected a finite number"),
        (lambda m, x: m.encoder(x), "the score of part part 0 failed: AttributeError"),
    ],
)
def test_a_score_that_is_no_number_is_told(torch, network, score, told):
    parts = parts_of(torch, score=score)
    masks = learn_masks(network, parts, steps=1)
    with pytest.raises(InvalidRequest, match=told):
        read_subnetworks(network, parts, masks)


@heavy
def test_numbers_that_cannot_be_are_refused_in_a_line(torch, network):
    parts = parts_of(torch)
    for wrong in ({"steps": 1.5}, {"steps": 0}, {"steps": "9"}, {"learning_rate": float("nan")},
                  {"learning_rate": "fast"}, {"learning_rate": 0}):  # fmt: skip
        with pytest.raises(InvalidRequest, match=rf"{next(iter(wrong))}.*: expected"):
            learn_masks(network, parts, **wrong)
    masks = learn_masks(network, parts, steps=1)
    for chance in (float("nan"), "half", 1.0):
        with pytest.raises(InvalidRequest, match=r"chance.*: expected"):
            read_subnetworks(network, parts, masks, chance=chance)


@heavy
def test_parts_need_names_of_their_own_and_company(torch, network):
    one = parts_of(torch, 1)
    with pytest.raises(InvalidRequest, match="name of its own"):
        learn_masks(network, one * 2)
    with pytest.raises(InvalidRequest, match="two or more"):
        read_subnetworks(network, one, learn_masks(network, one, steps=1))
    with pytest.raises(InvalidRequest, match=r"int: expected a torch\.nn\.Module"):
        inspect_module(3, parts=one)


@heavy
def test_a_part_alone_is_refused_before_anything_is_learnt(torch, network):
    def never(generator):
        raise AssertionError("a mask is learnt for a part that nothing is compared with")

    with pytest.raises(InvalidRequest, match="one part: expected two or more"):
        inspect_module(network, parts=parts_of(torch, 1, draw=never))


# The untrained twin


@heavy
def test_an_untrained_twin_has_other_weights_and_the_same_shapes(torch, network):
    before = checksum(network)
    twin, again = untrained_twin(network, 1), untrained_twin(network, 1)
    assert checksum(twin) == checksum(again) != before == checksum(network)
    assert [p.shape for p in twin.parameters()] == [p.shape for p in network.parameters()]
    assert twin[1].running_mean.abs().sum() == 0


@heavy
@pytest.mark.parametrize("how", ["pruned", "weight norm", "in part"])
def test_a_twin_that_would_keep_trained_weights_is_refused(torch, how):
    """`reset_parameters` of such layers draws a weight that is made anew from what it leaves."""
    nn = torch.nn

    class InPart(nn.Linear):
        def __init__(self):
            super().__init__(4, 2)
            self.by = nn.Parameter(torch.ones(4))

    layer = nn.Linear(4, 2) if how != "in part" else InPart()
    left = {"pruned": "0.weight_orig", "weight norm": "0.weight_g, 0.weight_v", "in part": "0.by"}
    if how == "pruned":
        importlib.import_module("torch.nn.utils.prune").l1_unstructured(layer, "weight", 0.5)
    if how == "weight norm":
        with pytest.warns(FutureWarning):  # the form of old is still in many models
            torch.nn.utils.weight_norm(layer)
    module = nn.Sequential(layer, nn.ReLU(), nn.Linear(2, 2))
    with torch.no_grad():  # as after any evaluation: before, PyTorch cannot copy such a module
        module(torch.ones(1, 4))
    with pytest.raises(NotApplicable, match=f"does not draw anew: {left[how]}; give untrained="):
        untrained_twin(module)
    reading = inspect_module(module, parts=parts_of(torch), steps=1)["subnetworks/part 0"]
    assert "untrained module" not in reading.controls


@heavy
def test_a_module_that_cannot_be_drawn_anew_has_no_such_control_and_says_why(torch):
    class Scales(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.by = torch.nn.Parameter(torch.ones(4))
            self.inner = torch.nn.Linear(4, 2)

        def forward(self, x):
            return self.inner(x * self.by)

    with pytest.raises(NotApplicable, match=r"module \(Scales\).*untrained="):
        untrained_twin(Scales())
    report = inspect_module(Scales(), parts=parts_of(torch), steps=1)
    reading = report["subnetworks/part 0"]
    assert "untrained module" not in reading.controls
    notes = reading.tables["notes"]
    why = dict(zip(notes["control"], notes["why"], strict=True))
    assert "reset_parameters" in why["untrained module"]
    # After one step it keeps every weight: what was noted before is not lost.
    assert "more than half of inner" in why["complement"]
    report = inspect_module(Scales(), parts=parts_of(torch), steps=1, untrained=Scales())
    assert "untrained module" in report["subnetworks/part 0"].controls
    with pytest.raises(InvalidRequest, match="other parameters"):
        inspect_module(Scales(), parts=parts_of(torch), untrained=torch.nn.Linear(4, 2))


@heavy
def test_an_untrained_module_that_is_the_trained_one_is_refused(torch, network):
    """A name for a module is no copy of it: it is trained with it."""
    with pytest.raises(InvalidRequest, match=r"untrained has the weights.*copy\.deepcopy"):
        inspect_module(network, parts=parts_of(torch), steps=1, untrained=network)


@heavy
def test_inference_mode_changes_no_mask_and_no_reading(torch):
    def looked_at(module):
        torch.manual_seed(1)
        return inspect_module(
            module, parts=parts_of(torch), steps=20, untrained=torch.nn.Linear(4, 2)
        )["subnetworks/part 0"]

    module = torch.nn.Linear(4, 2)
    with torch.inference_mode():
        within, made_within = looked_at(module), torch.nn.Linear(4, 2)
        made_within.load_state_dict(module.state_dict())
    assert looked_at(module) == within == looked_at(made_within)


@heavy
def test_what_is_no_module_or_not_ready_is_refused_by_every_reading_in_a_line(torch):
    grid, picture = Grid(np.ones((4, 2, 4)), np.eye(4)), Picture(coordinates(4).reshape(4, 4, 4))
    wrong = {
        "int: expected a torch.nn.Module": 3,
        "weight has no shape yet": torch.nn.LazyLinear(2),
        "weight has no numbers yet": torch.nn.Linear(4, 2, device="meta"),
    }
    readings = (
        lambda module, **other: learn_masks(module, parts_of(torch), steps=1),
        lambda module, **other: read_fracture(module, grid, **other),
        lambda module, **other: read_maps(module, picture, **other),
        lambda module, **other: read_binding(module, Scenes(FAMILY, items=2), **other),
    )
    for told, module in wrong.items():
        for read in readings:
            with pytest.raises(InvalidRequest, match=told):
                read(module)
        with pytest.raises(InvalidRequest, match=told):
            read_fracture(torch.nn.Linear(4, 2), grid, untrained=module)


# Feature maps


@heavy
def test_feature_maps_and_sweeps_are_measured_as_those_of_our_own_networks(torch):
    torch.manual_seed(1)
    nn = torch.nn
    module = nn.Sequential(nn.Linear(4, 5, bias=False), nn.Tanh(), nn.Linear(5, 3, bias=False))
    places = coordinates(8).astype(np.float32)
    target = np.zeros((8, 8, 3)) + np.abs(np.linspace(-1, 1, 8))[:, None]  # up-down
    picture = Picture(places.reshape(8, 8, 4), target, layers=("1",), sweeps=1000)
    reading = read_maps(module, picture)
    import jax.numpy as jnp

    first, last = (jnp.asarray(module[n].weight.detach().numpy()) for n in (0, 2))
    flat = jnp.concatenate([first.ravel(), last.ravel()])

    def render(weights):
        one, two = weights[:20].reshape(5, 4), weights[20:].reshape(3, 5)
        return (jnp.tanh(places @ one.T) @ two.T).reshape(8, 8, 3)

    maps = np.asarray(jnp.tanh(places @ first.T)).T.reshape(5, 8, 8)
    swept = sweep_symmetry(render, flat, np.arange(35), symmetry="up-down")
    found = fracture([maps], symmetry="up-down", sweeps=swept)
    assert reading.values["concordance"] == pytest.approx(found.concordance, abs=1e-4)
    assert reading.values["rotated"] == pytest.approx(found.rotated_concordance, abs=1e-4)
    assert reading.values["effective_rank"] == pytest.approx(found.effective_rank, abs=1e-3)
    assert reading.values["sweep_symmetry"] == pytest.approx(found.sweep_symmetry, abs=1e-3)
    error = np.mean((np.asarray(render(flat)) - target) ** 2)
    assert reading.values["error"] == pytest.approx(error, rel=1e-4)
    assert reading.tables["symmetry"]["name"][1] == "up-down"
    assert reading.tables["symmetry"]["used"] == [False, True, False, False]
    assert reading.controls["planted"]["concordance"] > 0.9
    assert reading.controls["untrained"].keys() <= reading.values.keys()


@heavy
def test_sweeps_of_a_module_that_leap_past_the_effect_are_left_out_and_counted(torch):
    class Rounded(torch.nn.Sequential):
        def forward(self, x):
            return torch.round(super().forward(x))

    nn, places = torch.nn, coordinates(8).reshape(8, 8, 4).astype(np.float32)
    layers = nn.Linear(4, 2, bias=False), nn.Linear(2, 3, bias=False)
    with torch.no_grad():
        layers[0].weight.copy_(torch.tensor([[0.0, 0, 0, 1], [1, 0, 0, 0]]))
        layers[1].weight.copy_(torch.tensor([[0.2, 0.0]] * 3))
    picture = Picture(places, layers=("0",), sweeps=10)
    smooth = read_maps(nn.Sequential(*layers), picture).values
    assert "sweep_symmetry" in smooth and smooth["dropped"] < 2 * 5
    # From below a half to above it: all pixels turn at once. Five weights are not zero.
    stepped = read_maps(Rounded(*layers), picture).values
    assert stepped["dropped"] > smooth["dropped"]


@heavy
def test_a_picture_of_another_shape_is_refused(torch):
    module = torch.nn.Linear(4, 3)
    with pytest.raises(InvalidRequest, match="expected \\(row, column, feature\\)"):
        read_maps(module, Picture(coordinates(4)))
    wrong = Picture(coordinates(4).reshape(4, 4, 4), np.zeros((4, 4, 1)))
    with pytest.raises(InvalidRequest, match=r"the module draws \(4, 4, 3\)"):
        read_maps(module, wrong)
    blank = replace(wrong, target=np.full((4, 4, 3), np.nan))
    with pytest.raises(InvalidRequest, match="a target with numbers that are not finite"):
        read_maps(module, blank)
    with pytest.raises(InvalidRequest, match="sweeps=-3: expected a whole number"):
        read_maps(module, replace(wrong, target=None, sweeps=-3))


# Binding

FAMILY = Objects(side=24, most_objects=2)


@pytest.fixture
def sees(torch) -> Any:
    """A module that compares every cell with every glyph, and so sees all there is."""
    p, n = FAMILY.cell, FAMILY.cells
    bank = torch.as_tensor(glyph_bank(p, FAMILY.shapes).copy())
    colours = torch.as_tensor(palette(FAMILY.colours))

    class Sees(torch.nn.Module):
        def forward(self, images, questions):
            cells = images.reshape(-1, 3, n, p, n, p).permute(0, 2, 4, 1, 3, 5)
            cells = cells.reshape(len(images), n * n, 3, p * p)
            covered = cells.amax(dim=2)
            apart = torch.cdist(covered.flatten(0, 1), bank.flatten(0, 1)).reshape(
                *covered.shape[:2], FAMILY.shapes, -1
            )
            shape = apart.amin(dim=-1).argmin(dim=-1)
            colour = torch.cdist(cells.sum(-1) / covered.sum(-1, keepdim=True), colours)
            asked = [part.argmax(1) for part in questions.split([FAMILY.colours, FAMILY.shapes], 1)]
            there = covered.sum(-1) > 0
            fits = (colour.argmin(-1) == asked[0][:, None]) & (shape == asked[1][:, None]) & there
            yes = fits.any(dim=1).float()
            return torch.stack([1 - yes, yes], dim=1)

    return Sees()


@heavy
def test_a_module_that_sees_everything_is_always_right(torch, sees):
    reading = read_binding(sees, Scenes(FAMILY, items=256))
    assert reading.values["seen"] == reading.values["unseen"] == 1
    assert reading.controls["planted"]["bag_seen"] == 0.5
    assert reading.tables["notes"]["control"] == ["untrained"]  # it has nothing to draw anew
    search = read_binding(sees, Scenes(replace(FAMILY, held_out=0), "search", items=256))
    assert search.values["seen_conjunctive_n2"] == search.values["seen_disjunctive_n2"] == 1


@heavy
def test_a_module_that_always_says_yes_is_right_half_of_the_time(torch):
    class Yes(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.says = torch.nn.Linear(8, 1)

        def forward(self, question):
            return 9 + self.says(question)

    scenes = Scenes(FAMILY, items=256, observe=lambda module, images, asked: module(asked))
    reading = read_binding(Yes(), scenes)
    assert reading.values["seen"] == reading.values["unseen"] == 0.5
    assert reading.controls["untrained"]["seen"] == 0.5
    assert "notes" not in reading.tables


@heavy
def test_scenes_that_cannot_be_asked_are_refused(torch, network):
    with pytest.raises(InvalidRequest, match="is asked swap or search"):
        read_binding(network, Scenes(FAMILY, task="report"))  # type: ignore[arg-type]
    with pytest.raises(InvalidRequest, match="on scenes failed: TypeError"):
        read_binding(network, Scenes(FAMILY, items=256))
    wide = Scenes(FAMILY, items=256, observe=lambda module, images, asked: asked)
    assert "expected a log odds" in inspect_module(network, scenes=wide)["binding"]
