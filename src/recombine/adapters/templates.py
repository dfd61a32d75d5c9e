"""Adapters to begin with: each runs as it is, with a tiny example inside to be replaced."""

from __future__ import annotations

from recombine.errors import unknown

TORCH = """\
# A PyTorch model. Check it: recombine adapt my_adapter.py:model --data FILE
import torch
from recombine.adapters import TorchModel


def encode(records):  # rows of your file, by column -> tensors, one row a record
    seen = [{str(value) for value in record.values()} for record in records]
    return torch.tensor([[float(word in row) for word in ("red", "cube")] for row in seen])


def model():
    torch.manual_seed(0)  # yours: build the module, then load its state_dict
    net = torch.nn.Sequential(torch.nn.Linear(2, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
    return TorchModel(net, encode, labels=["yes", "no"], layers=["0", "1"], name="example")
"""

HF = """\
# A transformers model. Yours: return TransformersModel("models/my-model", prompt="{question}")
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import BertConfig, BertForSequenceClassification, PreTrainedTokenizerFast
from recombine.adapters import TransformersModel


def model():
    raw = Tokenizer(models.WordLevel({"[PAD]": 0, "?": 1, "red": 2, "cube": 3}, "?"))
    raw.pre_tokenizer = pre_tokenizers.Whitespace()
    reader = PreTrainedTokenizerFast(tokenizer_object=raw, pad_token="[PAD]", unk_token="?")
    torch.manual_seed(0)
    small = BertConfig(vocab_size=4, hidden_size=8, num_hidden_layers=2, num_attention_heads=2)
    net = BertForSequenceClassification(small)
    return TransformersModel(net, reader, prompt="a red cube", name="example")  # with {columns}
"""

JAX = """\
# A JAX function. Check it: recombine adapt my_adapter.py:model --data FILE
import jax, numpy
from recombine.adapters import FunctionModel

PARAMS = {"in": numpy.ones((1, 8)), "out": numpy.linspace(-1, 1, 16).reshape(8, 2)}

def encode(records):  # rows of your file, by column -> arrays, one row a record
    return numpy.array([[float("red" in record.values())] for record in records])

def apply(params, inputs):  # yours: outputs, and activations by layer
    hidden = jax.nn.relu(inputs @ params["in"])
    return hidden @ params["out"], {"hidden": hidden}

def model():
    return FunctionModel(apply, encode, params=PARAMS, labels=["yes", "no"], layers=True)
"""

ENDPOINT = """\
# A language model behind an endpoint. Yours: use ChatEndpoint where Scripted stands:
#   ChatEndpoint("https://api.example.com/v1", "some-model", log="answers.jsonl", most_calls=500)
# It reads the key from OPENAI_API_KEY, keeps every answer in the log and asks nothing twice.
from recombine.adapters import EndpointModel
from recombine.live import ChatEndpoint, Scripted  # noqa: F401

PROMPT = "Is this picture red? Answer yes or no."  # columns go in as {colour}


def says(prompt):  # the built-in example
    return "Answer: yes" if "red" in prompt else "Answer: no"


def model():
    return EndpointModel(PROMPT, Scripted(says, identity="example"), choices=["yes", "no"])
"""

COMMAND = '''\
# A program that reads a record as a line of JSON and writes its answer as one, any language.
import sys
from recombine.adapters import CommandModel

PROGRAM = """
import json, sys
for line in sys.stdin:
    record = json.loads(line)  # a row of your file, by column
    print(json.dumps("yes" if "red" in record.values() else "no"), flush=True)
"""


def model():  # yours: CommandModel("node my_model.js --weights best"); remarks go to stderr
    return CommandModel([sys.executable, "-c", PROGRAM], name="example", timeout=60)
'''

ARRAYS = """\
# Activations and answers that were written down, one row for each row of your file.
import numpy as np
from recombine.adapters import ArraysModel

ROWS = 1000


def model():
    # Yours: ArraysModel("acts.npz"), with answers under "answers", ids under "ids" (found by the
    # column id, else by row number) and every other array as a layer; .npy and .safetensors too.
    draw = np.random.default_rng(0)
    layers = {"first": draw.normal(size=(ROWS, 8)), "second": draw.normal(size=(ROWS, 4))}
    answers = np.where(layers["second"][:, 0] > 0, "yes", "no")
    return ArraysModel(layers, answers=answers, name="example")
"""

TEMPLATES = {
    "torch": TORCH, "hf": HF, "jax": JAX, "endpoint": ENDPOINT, "command": COMMAND,
    "arrays": ARRAYS,
}  # fmt: skip


def template(kind: str) -> str:
    """The text of an adapter to begin with.

    >>> "def model()" in template("jax")
    True
    """
    if kind not in TEMPLATES:
        raise unknown("kind of adapter", kind, TEMPLATES)
    return TEMPLATES[kind]
