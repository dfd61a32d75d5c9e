"""Models of transformers, tiny and with random weights, as models of records."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from recombine.adapters import TransformersModel, checksum, load_model, template
from recombine.errors import InvalidRequest, UnknownName

WHY = "needs the extra 'hf': make test-all installs it"
torch: Any = pytest.importorskip("torch", reason=WHY)
transformers: Any = pytest.importorskip("transformers", reason=WHY)
tokenizers: Any = pytest.importorskip("tokenizers", reason=WHY)
pytestmark = pytest.mark.heavy

WORDS = ["[PAD]", "[MASK]", "[END]", "?", "a", "red", "blue", "cube", "ball", "is", "big"]
RECORDS = [
    {"colour": "red", "shape": "cube"},
    {"colour": "blue", "shape": "ball is big"},
    {"colour": "red", "shape": "ball"},
]
PROMPT = "a {colour} {shape}"


@pytest.fixture(autouse=True)
def steady():
    torch.manual_seed(0)
    torch.set_num_threads(1)


def reader() -> Any:
    raw = tokenizers.Tokenizer(
        tokenizers.models.WordLevel({w: i for i, w in enumerate(WORDS)}, "?")
    )
    raw.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=raw, pad_token="[PAD]", mask_token="[MASK]", eos_token="[END]",
        unk_token="?",
    )  # fmt: skip


def bert(kind: str, **further) -> Any:
    config = transformers.BertConfig(
        vocab_size=len(WORDS), hidden_size=8, num_hidden_layers=2, num_attention_heads=2,
        intermediate_size=16, max_position_embeddings=16, initializer_range=0.5, **further,
    )  # fmt: skip
    return getattr(transformers, f"BertFor{kind}")(config)


def gpt() -> Any:
    config = transformers.GPT2Config(
        vocab_size=len(WORDS), n_positions=16, n_embd=8, n_layer=2, n_head=2,
        initializer_range=0.5, bos_token_id=2, eos_token_id=2, pad_token_id=0,
    )  # fmt: skip
    return transformers.GPT2LMHeadModel(config)


def tokens(record) -> Any:
    text = PROMPT.format(**record)
    return torch.tensor([[WORDS.index(word) for word in text.split()]])


def test_a_classifier_says_its_labels_and_shows_means_over_real_tokens():
    net = bert("SequenceClassification", id2label={0: "yes", 1: "no", 2: "maybe"}).train()
    before = checksum(net)
    model = TransformersModel(net, reader(), prompt=PROMPT, batch=2)
    said, layers = model.answer(RECORDS), model.activations(RECORDS)
    told = model.log_probabilities(RECORDS, ["no"] * 3)
    assert net.training and checksum(net) == before
    net.eval()
    for row, record in enumerate(RECORDS):
        with torch.no_grad():
            out = net(tokens(record), output_hidden_states=True)
        assert said[row] == ["yes", "no", "maybe"][int(out.logits.argmax())]
        assert told[row] == pytest.approx(float(out.logits.log_softmax(-1)[0, 1]), abs=1e-5)
        for number, state in enumerate(out.hidden_states):
            assert np.allclose(layers[f"hidden {number}"][row], state[0].mean(0), atol=1e-5)
    assert model.parity(RECORDS).fine


def test_a_causal_model_continues_greedily_and_scores_answers():
    net = gpt().eval()
    model = TransformersModel(net, reader(), prompt=PROMPT, longest=4, batch=2)
    said = model.answer(RECORDS)
    scores = model.log_probabilities(RECORDS, ["is big"] * 3)
    for row, record in enumerate(RECORDS):
        given = tokens(record)
        start = given.shape[1]
        full = torch.cat([given, torch.tensor([[WORDS.index("is"), WORDS.index("big")]])], dim=1)
        with torch.no_grad():
            each = net(full).logits[0].log_softmax(-1)
            expected = each[start - 1, WORDS.index("is")] + each[start, WORDS.index("big")]
            for _ in range(4):
                best = net(given).logits[0, -1].argmax()
                given = torch.cat([given, best.reshape(1, 1)], dim=1)
                if int(best) == WORDS.index("[END]"):
                    break
        assert scores[row] == pytest.approx(float(expected), abs=1e-5)
        kept = [WORDS[i] for i in given[0, start:] if i > 2]
        assert said[row].split() == kept
    assert model.parity(RECORDS).fine


def test_among_choices_the_likeliest_is_the_answer():
    model = TransformersModel(gpt(), reader(), prompt=PROMPT, choices=["red", "is big"])
    each = [model.log_probabilities(RECORDS, [choice] * 3) for choice in ("red", "is big")]
    expected = [("red", "is big")[i] for i in np.argmax(each, axis=0)]
    assert model.answer(RECORDS) == expected and model.answer([]) == []


def test_a_masked_model_finds_the_word_at_its_mask():
    net = bert("MaskedLM").eval()
    model = TransformersModel(net, reader(), prompt="a {colour} {mask} is {shape}", batch=2)
    said, told = model.answer(RECORDS), model.log_probabilities(RECORDS, ["cube"] * 3)
    for row, record in enumerate(RECORDS):
        words = ["a", record["colour"], "[MASK]", "is", *record["shape"].split()]
        with torch.no_grad():
            each = net(torch.tensor([[WORDS.index(w) for w in words]])).logits[0, 2].log_softmax(-1)
        assert said[row] == WORDS[int(each.argmax())]
        assert told[row] == pytest.approx(float(each[WORDS.index("cube")]), abs=1e-5)
    with pytest.raises(InvalidRequest, match="'is big' is 2 tokens"):
        model.log_probabilities(RECORDS, ["is big"] * 3)


def test_pictures_are_read_from_paths(tmp_path):
    image = pytest.importorskip("PIL.Image", reason=WHY)
    config = transformers.ViTConfig(
        hidden_size=8, num_hidden_layers=2, num_attention_heads=2, intermediate_size=16,
        image_size=8, patch_size=4, initializer_range=0.5, id2label={0: "cube", 1: "ball"},
    )  # fmt: skip
    net = transformers.ViTForImageClassification(config).eval()
    processor = transformers.ViTImageProcessor(size={"height": 8, "width": 8})
    draw = np.random.default_rng(0)
    records = []
    for number in range(3):
        path = tmp_path / f"{number}.png"
        image.fromarray(draw.integers(0, 255, (8, 8, 3), dtype=np.uint8)).save(path)
        records.append({"image": str(path)})
    model = TransformersModel(net, processor, batch=2)
    said, layers = model.answer(records), model.activations(records)
    for row, record in enumerate(records):
        with image.open(record["image"]) as opened:
            pixels = np.asarray(opened, np.float32).transpose(2, 0, 1) / 255
        with torch.no_grad():
            out = net(torch.tensor(pixels[None] * 2 - 1), output_hidden_states=True)
        assert said[row] == ["cube", "ball"][int(out.logits.argmax())]
        assert np.allclose(layers["hidden 1"][row], out.hidden_states[1][0].mean(0), atol=1e-4)
    assert model.parity(records).fine
    with pytest.raises(InvalidRequest, match="record 1: cannot read the picture"):
        model.answer([{"image": str(tmp_path / "absent.png")}])
    with pytest.raises(UnknownName, match="'image'"):
        model.answer([{"picture": "x"}])


def test_a_folder_is_loaded_by_what_it_holds(tmp_path):
    net = bert("SequenceClassification", id2label={0: "yes", 1: "no"})
    net.save_pretrained(tmp_path / "mine")
    reader().save_pretrained(tmp_path / "mine")
    model = TransformersModel(tmp_path / "mine", prompt=PROMPT)
    assert model.name == "mine" and model.task == "text classification"
    same = TransformersModel(net, reader(), prompt=PROMPT)
    assert model.answer(RECORDS) == same.answer(RECORDS)
    (tmp_path / "mine" / "model.safetensors").unlink()
    torch.save(net.state_dict(), tmp_path / "mine" / "pytorch_model.bin")
    with pytest.raises(InvalidRequest, match="mine"):
        TransformersModel(tmp_path / "mine", prompt=PROMPT)


def test_mistakes_are_told_in_one_line(tmp_path):
    with pytest.raises(InvalidRequest, match=r"holds no config\.json"):
        TransformersModel(tmp_path)
    with pytest.raises(InvalidRequest, match="without its tokenizer"):
        TransformersModel(gpt())
    with pytest.raises(UnknownName, match="unknown task"):
        TransformersModel(gpt(), reader(), task="casual")
    with pytest.raises(InvalidRequest, match=r"must hold \{mask\}"):
        TransformersModel(bert("MaskedLM"), reader(), prompt=PROMPT)
    with pytest.raises(InvalidRequest, match="too long"):
        TransformersModel(gpt(), reader(), prompt="a " * 20).answer(RECORDS)
    with pytest.raises(UnknownName, match="'text'"):
        TransformersModel(gpt(), reader()).answer(RECORDS)


def test_the_printed_template_runs_as_it_is(tmp_path):
    (tmp_path / "mine.py").write_text(template("hf"), "utf-8")
    model = load_model(f"{tmp_path / 'mine.py'}:model")
    assert len(set(model.answer(RECORDS))) == 1
    assert model.activations(RECORDS)["hidden 2"].shape == (3, 8)
    parity = model.parity(RECORDS)
    assert parity is not None and parity.fine
