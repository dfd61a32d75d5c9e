"""Masks over PyTorch modules, against sums done by hand and networks made to be parted."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from torch_parts import ROOT, grid_of, heavy, parts_of

from recombine.adapters import (
    Grid,
    inspect_module,
    learn_masks,
    maskable,
    read_fracture,
    read_subnetworks,
)
from recombine.errors import InvalidRequest, UnknownName
from recombine.instruments.fracture import Seen, measured
from recombine.learners.masks import Masking

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
@pytest.mark.parametrize("held", [0.3, float("nan")])
def test_a_mask_that_is_not_of_truth_values_is_refused(torch, network, held):
    """Soft masks: every weight would count as kept."""
    soft = {"0": np.full((6, 4), held)}
    with pytest.raises(InvalidRequest, match=rf"part 0 over 0 holds {held}: expected truth values"):
        read_subnetworks(network, parts_of(torch), {"part 0": soft, "part 1": soft})
    whole = {"0": np.ones((6, 4))}  # numbers of 0 and 1 are truth values too
    read_subnetworks(network, parts_of(torch), {"part 0": whole, "part 1": whole}, batches=1)


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
