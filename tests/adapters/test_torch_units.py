"""Units of PyTorch modules and the weights they stand on, against passes by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from torch_parts import grid_of, heavy

from recombine.adapters import (
    Grid,
    inspect_module,
    read_fracture,
)
from recombine.errors import InvalidRequest, NotApplicable, UnknownName
from recombine.instruments.fracture import Seen, measured


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


@heavy
def test_a_layer_that_is_named_and_not_run_by_itself_is_told(torch):
    """Attention uses the weights of its last projection, and never runs it."""
    nn = torch.nn

    class Attends(nn.Module):
        def __init__(self):
            super().__init__()
            self.attention, self.last = nn.MultiheadAttention(4, 1), nn.Linear(4, 2)

        def forward(self, x):
            return self.last(self.attention(x, x, x, need_weights=False)[0])

    latents = grid_of()[0]
    inputs = np.random.default_rng(0).normal(size=(40, 2, 4))
    grid = Grid(inputs, latents, ("last", "attention.out_proj"), sweeps=0)
    with pytest.raises(NotApplicable, match=r"attention\.out_proj of Attends was not run"):
        read_fracture(Attends(), grid)
    with pytest.raises(InvalidRequest, match=r"layers='last': expected names, such as \('last',\)"):
        read_fracture(Attends(), Grid(inputs, latents, "last"))  # type: ignore[arg-type]


@heavy
def test_inputs_may_be_tensors_of_any_kind_and_must_be_numbers(torch):
    latents, told, _ = grid_of()
    module = torch.nn.Sequential(torch.nn.Linear(5, 6), torch.nn.Tanh(), torch.nn.Linear(6, 2))
    found = read_fracture(module, Grid(told, latents, sweeps=4))
    for kind in (torch.float64, torch.bfloat16):  # zeros and ones are the same in every precision
        tensor = torch.tensor(told, dtype=kind, requires_grad=True)
        same = read_fracture(module, Grid(tensor, torch.tensor(latents), sweeps=4))
        assert same.values == found.values
    for wrong, why in ((told.astype(str), "inputs of type <U"), ([[1], [1, 2]], "unequal length")):
        with pytest.raises(InvalidRequest, match=why):
            read_fracture(module, Grid(wrong, latents))
    with pytest.raises(InvalidRequest, match="latents of type object"):
        read_fracture(module, Grid(told, None))  # type: ignore[arg-type]
    with pytest.raises(InvalidRequest, match=r"sweeps=-1: expected a whole number of at least 0"):
        read_fracture(module, Grid(told, latents, sweeps=-1))


@heavy
def test_a_module_that_answers_with_a_dictionary_is_told_what_is_expected(torch):
    class Names(torch.nn.Sequential):
        def forward(self, x):
            return {"logits": super().forward(x)}

    latents, told, _ = grid_of()
    with pytest.raises(NotApplicable, match="answers with dict: expected a tensor with a row"):
        read_fracture(Names(torch.nn.Linear(5, 2)), Grid(told, latents))
