"""The protocol of a user's own model: loading, arrays on disk, JAX functions, the command."""

from __future__ import annotations

import io
import json
import pickle
import subprocess
import sys
import zipfile
from argparse import ArgumentParser
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from safetensors.numpy import save_file

from recombine.adapters import (
    ArraysModel,
    FunctionModel,
    OwnModel,
    Parity,
    instruments_for,
    load_model,
    read_arrays,
    template,
)
from recombine.adapters.models import pooled
from recombine.adapters.records import read_records
from recombine.adapters.templates import TEMPLATES
from recombine.cli import adapting
from recombine.errors import InvalidRequest, NotApplicable, RecombineError, UnknownName

RECORDS = [
    {"colour": colour, "shape": shape} for colour in ("red", "blue") for shape in ("cube", "ball")
]


@pytest.fixture
def adapter(tmp_path):
    def written(text: str, name: str = "mine.py") -> str:
        (tmp_path / name).write_text(text, "utf-8")
        return f"{tmp_path / name}:model"

    return written


def test_the_modules_import_neither_jax_nor_torch():
    names = "models arrays functions commands endpoints torch_models hf_models isolation templates"
    code = f"import sys\nfor n in {names.split()}: __import__('recombine.adapters.' + n)\n"
    code += "import recombine.cli.adapting\nprint({'jax', 'torch', 'pandas'} & set(sys.modules))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "set()"


# --- loading ---------------------------------------------------------------------------------


ANSWER = "    def answer(self, records):\n        return [r['colour'] for r in records]\n"


@pytest.mark.parametrize(
    "text",
    [
        "def model(record):\n    return record['colour']",
        "model = lambda record: record['colour']",
        f"class Thing:\n{ANSWER}model = Thing()",
        f"class model:\n{ANSWER}",
        "def model():\n    return lambda record: record['colour']",
        "from recombine.adapters import OwnModel\n"
        f"class Mine(OwnModel):\n    abilities = frozenset({{'answer'}})\n{ANSWER}"
        "def model():\n    return Mine()",
    ],
)
def test_everything_that_can_answer_is_taken_as_a_model(adapter, text):
    model = load_model(adapter(text))
    assert isinstance(model, OwnModel) and "answer" in model.abilities
    assert model.answer(RECORDS) == ["red", "red", "blue", "blue"]
    assert model.place is not None and model.place.endswith("mine.py:model")


def test_an_adapter_may_import_its_neighbours_and_define_dataclasses(adapter):
    adapter("COLOUR = 'green'\n", "my_neighbour_of_the_adapter.py")
    model = load_model(
        adapter(
            "from __future__ import annotations\nfrom dataclasses import dataclass\n"
            "from my_neighbour_of_the_adapter import COLOUR\n"
            "@dataclass(frozen=True)\nclass model:\n    colour: str = COLOUR\n"
            "    def answer(self, records):\n        return [self.colour for _ in records]\n"
        )
    )
    assert model.answer([{}]) == ["green"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("model = 3", "model is a int: expected an adapter"),
        ("def model():\n    return 'red'", r"model\(\) returned a str"),
        ("def model():\n    return {}['weights']", r"KeyError: 'weights' \(mine.py, line 2\)"),
        ("def model(a, b):\n    return 1", "model is a function"),
        ("import sys\nsys.exit(3)", r"cannot be imported: SystemExit: 3 \(mine.py, line 2\)"),
        ("def broken(:", "cannot be imported: SyntaxError"),
        ("mdel = 1", "did you mean 'mdel'"),
        ("class model:\n    abilities = {'anwser'}\n    def answer(self, r): ...", "'anwser'"),
        ("class model:\n    abilities = {'weights'}\n    def answer(self, r): ...", "no method"),
    ],
)
def test_what_is_no_model_is_refused_in_one_line(adapter, text, expected):
    with pytest.raises(InvalidRequest, match=expected):
        load_model(adapter(text))


def test_a_place_that_is_no_file_of_python_says_what_to_type(tmp_path):
    with pytest.raises(InvalidRequest, match=r"my_adapter\.py:model"):
        load_model("acts.npz")
    with pytest.raises(InvalidRequest, match=r"recombine adapt --init"):
        load_model(tmp_path / "absent.py")


def test_a_wrapped_object_offers_what_it_has_and_refuses_the_rest():
    class Mine:
        def answer(self, records):
            return [0] * len(records)

        def activations(self, records):
            return {"tokens": np.arange(len(records) * 12.0).reshape(len(records), 3, 4)}

    model = load_model(Mine())
    assert model.abilities == {"answer", "activations"}
    expected = np.arange(24.0).reshape(2, 3, 4).mean(axis=1)
    assert np.array_equal(model.activations([{}, {}])["tokens"], expected)
    with pytest.raises(NotApplicable):
        model.log_probabilities([{}], ["red"])


def test_a_layer_with_too_few_rows_is_named():
    with pytest.raises(
        InvalidRequest, match=r"layer 'first' is of shape \(2, 3\): expected 4 rows"
    ):
        pooled("first", np.zeros((2, 3)), 4)


def test_instruments_say_what_they_lack():
    found = instruments_for(frozenset({"answer", "activations"}))
    recorded = instruments_for(frozenset({"answer"}), recorded=True)
    assert recorded["score by novelty"] == "" and "answers given before" in recorded["swap"]
    assert found["swap"] == found["probe"] == "" and "log-probabilities" in found["probability"]


def test_parity_is_fine_only_within_rounding_and_with_the_same_answers():
    assert Parity(1e-6, 1.0, 5).fine and not Parity(0.1, 1.0, 5).fine
    assert not Parity(0.0, 1.0, 5, otherwise=(3,)).fine and "record 4" in str(
        Parity(0.0, 1.0, 5, otherwise=(3,))
    )


# --- records ---------------------------------------------------------------------------------


def test_records_of_a_file_keep_what_stands_in_it(tmp_path):
    table = tmp_path / "t.csv"
    table.write_text("path,size,code,n\nimg/1.png,1.5,007,3\nimg/2.png,,008,-4\n", "utf-8")
    assert read_records(table) == [
        {"path": "img/1.png", "size": 1.5, "code": "007", "n": 3, "row": 1},
        {"path": "img/2.png", "size": None, "code": "008", "n": -4, "row": 2},
    ]
    lines = tmp_path / "t.jsonl"
    lines.write_text('{"tags": ["a", "b"], "n": 1}\n{"tags": [], "flag": true}\n', "utf-8")
    assert read_records(lines) == [
        {"tags": ["a", "b"], "n": 1, "flag": None, "row": 1},
        {"tags": [], "n": None, "flag": True, "row": 2},
    ]
    assert len(read_records(table, 1)) == 1


# --- arrays on disk --------------------------------------------------------------------------


@pytest.mark.slow
@given(
    hnp.arrays(
        st.sampled_from([np.float32, np.int64, np.uint8, np.bool_, np.dtype("<U3")]),
        hnp.array_shapes(min_dims=1, max_dims=3, max_side=4),
    ),
    st.sampled_from(["C", "F"]),
)
def test_arrays_are_read_as_numpy_reads_them(tmp_path_factory, array, order):
    folder = tmp_path_factory.mktemp("arrays")
    array = np.asarray(array, order=order)
    np.save(folder / "one.npy", array)
    np.savez_compressed(folder / "some.npz", first=array, second=array[:1])
    assert read_arrays(folder / "one.npy")["one"].tobytes() == array.tobytes()  # NaN too
    found = read_arrays(folder / "some.npz")
    assert sorted(found) == ["first", "second"] and found["first"].tobytes() == array.tobytes()
    assert found["first"].dtype == array.dtype


def test_safetensors_are_read(tmp_path):
    save_file({"hidden": np.eye(3, dtype=np.float32)}, tmp_path / "acts.safetensors")
    assert np.array_equal(read_arrays(tmp_path / "acts.safetensors")["hidden"], np.eye(3))


def npy(header: str, data: bytes = b"") -> bytes:
    text = header.encode()
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + data


def archive(name: str) -> bytes:
    stream, inside = io.BytesIO(), io.BytesIO()
    np.save(inside, np.zeros(3))
    with zipfile.ZipFile(stream, "w") as made:
        made.writestr(name, inside.getvalue())
    return stream.getvalue()


class Evil:
    def __reduce__(self):
        return (pytest.fail, ("a pickle was run",))


def object_array() -> bytes:
    stream = io.BytesIO()
    np.save(stream, np.array([Evil()], dtype=object), allow_pickle=True)
    return stream.getvalue()


HUGE = "{'descr': '<f8', 'fortran_order': False, 'shape': (1099511627776, 1024), }\n"


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("a.npy", object_array()),
        ("a.npy", pickle.dumps({"weights": 1})),
        ("a.npz", pickle.dumps({"weights": 1})),
        ("a.safetensors", pickle.dumps({"weights": 1}) * 10),
        ("a.safetensors", (2**40).to_bytes(8, "little") + b"{}"),
        ("a.safetensors", b""),
        ("a.npy", b"\x93NUMPY\x02\x00" + (2**32 - 1).to_bytes(4, "little") + b"{}"),
        ("a.npy", npy(HUGE)),
        ("a.npy", npy("{'descr': '<f8', 'fortran_order': False, 'shape': (-1,), }\n")),
        ("a.npy", npy("__import__('os').abort()\n")),
        ("a.npy", npy("(" * 3000)),
        ("a.npy", npy("{'descr': '<f8', 'fortran_order': False, 'shape': (2,), }\n", bytes(8))),
        ("a.npy", npy("{'descr': [('a', '<f8')], 'fortran_order': False, 'shape': (0,), }\n")),
        ("a.npz", archive("../a.npy")),
        ("a.npz", archive("/etc/a.npy")),
        ("a.npz", archive("a.pkl")),
    ],
)
def test_a_malicious_file_is_refused_without_running_or_allocating(tmp_path, name, data):
    (tmp_path / name).write_bytes(data)
    with pytest.raises(RecombineError) as found:
        read_arrays(tmp_path / name)
    assert "\n" not in str(found.value)


def test_an_archive_that_unpacks_to_too_much_and_a_file_of_pickles_are_refused(tmp_path):
    np.savez(tmp_path / "a.npz", a=np.zeros(1000))
    with pytest.raises(InvalidRequest, match="are allowed"):
        read_arrays(tmp_path / "a.npz", most_bytes=1000)
    (tmp_path / "weights.pt").write_bytes(b"")
    with pytest.raises(InvalidRequest, match="can run code"):
        read_arrays(tmp_path / "weights.pt")


def test_arrays_answer_by_row_or_by_id(tmp_path):
    layer, said = np.arange(6.0).reshape(3, 2), np.array(["a", "b", "c"])
    np.savez(tmp_path / "acts.npz", layer=layer, answers=said)
    by_row = ArraysModel(tmp_path / "acts.npz")
    assert by_row.abilities == {"answer", "activations"}
    assert by_row.answer([{"row": 3}, {"row": 1.0}, {"row": "2"}]) == ["c", "a", "b"]
    assert np.array_equal(by_row.activations([{"row": 2}])["layer"], layer[1:2])
    by_id = ArraysModel({"layer": layer, "ids": np.array([30, 10, 20])}, answers=said)
    assert by_id.answer([{"id": "10"}, {"id": 20.0}]) == ["b", "c"]
    for model, record, why in (
        (by_row, {"row": 4}, "1 to 3"),
        (by_row, {"row": -1}, "1 to 3"),
        (by_row, {"colour": "red"}, "'row'"),
        (by_id, {"id": "40"}, "one of the ids"),
    ):
        with pytest.raises(InvalidRequest, match=why):
            model.answer([record])


def test_arrays_that_do_not_fit_together_are_refused():
    with pytest.raises(InvalidRequest, match="lengths"):
        ArraysModel({"layer": np.zeros((3, 2))}, answers=np.zeros(4))
    with pytest.raises(InvalidRequest, match="twice"):
        ArraysModel({"layer": np.zeros((2, 2)), "ids": np.array([1, 1])})
    with pytest.raises(NotApplicable):
        ArraysModel({"layer": np.zeros((3, 2))}).answer([{"row": 1}])


# --- JAX functions ---------------------------------------------------------------------------


def numbered(records):
    return np.array([[record["row"], 1.0] for record in records], np.float32)


@given(st.integers(1, 9), st.integers(1, 5))
def test_a_function_in_batches_says_what_numpy_says(count, batch):
    weights = np.array([[1.0, -1.0, 0.5], [0.0, 2.0, -0.5]], np.float32)

    def apply(params, inputs):
        return inputs @ params["w"], {"hidden": inputs[:, None, :] * 2}

    model = FunctionModel(
        apply, numbered, params={"w": weights}, labels=["a", "b", "c"], layers=True, batch=batch,
        compile=False,
    )  # fmt: skip
    records = [{"row": n} for n in range(count)]
    logits = numbered(records) @ weights
    assert model.answer(records) == [["a", "b", "c"][i] for i in logits.argmax(axis=1)]
    assert np.array_equal(model.activations(records)["hidden"], numbered(records) * 2)
    chance = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    told = model.log_probabilities(records, ["b"] * count)
    assert np.allclose(np.exp(told), chance[:, 1], atol=1e-6)
    assert model.parity(records).fine
    assert np.array_equal(model.weights()["['w']"], weights)


def test_a_compiled_function_fills_the_last_batch_and_tells_numbers():
    model = FunctionModel(lambda inputs: inputs.sum(axis=1), numbered, batch=4)
    assert model.answer([{"row": n} for n in range(6)]) == [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]


def test_a_function_whose_rows_see_each_other_fails_parity():
    model = FunctionModel(lambda x: x - x.mean(axis=0), numbered, batch=4, compile=False)
    assert not model.parity([{"row": n} for n in range(4)]).fine


def test_what_a_function_returns_wrongly_is_said():
    records = [{"row": 1}, {"row": 2}]
    with pytest.raises(InvalidRequest, match="one column for each of the 3 labels"):
        FunctionModel(lambda x: x, numbered, labels=["a", "b", "c"]).answer(records)
    with pytest.raises(InvalidRequest, match="expected it to return"):
        FunctionModel(lambda x: x, numbered, layers=True).answer(records)
    with pytest.raises(InvalidRequest, match="gave 1 answers for 2 records"):
        FunctionModel(lambda x: x, numbered, decode=lambda outputs: ["one"]).answer(records)
    with pytest.raises(UnknownName, match="answer of"):
        FunctionModel(lambda x: x, numbered, labels=["a", "b"]).log_probabilities(records, "ac")


# --- templates and the command ---------------------------------------------------------------


@pytest.mark.parametrize("kind", ["jax", "endpoint", "command", "arrays"])
def test_a_printed_template_runs_as_it_is(adapter, kind, capsys):
    assert command("--init", kind) is None
    text = capsys.readouterr().out
    assert text == template(kind) and len(text.splitlines()) <= 15
    model = load_model(adapter(text))
    answers = model.answer([{**record, "row": n} for n, record in enumerate(RECORDS, 1)])
    assert len(answers) == 4 and set(answers) <= {"yes", "no"}
    if hasattr(model, "close"):
        model.close()  # pyright: ignore[reportAttributeAccessIssue]


def test_every_kind_has_a_template_of_at_most_fifteen_lines():
    assert set(adapting.KINDS) == set(TEMPLATES)
    for kind in TEMPLATES:
        assert len(template(kind).splitlines()) <= 15, kind
        compile(template(kind), kind, "exec")
    with pytest.raises(UnknownName):
        template("toch")


def command(*words: str) -> int | None:
    parser = ArgumentParser()
    parser.add_argument("--json", action="store_true")
    adapting.arguments(parser)
    return adapting.run(parser.parse_args(words))


@pytest.fixture
def data(tmp_path) -> Path:
    table = tmp_path / "data.csv"
    table.write_text("colour,shape\n" + "red,cube\nblue,ball\n" * 15, "utf-8")
    return table


def test_adapt_checks_an_adapter_and_says_which_instruments_apply(adapter, data, capsys):
    place = adapter("def model(record):\n    return record['shape']")
    assert command(place, "--data", str(data), "--rows", "6") is None
    text = capsys.readouterr().out
    assert "6 of 6 records answered" in text and "no problems" in text and "'cube'" in text
    assert "needs activations, which the model does not offer" in text
    place = adapter(template("jax"))
    assert command(place, "--data", str(data), "--rows", "5", "--json") is None
    found = json.loads(capsys.readouterr().out)
    assert found["largest_difference"] <= 1e-6 and found["layers"] == {"hidden": 8}
    assert found["instruments"]["probe"]["applies"] and not found["problems"]
    used = {name: one["used_by"] for name, one in found["instruments"].items()}
    assert used["probe"] == "recombine card" and "inspect_module" in used["structure"]


def test_adapt_tells_problems_by_record_and_fails(adapter, data, capsys):
    place = adapter("def model(record):\n    return record['size'] if record['row'] > 2 else 1")
    assert command(place, "--data", str(data), "--rows", "4") == 1
    text = capsys.readouterr().out
    assert "2 problems" in text and "record 3: the adapter raised KeyError: 'size'" in text


def test_adapt_says_what_is_missing(adapter, data):
    place = adapter("model = lambda record: 1")
    for words, why in (
        ((), "FILE.py:NAME is missing"),
        ((place,), "--data FILE is missing"),
        ((place, "--init", "torch"), "one of them"),
        ((place, "--data", str(data), "--rows", "0"), "--rows 0"),
    ):
        with pytest.raises(InvalidRequest, match=why):
            command(*words)


def test_adapt_asks_nothing_that_costs_money_without_a_yes(adapter, data, capsys):
    place = adapter(
        "from recombine.adapters import EndpointModel\nfrom recombine.live import Scripted\n"
        "def model():\n"
        "    said = Scripted(lambda prompt: 'red', identity='script', free=False)\n"
        "    return EndpointModel('{colour} {row}', said, price_in=2.0)\n"
    )
    words = (place, "--data", str(data), "--rows", "3")
    with pytest.raises(InvalidRequest, match="3 questions may cost money: add --yes"):
        command(*words)
    assert "3 questions, 0 answered before, 3 to ask now" in capsys.readouterr().err
    assert command(*words, "--yes") is None


def test_adapt_checks_log_probabilities_where_they_are_offered(adapter, data, capsys):
    place = adapter(
        "class model:\n    def answer(self, records): return ['x'] * len(records)\n"
        "    def log_probabilities(self, records, answers): return [float('nan')]\n"
    )
    assert command(place, "--data", str(data), "--rows", "3") == 1
    assert "log_probabilities: log-probabilities of shape (1,)" in capsys.readouterr().out


def test_a_package_that_an_extra_brings_is_named_with_it(adapter, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(InvalidRequest, match=r"pip install 'recombine\[torch\]'"):
        load_model(adapter("import torch"))


def test_a_file_with_the_name_of_a_package_works_or_says_that_it_hides_it(
    adapter, data, tmp_path, monkeypatch, capsys
):
    place = adapter(template("jax"), "jax.py")
    monkeypatch.chdir(tmp_path)  # where an adapter often lies
    assert command(place, "--data", str(data), "--rows", "2") is None
    capsys.readouterr()
    (tmp_path / "packages" / "rare_package").mkdir(parents=True)
    (tmp_path / "packages" / "rare_package" / "__init__.py").write_text("there = 1")
    monkeypatch.syspath_prepend(tmp_path / "packages")
    monkeypatch.syspath_prepend(tmp_path)
    place = adapter("import rare_package\nmodel = rare_package.there", "rare_package.py")
    with pytest.raises(InvalidRequest, match=r"hides it from .*to my_rare_package\.py say"):
        load_model(place)
