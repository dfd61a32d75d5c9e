"""The instruments on PyTorch modules, against sums done by hand and networks made to measure."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recombine import adapters
from recombine.adapters import (
    Grid,
    Part,
    Picture,
    Scenes,
    checksum,
    inspect_module,
    learn_masks,
    maskable,
    read_binding,
    read_fracture,
    read_maps,
    read_subnetworks,
    untrained_twin,
)
from recombine.cppn import coordinates, fracture, sweep_symmetry
from recombine.errors import InvalidRequest, NotApplicable, UnknownName
from recombine.families.objects import Objects, glyph_bank, palette
from recombine.instruments.fracture import Seen, matched_change, measured
from recombine.learners.masks import Masking

ROOT = Path(__file__).resolve().parents[2]
WHY = "needs the extra 'torch': make test-all installs it"
heavy = pytest.mark.heavy


@pytest.fixture(scope="session")
def torch() -> Any:
    package = pytest.importorskip("torch", reason=WHY)
    package.set_num_threads(1)
    return package


@pytest.fixture
def network(torch) -> Any:
    """Linear, batch norm, linear: in training mode, with statistics that a careless look moves."""
    torch.manual_seed(0)
    nn = torch.nn
    made = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 2))
    made[1].train(False)
    made[1].running_mean.fill_(0.1)
    return made


def parts_of(torch, count=2, rows=32, **other) -> list[Part]:
    """Answer n should be the n-th input."""

    def draw(generator):
        return torch.randn(rows, 4, generator=generator)

    def part(n: int) -> Part:
        stated = {
            "draw": draw,
            "test": draw,
            "loss": lambda module, x: ((module(x)[:, n] - x[:, n]) ** 2).mean(),
            "score": lambda module, x: float(module(x)[:, n].mean()),
        }
        return Part(f"part {n}", **{**stated, **other})

    return [part(n) for n in range(count)]


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


# The page


@heavy
def test_masks_find_planted_halves_and_nothing_in_an_untrained_network(torch, capsys):
    page = (ROOT / "docs/how-to/torch-modules.md").read_text("utf-8")
    torch.manual_seed(0)
    there: dict[str, Any] = {}
    exec("\n".join(re.findall(r"^```python\n(.*?)^```$", page, re.M | re.S)), there)
    capsys.readouterr()
    report, halves = there["report"], there["halves"]
    masks = learn_masks(there["network"], there["parts"], steps=400)
    for n, name in enumerate(("first", "last")):
        reading = report[f"subnetworks/{name}"]
        assert reading.values["whole_own"] > 0.95
        assert reading.values["ablation"] <= -0.4 and reading.values["subnetwork"] >= 0.4
        assert abs(reading.controls["untrained module"]["ablation"]) < 0.25
        assert abs(reading.controls["random"]["ablation"]) < 0.3
        assert reading.values["overlap"] < reading.values["overlap_by_chance"]
        for layer, half in halves.items():
            # Half of the block-diagonal matrix belongs to this part.
            rows = np.arange(half.shape[0]) < half.shape[0] // 2
            columns = np.arange(half.shape[1]) < half.shape[1] // 2
            own = np.outer(rows == (n == 0), columns == (n == 0))
            assert masks[name][str(layer)][own].mean() > 0.5
            assert not masks[name][str(layer)][~own].any()
    assert all(isinstance(report[name], str) for name in ("fracture", "feature maps", "binding"))


# Masks


@heavy
@pytest.mark.parametrize("method", ["continuous", "hard-concrete"])
def test_a_mask_keeps_the_weights_that_a_part_needs_and_no_others(torch, method):
    module = torch.nn.Linear(4, 2, bias=False)
    with torch.no_grad():
        module.weight.copy_(torch.tensor([[1.0, 2, -1, 0.5], [0.3, 1.0, 0.7, -2]]))
    masks = learn_masks(module, parts_of(torch), masking=Masking(method), steps=300)
    # Only the n-th weight of row n is right; all else in that row harms, and the other row costs.
    for n in range(2):
        wanted = np.zeros((2, 4), bool)
        wanted[n, n] = True
        assert masks[f"part {n}"]["module"].tolist() == wanted.tolist()


@heavy
def test_masks_by_magnitude_keep_the_largest_weights_of_all_layers(torch, network):
    masks = learn_masks(network, parts_of(torch), masking=Masking("magnitude", density=0.25))
    sizes = {n: abs(network.get_submodule(n).weight.detach().numpy()) for n in ("0", "3")}
    largest = sorted(np.concatenate([s.ravel() for s in sizes.values()]))[-9:]  # of 36
    for name, size in sizes.items():
        assert (masks["part 0"][name] == np.isin(size, largest)).all()


@heavy
@settings(max_examples=15)
@given(data=st.data())
def test_scores_under_a_mask_are_those_of_weights_multiplied_by_hand(torch, data):
    module = torch.nn.Linear(4, 2)
    weight, bias = (p.detach().numpy() for p in (module.weight, module.bias))
    truth = st.lists(st.booleans(), min_size=8, max_size=8)
    keeps = [np.array(data.draw(truth)).reshape(2, 4) for _ in range(2)]
    items = torch.randn(5, 4)
    parts = parts_of(torch, draw=lambda _: items, test=lambda _: items)
    masks = {part.name: {"module": keep} for part, keep in zip(parts, keeps, strict=True)}
    values = read_subnetworks(module, parts, masks, batches=1)["part 0"].values

    def by_hand(keep):
        return (items.numpy() @ (weight * keep).T + bias).mean(axis=0)

    for name, keep in (("whole", 1), ("subnetwork", keeps[0]), ("ablation", ~keeps[0])):
        own, other = by_hand(keep)
        assert values[f"{name}_own"] == pytest.approx(own, abs=1e-5)
        assert values[f"{name}_other"] == pytest.approx(other, abs=1e-5)
        assert values[f"{name}_raw"] == pytest.approx(own - other, abs=1e-5)
    first, second = ({*np.flatnonzero(keep)} for keep in keeps)
    assert values["overlap"] == pytest.approx(len(first & second) / max(1, len(first | second)))
    assert values["density"] == keeps[0].mean()


@heavy
def test_a_mask_over_a_layer_that_does_not_exist_is_refused_with_those_there_are(torch, network):
    with pytest.raises(UnknownName, match=r"'1'.*allowed: 0, 3"):
        learn_masks(network, parts_of(torch), masking=Masking(layers=("1",)))
    keep = {"encoder": np.ones((2, 2), bool)}
    with pytest.raises(UnknownName, match=r"'encoder'.*allowed: 0, 3"):
        read_subnetworks(network, parts_of(torch), {"part 0": keep, "part 1": keep})
    wrong = {"0": np.ones((4, 6), bool)}
    with pytest.raises(InvalidRequest, match=r"\(4, 6\): expected \(6, 4\)"):
        read_subnetworks(network, parts_of(torch), {"part 0": wrong, "part 1": wrong})


@heavy
def test_layers_are_named_by_their_beginnings_and_shared_weights_once(torch):
    nn = torch.nn
    block = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4))
    module = nn.ModuleDict({"body": block, "again": block, "head": nn.Linear(4, 2),
                            "words": nn.Embedding(3, 4), "eyes": nn.Conv2d(3, 2, 3)})  # fmt: skip
    module["head"].weight = module["head"].weight
    assert maskable(module) == ["body.0", "body.2", "head", "eyes"]
    net = nn.Sequential(block, nn.Linear(4, 2))
    masking = Masking(layers=("0",))
    assert list(learn_masks(net, parts_of(torch), masking=masking, steps=1)["part 0"]) == [
        "0.0", "0.2",
    ]  # fmt: skip


@pytest.fixture
def mixture(torch) -> Any:
    """Attention, a recurrent layer and a linear one: most of it no mask can lie over."""
    nn = torch.nn

    class Mixture(nn.Module):
        def __init__(self):
            super().__init__()
            self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
            self.memory = nn.GRU(8, 8, batch_first=True)
            self.head = nn.Linear(8, 2)

        def forward(self, x):
            tokens = torch.cat([x, x], dim=1)[:, None].expand(-1, 3, -1)
            seen, _ = self.attention(tokens, tokens, tokens, need_weights=False)
            return self.head(self.memory(seen)[0][:, -1])

    torch.manual_seed(0)
    return Mixture()


@heavy
def test_a_reading_tells_what_masks_do_not_lie_over(torch, mixture):
    assert maskable(mixture) == ["attention.out_proj", "head"]
    report = inspect_module(mixture, parts=parts_of(torch), steps=2)
    reading = report["subnetworks/part 0"]
    assert not isinstance(reading, str)
    sizes = {name: p.numel() for name, p in mixture.named_parameters()}
    assert sum(sizes.values()) == 738
    assert reading.values["masked_share"] == pytest.approx((8 * 8 + 2 * 8) / 738)
    table = reading.tables["not masked"]
    # The largest first: 3 x 8 x 8 each for attention and for both matrices of the memory.
    large = {"attention.in_proj_weight", "memory.weight_ih_l0", "memory.weight_hh_l0"}
    assert set(table["parameter"][:3]) == large and table["numbers"][:3] == [192] * 3
    assert sum(table["numbers"]) == 738 - 80
    few = learn_masks(mixture, parts_of(torch), masking=Masking(layers=("head",)), steps=1)
    part = read_subnetworks(mixture, parts_of(torch), few, batches=1)["part 0"]
    assert part.values["masked_share"] == pytest.approx(16 / 738)
    assert "attention.out_proj.weight" in part.tables["not masked"]["parameter"]


@heavy
def test_of_many_parameters_without_a_mask_the_first_are_named_and_the_others_counted(torch):
    nn = torch.nn
    module = nn.Sequential(nn.Linear(4, 4), *(nn.LayerNorm(4) for _ in range(6)), nn.Linear(4, 2))
    masks = learn_masks(module, parts_of(torch), steps=1)
    table = read_subnetworks(module, parts_of(torch), masks, batches=1)["part 0"].tables[
        "not masked"
    ]
    # Two biases and six norms of two parameters each.
    assert len(table["parameter"]) == 9 and table["parameter"][-1] == "6 more"
    assert sum(table["numbers"]) == 4 + 2 + 6 * 8


@heavy
def test_a_module_without_a_layer_that_can_be_masked_is_told_what_it_has(torch):
    told = inspect_module(torch.nn.GRU(4, 2), parts=parts_of(torch), steps=1)["subnetworks"]
    assert "GRU has no torch.nn.Linear or convolution" in told
    assert "(its parameters: weight_ih_l0, weight_hh_l0, bias_ih_l0, bias_hh_l0)" in told


@heavy
def test_transposed_convolutions_are_masked_and_heard_by_channel(torch):
    nn = torch.nn
    module = nn.Sequential(
        nn.Unflatten(1, (4, 1)), nn.ConvTranspose1d(4, 2, 3, bias=False), nn.Flatten()
    )
    assert maskable(module) == ["1"]
    weight = module[1].weight.detach().double().numpy()  # input, channel, place
    items = torch.randn(5, 4)
    parts = parts_of(torch, draw=lambda _: items, test=lambda _: items)
    keep = np.random.default_rng(0).random((4, 2, 3)) < 0.5
    masks = {part.name: {"1": keep} for part in parts}
    values = read_subnetworks(module, parts, masks, batches=1)["part 0"].values
    for name, kept in (("whole", 1), ("subnetwork", keep), ("ablation", ~keep)):
        by_hand = np.einsum("ri,icp->rcp", items.numpy(), weight * kept).reshape(5, 6).mean(axis=0)
        assert values[f"{name}_own"] == pytest.approx(by_hand[0], abs=1e-5)
        assert values[f"{name}_other"] == pytest.approx(by_hand[1], abs=1e-5)
    latents, told, _ = grid_of(modules=4)
    reading = read_fracture(module, Grid(told, latents, ("1",), sweeps=0))
    units = np.einsum("tni,icp->tnc", told, weight) / 3
    assert reading.tables["layers"]["value"] == pytest.approx(
        list(measured(Seen(units, latents)).values()), abs=1e-4
    )


@heavy
def test_a_layer_that_a_mask_keeps_more_than_half_of_has_no_matched_complement(torch, network):
    most = {"0": np.ones((6, 4), bool), "3": np.zeros((2, 6), bool)}
    most["0"][:2] = False  # 16 of 24 are kept, 8 are left to be taken
    most["3"][0] = True  # 6 of 12, and as many beside
    parts = parts_of(torch)
    reading = read_subnetworks(network, parts, {p.name: most for p in parts}, batches=1)["part 0"]
    assert reading.values["density"] == pytest.approx((16 + 6) / 36)
    assert reading.controls["complement"]["density"] == pytest.approx((8 + 6) / 36)
    assert reading.tables["notes"]["control"] == ["complement"]
    assert "keeps more than half of 0:" in reading.tables["notes"]["why"][0]
    half = {"0": np.arange(24).reshape(6, 4) % 2 == 0, "3": most["3"]}
    reading = read_subnetworks(network, parts, {p.name: half for p in parts}, batches=1)["part 0"]
    assert reading.controls["complement"]["density"] == reading.values["density"] == 0.5
    assert "notes" not in reading.tables


@heavy
def test_the_same_seed_gives_the_same_masks_and_readings(torch, network):
    both = []
    for _ in range(2):
        torch.rand(3)  # whatever state PyTorch's own generator is in
        masks = learn_masks(
            network, parts_of(torch), masking=Masking("hard-concrete"), steps=40, seed=3
        )
        both.append((masks, read_subnetworks(network, parts_of(torch), masks, seed=3)))
    assert all((both[0][0]["part 0"][n] == both[1][0]["part 0"][n]).all() for n in ("0", "3"))
    assert both[0][1] == both[1][1]


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


# Fracture


def grid_of(tasks=40, modules=5, inputs=6, seed=0):
    """Two modules a task, all or nothing; the module is told which, beside an input."""
    rng = np.random.default_rng(seed)
    latents = np.zeros((tasks, modules))
    for row in latents:
        row[rng.choice(modules, 2, replace=False)] = 1
    shown = rng.normal(size=(inputs, 3))
    told = np.repeat(latents[:, None], inputs, axis=1)
    return latents, told, np.tile(shown, (tasks, 1, 1))


@heavy
def test_units_of_a_grid_are_those_of_a_forward_pass_by_hand(torch):
    latents, told, shown = grid_of()
    torch.manual_seed(0)
    nn = torch.nn
    module = nn.Sequential(nn.Linear(8, 7), nn.Tanh(), nn.Linear(7, 3), nn.Tanh(), nn.Linear(3, 2))
    grid = Grid(np.concatenate([told, shown], axis=2), latents, layers=("1", "3"), sweeps=0)
    reading = read_fracture(module, grid)
    w = {n: module[n].weight.detach().double().numpy() for n in (0, 2)}
    b = {n: module[n].bias.detach().double().numpy() for n in (0, 2)}
    first = np.tanh(grid.inputs @ w[0].T + b[0])
    second = np.tanh(first @ w[2].T + b[2])
    by_hand = [measured(Seen(units, latents)) for units in (first, second)]
    for name, value in reading.values.items():
        assert value == pytest.approx(np.mean([found[name] for found in by_hand]), abs=1e-4)
    assert reading.tables["layers"]["layer"] == ["1"] * 3 + ["3"] * 3
    assert reading.controls["untrained"].keys() == reading.values.keys()
    assert reading.controls["shuffled"]["concordance"] < 0.1


@heavy
def test_a_module_with_a_unit_for_each_part_is_whole_and_a_mixed_one_is_not(torch):
    latents, told, shown = grid_of()

    class Sums(torch.nn.Module):
        def __init__(self, mixing):
            super().__init__()
            self.units = torch.nn.Linear(5, 5, bias=False)
            self.last = torch.nn.Linear(5, 5, bias=False)
            with torch.no_grad():
                self.units.weight.copy_(torch.as_tensor(mixing))
                self.last.weight.copy_(torch.as_tensor(np.linalg.inv(mixing)))

        def forward(self, told, shown):
            return self.last(self.units(told)) * shown[:, :1]

    random = np.linalg.qr(np.random.default_rng(1).normal(size=(5, 5)))[0]
    readings = [
        read_fracture(Sums(mixing), Grid((told, shown), latents)) for mixing in (np.eye(5), random)
    ]
    whole, mixed = (reading.values for reading in readings)
    # A weight of the first moves the answers of the tasks that have one module, and all alike.
    assert whole["selectivity"] == pytest.approx(1, abs=1e-4)
    # In both matrices every weight but the five of the diagonal is 0, and is not moved.
    assert whole["dropped"] == 0
    assert mixed["selectivity"] < 0.8
    planted = {n: v for n, v in readings[0].controls["planted"].items() if n != "dropped"}
    assert {name: whole[name] for name in planted} == pytest.approx(planted, abs=1e-4)
    assert all(whole[name] > mixed[name] + 0.05 for name in planted)
    assert readings[0].controls["shuffled"]["selectivity"] < 0.2
    assert readings[0].controls["mixed"]["disentanglement"] < planted["disentanglement"] - 0.1


@heavy
def test_places_of_a_picture_are_averaged_and_a_layer_run_twice_is_there_twice(torch):
    class Eyes(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.eye, self.bend = torch.nn.Conv2d(2, 3, 1), torch.nn.Tanh()

        def forward(self, pictures):
            return self.bend(self.bend(self.eye(pictures))).mean((2, 3))

    latents = grid_of()[0]
    pictures = np.random.default_rng(0).normal(size=(40, 2, 2, 4, 4))
    pictures[:, :, 0] += latents[:, 0][:, None, None, None]
    module = Eyes()
    reading = read_fracture(module, Grid(pictures, latents, ("eye", "bend"), sweeps=0))
    table = reading.tables["layers"]
    assert list(dict.fromkeys(table["layer"])) == ["eye", "bend", "bend (2)"]
    weight = module.eye.weight.detach().double().numpy()[..., 0, 0]
    units = np.einsum("tnchw,oc->tno", pictures, weight) / 16 + module.eye.bias.detach().numpy()
    assert table["value"][:3] == pytest.approx(
        list(measured(Seen(units, latents)).values()), abs=1e-4
    )


def heard(module, layer, shape) -> tuple[dict[str, float], Any]:
    """What a layer of a module says on a grid of random inputs, and the inputs."""
    latents = grid_of()[0]
    inputs = np.random.default_rng(0).normal(size=(40, 2, *shape)).astype(np.float32)
    inputs.reshape(80, -1)[:, 0] += 3 * np.repeat(latents[:, 0], 2)
    found = read_fracture(module, Grid(inputs, latents, layers=(layer,), sweeps=0))
    return found.values, inputs.reshape(80, *shape)


def units_are(found, by_hand) -> bool:
    """Whether a reading is that of these units, one row for each input."""
    units = by_hand.detach().double().numpy().reshape(40, 2, -1)
    return found == pytest.approx(measured(Seen(units, grid_of()[0])), abs=1e-4)


@heavy
@pytest.mark.parametrize("layer", ["lines", "norm", "bend", "back"])
def test_places_before_units_are_averaged_as_in_networks_that_keep_channels_last(torch, layer):
    """As in ConvNeXt: a convolution, then a norm and linear layers over the channels of a place."""
    nn = torch.nn

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.eye, self.norm = nn.Conv2d(2, 3, 1), nn.LayerNorm(3)
            self.lines, self.bend, self.back = nn.Linear(3, 6), nn.GELU(), nn.Linear(6, 3)

        def parts(self, x):
            parts = {"norm": self.norm(self.eye(x).permute(0, 2, 3, 1))}
            parts["lines"] = self.lines(parts["norm"])
            parts["bend"] = self.bend(parts["lines"])
            return {**parts, "back": self.back(parts["bend"])}

        def forward(self, x):
            return self.parts(x)["back"].mean((1, 2))

    module = Block()
    found, inputs = heard(module, layer, (2, 4, 5))
    by_hand = module.parts(torch.as_tensor(inputs))[layer]
    assert units_are(found, by_hand.mean((1, 2)))


@heavy
@pytest.mark.parametrize("layer", ["1", "2", "3"])
def test_behind_a_convolution_over_time_units_are_its_channels(torch, layer):
    nn = torch.nn
    module = nn.Sequential(
        nn.Conv1d(2, 3, 3), nn.BatchNorm1d(3), nn.ReLU(), nn.AvgPool1d(2), nn.Flatten(),
        nn.Linear(12, 2),
    ).eval()  # fmt: skip
    found, inputs = heard(module, layer, (2, 10))
    by_hand = module[: int(layer) + 1](torch.as_tensor(inputs))
    assert by_hand.shape[1] == 3 and units_are(found, by_hand.mean(2))


@heavy
def test_a_linear_layer_over_whole_pictures_does_not_turn_their_axes_around(torch):
    """As where channels are weighed by what is seen everywhere: the picture keeps its layout."""
    nn = torch.nn

    class Weighed(nn.Module):
        def __init__(self):
            super().__init__()
            self.eye, self.weigh, self.bend = nn.Conv2d(2, 3, 1), nn.Linear(3, 3), nn.Tanh()
            self.norm = nn.LayerNorm([3, 4, 5])

        def seen(self, x):
            seen = self.norm(self.eye(x))
            return self.bend(seen * self.weigh(seen.mean((2, 3)))[..., None, None])

        def forward(self, x):
            return self.seen(x).mean((2, 3))

    module = Weighed()
    for layer in ("bend", "norm"):
        found, inputs = heard(module, layer, (2, 4, 5))
        shown = torch.as_tensor(inputs)
        by_hand = module.seen(shown) if layer == "bend" else module.norm(module.eye(shown))
        assert units_are(found, by_hand.mean((2, 3)))


@heavy
def test_a_norm_that_gives_channels_back_before_places_is_not_read_as_its_parent(torch):
    nn = torch.nn

    class Norm(nn.LayerNorm):
        def forward(self, x):
            return super().forward(x.movedim(1, -1)).movedim(-1, 1)

    module = nn.Sequential(nn.Conv2d(2, 3, 1), Norm(3), nn.Flatten(), nn.Linear(60, 2))
    found, inputs = heard(module, "1", (2, 4, 5))
    assert units_are(found, module[:2](torch.as_tensor(inputs)).mean((2, 3)))


@heavy
def test_where_the_units_are_is_never_guessed(torch):
    nn = torch.nn

    class Turned(nn.Sequential):
        def forward(self, x):
            return self[1](self[0](x).movedim(1, -1)).mean((1, 2))

    told = "second axis or on the last: name a layer with weights"
    for module in (
        nn.Sequential(nn.Tanh(), nn.Flatten(), nn.Linear(40, 2)),
        nn.Sequential(nn.Flatten(), nn.Linear(40, 40), nn.Unflatten(1, (2, 4, 5)), nn.Tanh()),
        Turned(nn.Conv2d(2, 3, 1), nn.Tanh()),
    ):
        layer = next(name for name, part in module.named_modules() if isinstance(part, nn.Tanh))
        with pytest.raises(NotApplicable, match=rf"layer {layer} gives shape .* {told}"):
            heard(module, layer, (2, 4, 5))


@heavy
def test_a_part_that_widens_every_token_is_read_as_the_layer_before_it(torch):
    """As where a package has linear layers of its own kind."""
    nn = torch.nn

    class Widened(nn.Module):
        def forward(self, x):
            return torch.cat([x, x**2], dim=-1)

    class Mean(nn.Module):
        def forward(self, x):
            return x.mean(1)

    module = nn.Sequential(nn.Linear(3, 4), Widened(), nn.Linear(8, 2), Mean())
    found, inputs = heard(module, "1", (5, 3))
    assert units_are(found, module[:2](torch.as_tensor(inputs)).mean(1))


@heavy
def test_a_grid_that_does_not_fit_is_refused(torch, network):
    latents, _, _ = grid_of()
    with pytest.raises(InvalidRequest, match="a row for each of 7 tasks"):
        read_fracture(network, Grid(np.ones((7, 2, 4)), latents))
    with pytest.raises(UnknownName, match="unknown layer 'hidden'"):
        read_fracture(network, Grid(np.ones((40, 2, 4)), latents, layers=("hidden",)))
    with pytest.raises(InvalidRequest, match=r"on inputs of shapes .* failed: RuntimeError"):
        read_fracture(network, Grid(np.ones((40, 2, 9)), latents))


@heavy
@pytest.mark.parametrize("amount", [-0.5, np.nan, np.inf])
def test_an_amount_of_a_module_that_no_task_can_have_is_refused(torch, network, amount):
    """Below 0 it would count as none of the module, and tasks that share it as strangers."""
    latents, _, _ = grid_of()
    latents[3, 1] = amount
    with pytest.raises(InvalidRequest, match=f"latents of {amount:g}: expected finite"):
        read_fracture(network, Grid(np.ones((40, 2, 4)), latents))


@heavy
def test_a_module_that_answers_by_chance_is_not_applicable(torch):
    class Noisy(torch.nn.Sequential):
        def forward(self, x):
            return super().forward(x) + torch.rand(1)

    nn = torch.nn
    module = Noisy(nn.Linear(8, 4), nn.Linear(4, 2))
    latents, told, shown = grid_of()
    grid = Grid(np.concatenate([told, shown], axis=2), latents)
    assert "differently in evaluation mode" in inspect_module(module, grid=grid)["fracture"]


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
