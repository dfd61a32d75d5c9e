"""A local model of `transformers`: greedy, batched, safetensors only."""

from __future__ import annotations

import io
import json
import shutil
import sys
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from recombine.cli.live import run
from recombine.cli.parser import build
from recombine.errors import InvalidRequest
from recombine.live import LocalModel, Model
from recombine.live.local import fingerprint

WHY = "needs the extra 'hf': make test-all installs it"
LETTERS = "abcdefgh"


def test_a_folder_without_a_model_is_refused(tmp_path):
    with pytest.raises(InvalidRequest, match=r"holds no config\.json"):
        LocalModel(tmp_path)


def test_without_the_extra_one_line_names_it(tmp_path, monkeypatch):
    (tmp_path / "config.json").write_text("{}", "utf-8")
    for package in ("torch", "transformers"):
        monkeypatch.setitem(sys.modules, package, None)
    model = LocalModel(tmp_path)
    assert isinstance(model, Model)
    with pytest.raises(InvalidRequest, match=r"pip install 'recombine\[hf\]'"):
        list(model.ask(["hello"]))


@pytest.mark.parametrize("device", ["foo", "meta", "cuda:99"])
def test_a_device_that_is_not_there_is_refused_before_anything_is_asked(device, tmp_path, capsys):
    pytest.importorskip("torch", reason=WHY)
    (tmp_path / "config.json").write_text("{}", "utf-8")
    words = f"battery --items 1 --hf {tmp_path} --device {device} --to {tmp_path}/run"
    with pytest.raises(InvalidRequest, match=rf"^--device '{device}' cannot be used here .*cpu"):
        run(build().parse_args(words.split()))
    assert capsys.readouterr().err == ""  # before the estimate, too
    assert not (tmp_path / "run").exists()


def weights(path, arrays):
    save_file({name: np.frombuffer(data, np.uint8) for name, data in arrays.items()}, path)


@pytest.fixture
def saved(tmp_path):
    (tmp_path / "config.json").write_text("{}", "utf-8")
    weights(tmp_path / "model.safetensors", {"a": bytes(100_000), "b": bytes(10), "c": bytes(9000)})
    return tmp_path


@pytest.mark.parametrize("trained", ["a", "b", "c"])
def test_other_weights_of_equal_size_are_another_model(saved, trained):
    before, size = LocalModel(saved).identity, (saved / "model.safetensors").stat().st_size
    arrays = {"a": bytes(100_000), "b": bytes(10), "c": bytes(9000)}
    arrays[trained] = bytes([1]) * len(arrays[trained])
    weights(saved / "model.safetensors", arrays)
    assert (saved / "model.safetensors").stat().st_size == size
    assert LocalModel(saved).identity != before


def test_a_model_is_the_same_wherever_its_folder_lies(saved, tmp_path):
    moved = tmp_path / "elsewhere" / saved.name
    shutil.copytree(saved, moved, ignore=shutil.ignore_patterns("elsewhere"))
    assert LocalModel(moved).identity == LocalModel(saved).identity
    (moved / "generation_config.json").write_text('{"eos_token_id": 1}', "utf-8")
    changed = LocalModel(moved).identity
    assert changed != LocalModel(saved).identity
    (moved / "generation_config.json").write_text('{"eos_token_id": 2}', "utf-8")
    assert LocalModel(moved).identity != changed


def test_little_is_read_of_large_weights(saved):
    many = {f"t{n}": bytes([n % 250]) * 5000 for n in range(6000)}
    weights(saved / "model.safetensors", many)
    read = []

    class Counting(io.FileIO):
        def read(self, size=-1):
            found = super().read(size)
            read.append(len(found))
            return found

    class Counted(type(saved)):
        def open(self, *_, **__):
            return Counting(self)

    found = fingerprint(Counted(saved / "model.safetensors"))
    assert found == fingerprint(saved / "model.safetensors")
    assert max(read[2:]) <= 4096 and len(read) <= 2 + 4096


@pytest.mark.parametrize("data", [b"", b"abc", b"\xff" * 8, b"\xff" * 5000,
                                  (2).to_bytes(8, "little") + b"[]" + b"x" * 50])  # fmt: skip
def test_a_file_that_is_no_safetensors_still_has_an_identity(saved, data):
    (saved / "model.safetensors").write_bytes(data)
    assert LocalModel(saved).identity == LocalModel(saved).identity


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Any:
    """A language model of eight letters with random weights."""
    torch = pytest.importorskip("torch", reason=WHY)
    transformers = pytest.importorskip("transformers", reason=WHY)
    tokenizers = pytest.importorskip("tokenizers", reason=WHY)
    torch.manual_seed(0)
    torch.set_num_threads(1)
    names = ["<pad>", "<end>", *LETTERS]
    words = tokenizers.models.WordLevel({name: i for i, name in enumerate(names)}, "<pad>")
    raw = tokenizers.Tokenizer(words)
    raw.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=raw, pad_token="<pad>", eos_token="<end>", unk_token="<pad>"
    )
    config = transformers.GPT2Config(
        vocab_size=len(names), n_positions=32, n_embd=16, n_layer=2, n_head=2,
        initializer_range=0.5, bos_token_id=1, eos_token_id=1, pad_token_id=0,
    )  # fmt: skip
    path = tmp_path_factory.mktemp("model")
    transformers.GPT2LMHeadModel(config).save_pretrained(path)
    tokenizer.save_pretrained(path)
    return path


PROMPTS = ["a b c", "d", "e f g h a b", "c c", "h"]


@pytest.mark.heavy
def test_batches_change_no_answer(folder):
    alone = list(LocalModel(folder, longest=6, batch=1).ask(PROMPTS))
    together = list(LocalModel(folder, longest=6, batch=4).ask(PROMPTS))
    assert alone == together and any(answer.text for answer in alone)


@pytest.mark.heavy
def test_an_answer_is_the_likeliest_continuation_letter_by_letter(folder):
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model, tokenizer = (
        kind.from_pretrained(folder) for kind in (AutoModelForCausalLM, AutoTokenizer)
    )
    tokens = tokenizer("a b c", return_tensors="pt")["input_ids"]
    for _ in range(5):
        best = model(tokens).logits[0, -1].argmax()
        tokens = torch.cat([tokens, best.reshape(1, 1)], dim=1)
        if int(best) == 1:
            break
    wanted = tokenizer.decode(tokens[0, 3:], skip_special_tokens=True)
    [answer] = LocalModel(folder, longest=5).ask(["a b c"])
    assert answer.text == wanted
    assert answer.cut == (int(tokens[0, -1]) != 1)


@pytest.mark.heavy
def test_a_texts_log_probability_is_the_sum_over_its_tokens_from_the_second_on(folder):
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model, tokenizer = (
        kind.from_pretrained(folder) for kind in (AutoModelForCausalLM, AutoTokenizer)
    )
    wanted = []
    for text in PROMPTS:
        tokens = tokenizer(text, return_tensors="pt")["input_ids"]
        total = 0.0
        for end in range(1, tokens.shape[1]):
            with torch.no_grad():
                odds = torch.log_softmax(model(tokens[:, :end]).logits[0, -1].double(), -1)
            total += float(odds[tokens[0, end]])
        wanted.append(total)
    found = LocalModel(folder, batch=3).log_probability(PROMPTS)
    assert found == pytest.approx(wanted, abs=1e-4)
    assert found[1] == 0.0


@pytest.mark.heavy
def test_a_chat_template_is_used_if_there_is_one(folder, tmp_path):
    shutil.copytree(folder, tmp_path / "chat")
    config = json.loads((tmp_path / "chat" / "tokenizer_config.json").read_text("utf-8"))
    config["chat_template"] = "{% for m in messages %}h g {{ m['content'] }} f{% endfor %}"
    (tmp_path / "chat" / "tokenizer_config.json").write_text(json.dumps(config), "utf-8")
    plain = list(LocalModel(folder, longest=6).ask([f"h g {p} f" for p in PROMPTS]))
    assert list(LocalModel(tmp_path / "chat", longest=6).ask(PROMPTS)) == plain


@pytest.mark.heavy
def test_an_answer_ends_where_the_model_has_no_more_room(folder, tmp_path):
    shutil.copytree(folder, tmp_path / "endless")
    for name in ("config.json", "generation_config.json"):  # a model that never stops by itself
        file = tmp_path / "endless" / name
        told = json.loads(file.read_text("utf-8"))
        file.write_text(json.dumps(told | {"eos_token_id": None}), "utf-8")
    prompts = ["a " * 30, "a b", "a " * 31, "d"]
    alone = list(LocalModel(tmp_path / "endless", longest=100, batch=1).ask(prompts))
    assert list(LocalModel(tmp_path / "endless", longest=100, batch=4).ask(prompts)) == alone
    assert all(answer.cut for answer in alone)
    for answer, room in zip(alone, (2, 30, 1, 31), strict=True):
        assert len(answer.text.split()) <= room
    with pytest.raises(InvalidRequest, match="a prompt of 32 tokens leaves no room") as found:
        list(LocalModel(tmp_path / "endless").ask(["a " * 32, "a"]))
    assert "reads 32 tokens in all" in str(found.value) and "\n" not in str(found.value)


@pytest.mark.heavy
@pytest.mark.parametrize("left", [None, "{}", "no JSON"])
def test_a_folder_without_its_tokenizer_ends_in_one_line(left, folder, tmp_path):
    shutil.copytree(folder, tmp_path / "half", ignore=shutil.ignore_patterns("tokenizer*"))
    if left is not None:
        (tmp_path / "half" / "tokenizer.json").write_text(left, "utf-8")
    with pytest.raises(InvalidRequest, match="holds no tokenizer that can be read") as found:
        list(LocalModel(tmp_path / "half").ask(["a"]))
    assert "tokenizer.save_pretrained" in str(found.value) and "\n" not in str(found.value)


@pytest.mark.heavy
def test_a_text_that_is_too_long_and_weights_that_are_a_pickle_are_refused(folder, tmp_path):
    import torch

    with pytest.raises(InvalidRequest, match="a text of 40 tokens is too long"):
        list(LocalModel(folder).log_probability(["a " * 40]))
    shutil.copytree(folder, tmp_path / "old")
    (tmp_path / "old" / "model.safetensors").unlink()
    torch.save({}, tmp_path / "old" / "pytorch_model.bin")
    with pytest.raises(InvalidRequest, match="safetensors"):
        list(LocalModel(tmp_path / "old").ask(["a"]))
