"""A user's PyTorch module as a model of records: batches, layers by pattern, nothing changed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from recombine.adapters import TorchModel, checksum, load_model, template
from recombine.errors import InvalidRequest, UnknownName

WHY = "needs the extra 'torch': make test-all installs it"
torch: Any = pytest.importorskip("torch", reason=WHY)
pytestmark = pytest.mark.heavy
RECORDS = [{"x": 0.1 * n, "y": float(n % 3)} for n in range(11)]


@pytest.fixture(autouse=True)
def steady():
    torch.manual_seed(0)
    torch.set_num_threads(1)


def encode(records):
    return torch.tensor([[r["x"], r["y"]] for r in records])


def network() -> Any:
    layers = [
        torch.nn.Linear(2, 5),
        torch.nn.BatchNorm1d(5),
        torch.nn.ReLU(),
        torch.nn.Linear(5, 3),
    ]
    return torch.nn.Sequential(*layers)


def by_hand(net: Any) -> Any:
    with torch.no_grad():
        return net.eval()(encode(RECORDS))


@pytest.mark.parametrize("batch", [1, 4, 64])
def test_answers_and_layers_are_those_of_the_module(batch):
    net = network().train()
    model = TorchModel(net, encode, labels=["a", "b", "c"], layers=["0", "[12]"], batch=batch)
    said, layers = model.answer(RECORDS), model.activations(RECORDS)
    assert net.training  # as it was
    logits = by_hand(net)
    assert said == ["abc"[i] for i in logits.argmax(dim=1)]
    with torch.no_grad():
        hidden = net[0](encode(RECORDS)).numpy()
    assert list(layers) == ["0", "1", "2"] and np.allclose(layers["0"], hidden, atol=1e-6)
    told = model.log_probabilities(RECORDS, said)
    expected = logits.log_softmax(dim=1).max(dim=1).values
    assert np.allclose(told, expected, atol=1e-5)


def test_parity_compares_batches_with_plain_runs_and_nothing_is_changed():
    net = network()
    before = checksum(net)
    parity = TorchModel(net, encode, labels=["a", "b", "c"], batch=4).parity(RECORDS)
    assert parity.fine and parity.records == 11 and parity.largest < 1e-5
    assert checksum(net) == before


def test_a_module_whose_rows_see_each_other_fails_parity():
    class Centred(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.line = torch.nn.Linear(2, 2)

        def forward(self, x):
            return self.line(x) - self.line(x).mean(dim=0)

    parity = TorchModel(Centred(), encode, labels=["a", "b"]).parity(RECORDS)
    assert not parity.fine and "batches or hooks change" in str(parity)


def test_a_module_that_writes_to_its_weights_is_found_out():
    class Restless(torch.nn.Module):
        def __init__(self, hidden: bool):
            super().__init__()
            self.line, self.hidden = torch.nn.Linear(2, 2), hidden

        def forward(self, x):
            (self.line.weight.data if self.hidden else self.line.weight.detach()).mul_(1.01)
            return self.line(x)

    with pytest.raises(InvalidRequest, match=r"weights line\.weight .* were written to"):
        TorchModel(Restless(False), encode).answer(RECORDS)
    net = Restless(True)
    before = checksum(net)
    with pytest.raises(InvalidRequest, match="have been put back"):
        TorchModel(net, encode).parity(RECORDS)
    assert checksum(net) == before


def test_buffers_that_count_calls_are_put_back():
    class Counting(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.line = torch.nn.Linear(2, 1)
            self.register_buffer("calls", torch.zeros(1))

        def forward(self, x):
            self.calls += 1
            return self.line(x)

    net = Counting()
    model = TorchModel(net, encode)
    assert len(model.answer(RECORDS)) == 11 and isinstance(model.answer(RECORDS)[0], float)
    assert model.parity(RECORDS).fine and float(net.calls) == 0


def test_arguments_may_be_several_or_named_and_answers_decoded():
    class Two(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.line = torch.nn.Linear(1, 1)

        def forward(self, left, right):
            return {"sum": left + right}

    def both(records):
        left, right = encode(records).split(1, dim=1)
        return left, right.numpy()

    def named(records):
        left, right = both(records)
        return {"right": right, "left": left}

    def decode(outputs):
        return outputs["sum"][:, 0].round(decimals=3).tolist()

    expected = pytest.approx([r["x"] + r["y"] for r in RECORDS], abs=1e-3)
    for way in (both, named):
        assert TorchModel(Two(), way, decode).answer(RECORDS) == expected


def test_mistakes_are_told_in_one_line():
    with pytest.raises(UnknownName, match=r"unknown layer 'encoder\.\*'"):
        TorchModel(network(), encode, layers=["encoder.*"])
    with pytest.raises(InvalidRequest, match="gave shape"):
        TorchModel(network(), lambda records: torch.zeros(2, 2)).answer(RECORDS)
    with pytest.raises(InvalidRequest, match="failed: RuntimeError"):
        TorchModel(network(), lambda records: torch.zeros(len(records), 7)).answer(RECORDS)
    with pytest.raises(InvalidRequest, match="wrap it, as in TorchModel"):
        load_model(network())


def test_the_printed_template_runs_as_it_is(tmp_path):
    (tmp_path / "mine.py").write_text(template("torch"), "utf-8")
    model = load_model(f"{tmp_path / 'mine.py'}:model")
    records = [{"colour": "red", "shape": "cube"}, {"colour": "blue", "shape": "ball"}]
    assert set(model.answer(records)) <= {"yes", "no"}
    assert model.activations(records)["1"].shape == (2, 8)
    parity = model.parity(records)
    assert parity is not None and parity.fine
