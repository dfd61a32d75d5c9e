"""A model of `transformers` as a model of records: text or pictures in, answers and layers out."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from recombine.adapters.endpoints import columns_of, filled
from recombine.adapters.models import Record
from recombine.adapters.torch_models import StillModule
from recombine.errors import InvalidRequest, unknown

# How the name of a class ends, and the class of transformers that loads it.
TASKS = {
    "text classification": ("ForSequenceClassification", "AutoModelForSequenceClassification"),
    "causal": ("LMHeadModel", "AutoModelForCausalLM"),
    "masked": ("ForMaskedLM", "AutoModelForMaskedLM"),
    "image classification": ("ForImageClassification", "AutoModelForImageClassification"),
}
MASK = "mask"  # what stands in a prompt for the word to be found


class TransformersModel(StillModule):
    """A transformers model: a folder that `save_pretrained` wrote, or the objects themselves.

    Text is made of each record by `prompt`, such as "a {colour} {shape}"; a masked model's prompt
    holds {mask} once. Pictures are in the column `image`, as a path or a picture. Answers are a
    classifier's labels, the word at the mask, or the likeliest continuation (at most `longest`
    tokens); with `choices`, the likeliest of these. Activations are hidden states, averaged over
    real tokens. From a folder only safetensors are loaded, and none of its code is run.

        model = TransformersModel("models/my-classifier", prompt="{question} {context}")
        print(model.answer(records), model.parity(records))
    """

    pooling = "mean over real tokens, without padding (for pictures: over all places)"

    def __init__(
        self, model: Any, reader: Any = None, *, task: str | None = None, prompt: str = "{text}",
        image: str = "image", choices: Sequence[str] = (), longest: int = 32, batch: int = 16,
        device: str | None = None, name: str | None = None,
    ):  # fmt: skip
        folder = Path(model) if isinstance(model, str | Path) else None
        task = _task(model, folder, task)
        net: Any = model
        if folder is not None:
            net, reader = _loaded(folder, task, reader)
        if reader is None:
            raise InvalidRequest(
                "a model was given without its tokenizer or image processor: give it as the second "
                "argument"
            )
        if device is not None:
            net.to(device)
        labels = [str(v) for _, v in sorted(net.config.id2label.items())]
        classifies = task.endswith("classification")
        own = folder.resolve().name if folder else type(net).__name__
        super().__init__(net, name=name or own, batch=batch, labels=labels if classifies else ())
        if longest < 1:
            raise InvalidRequest(f"longest={longest}: expected at least 1")
        if choices and classifies:
            raise InvalidRequest(f"choices are for language models; {self.name} has its labels")
        self.task, self.reader, self.image, self.longest = task, reader, image, longest
        self.prompt, self.choices = prompt, tuple(choices)
        if task != "image classification":
            named = columns_of(prompt)
            if (MASK in named) != (task == "masked"):
                must = "must" if task == "masked" else "must not"
                raise InvalidRequest(
                    f"the prompt {prompt!r} of a {task} model {must} hold {{mask}}"
                )
            if reader.pad_token is None:
                reader.pad_token = reader.eos_token or reader.unk_token
        self.abilities = self.abilities | {"log-probabilities"}

    def run(self, records: Sequence[Record], watched: bool) -> tuple[Any, dict[str, np.ndarray]]:
        with self.still():
            given = self._inputs(records)
            what = f"{self.name} on {len(records)} records"
            said = self.holder.call(
                what, lambda module: module(**given, output_hidden_states=watched)
            )
            layers = self._layers(said, given.get("attention_mask")) if watched else {}
            return self._heads(said.logits, given), layers

    def plain_run(self, record: Record) -> Any:
        with self.still(), self.buffers_kept():
            given = self._inputs([record])
            return self._heads(self.module(**given).logits, given)

    def answer(self, records: Sequence[Record]) -> list[Any]:
        if self.choices:
            each = [self.log_probabilities(records, [c] * len(records)) for c in self.choices]
            return [self.choices[i] for i in np.argmax(each, axis=0)] if len(records) else []
        if self.task != "causal":
            return super().answer(records)
        return [text for part in self._chunks(records) for text in self._continued(part)]

    def log_probabilities(
        self, records: Sequence[Record], answers: Sequence[Any]
    ) -> Float[np.ndarray, " record"]:
        if self.task.endswith("classification"):
            return super().log_probabilities(records, answers)
        score = self._masked_scores if self.task == "masked" else self._continued_scores
        found = []
        for begin in range(0, len(records), self.batch):
            end = begin + self.batch
            found.append(score(records[begin:end], [str(a) for a in answers[begin:end]]))
        return np.concatenate(found) if found else np.zeros(0)

    def _read(self, outputs: Any, rows: int) -> list[Any]:
        if self.labels:
            return super()._read(outputs, rows)
        # For language models: the likeliest next token, or the likeliest at the mask.
        return [self.reader.decode([i]).strip() for i in self.numbers(outputs).argmax(axis=1)]

    def _heads(self, logits: Any, given: dict[str, Any]) -> Any:
        if self.labels:
            return logits
        rows = self.torch.arange(len(logits), device=logits.device)
        return logits[rows, self._place(given)]

    def _place(self, given: dict[str, Any]) -> Any:
        """Where each text is read: at its mask, or at its last token."""
        if self.task == "causal":
            return given["attention_mask"].sum(dim=1) - 1
        masks = given["input_ids"] == self.reader.mask_token_id
        if wrong := [n for n, count in enumerate(masks.sum(dim=1).tolist(), 1) if count != 1]:
            raise InvalidRequest(f"the text of record {wrong[0]} does not hold one mask")
        return masks.int().argmax(dim=1)

    def _inputs(self, records: Sequence[Record]) -> dict[str, Any]:
        if self.task == "image classification":
            pictures = [self._picture(record, n) for n, record in enumerate(records, 1)]
            given = dict(self.reader(images=pictures, return_tensors="pt"))
        else:
            given = self._tokens(self._texts(records), "right")
        return {k: v.to(self.holder.device) for k, v in given.items() if hasattr(v, "to")}

    def _texts(self, records: Sequence[Record]) -> list[str]:
        mask = {MASK: self.reader.mask_token} if self.task == "masked" else {}
        texts = [filled(self.prompt, {**r, **mask}, n) for n, r in enumerate(records, 1)]
        if self.task != "causal" or not self.reader.chat_template:
            return texts
        chats = [[{"role": "user", "content": text}] for text in texts]
        return [
            self.reader.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
            for chat in chats
        ]

    def _tokens(self, texts: list[str], side: str) -> dict[str, Any]:
        special = not (self.task == "causal" and self.reader.chat_template)
        with self._padded(side):
            given = self.reader(
                texts, return_tensors="pt", padding=True, add_special_tokens=special
            )
        names = ("input_ids", "attention_mask", "token_type_ids")
        self._fits(given["input_ids"].shape[1])
        return {name: given[name].to(self.holder.device) for name in names if name in given}

    @contextmanager
    def _padded(self, side: str) -> Iterator[None]:
        before, self.reader.padding_side = self.reader.padding_side, side
        try:
            yield
        finally:
            self.reader.padding_side = before

    def _fits(self, length: int) -> None:
        room = getattr(self.module.config, "max_position_embeddings", None)
        if room is not None and length > room:
            raise InvalidRequest(
                f"a text of {length} tokens is too long for {self.name}, which reads {room}"
            )
        if not length:
            raise InvalidRequest(f"a text of {self.name} is empty: expected some tokens")

    def _picture(self, record: Record, number: int) -> Any:
        if self.image not in record:
            raise unknown(f"column of record {number}", self.image, [str(k) for k in record])
        given = record[self.image]
        if not isinstance(given, str | Path):
            return given
        try:
            with _need("PIL.Image").open(given) as opened:
                return opened.convert("RGB")
        except OSError as error:
            raise InvalidRequest(
                f"record {number}: cannot read the picture {given}: {error}"
            ) from None

    def _layers(self, said: Any, mask: Any) -> dict[str, np.ndarray]:
        found = {}
        for number, state in enumerate(said.hidden_states):
            state = state.float()
            if state.dim() == 4:  # a convolution's: channels before places
                state = state.flatten(2).mean(dim=2)
            elif state.dim() == 3 and mask is not None and mask.shape == state.shape[:2]:
                weight = mask.unsqueeze(-1).float()
                state = (state * weight).sum(dim=1) / weight.sum(dim=1)
            elif state.dim() == 3:
                state = state.mean(dim=1)
            found[f"hidden {number}"] = state.cpu().numpy()
        return found

    def _continued(self, records: Sequence[Record]) -> list[str]:
        with self.still():
            given = self._tokens(self._texts(records), "left")
            made = self.module.generate(
                **given, do_sample=False, num_beams=1, max_new_tokens=self.longest,
                temperature=None, top_p=None, top_k=None, pad_token_id=self.reader.pad_token_id,
            )  # fmt: skip
        fresh = made[:, given["input_ids"].shape[1] :].tolist()
        return [self.reader.decode(tokens, skip_special_tokens=True).strip() for tokens in fresh]

    def _masked_scores(self, records: Sequence[Record], answers: Sequence[str]) -> np.ndarray:
        logits = self.torch.as_tensor(self.numbers(self.run(records, False)[0]))
        each = logits.double().log_softmax(dim=-1)
        places = [self._answer_tokens(answer) for answer in answers]
        for answer, tokens in zip(answers, places, strict=True):
            if len(tokens) != 1:
                raise InvalidRequest(
                    f"{answer!r} is {len(tokens)} tokens of {self.name}: a masked model answers "
                    "with one"
                )
        return each[range(len(records)), [tokens[0] for tokens in places]].numpy()

    def _continued_scores(self, records: Sequence[Record], answers: Sequence[str]) -> np.ndarray:
        torch, pad = self.torch, self.reader.pad_token_id
        starts = [self._tokens([text], "right")["input_ids"][0].tolist()
                  for text in self._texts(records)]  # fmt: skip
        ends = [self._answer_tokens(answer) for answer in answers]
        length = max(len(s) + len(e) for s, e in zip(starts, ends, strict=True))
        self._fits(length)
        tokens = torch.full((len(records), length), pad, device=self.holder.device)
        mask = torch.zeros_like(tokens)
        for row, (start, end) in enumerate(zip(starts, ends, strict=True)):
            tokens[row, : len(start) + len(end)] = torch.tensor(start + end)
            mask[row, : len(start) + len(end)] = 1
        with self.still():
            logits = self.module(input_ids=tokens, attention_mask=mask).logits[:, :-1].double()
        each = logits.log_softmax(-1).gather(-1, tokens[:, 1:, None])[..., 0].cpu()
        spans = [(len(s) - 1, len(s) + len(e) - 1) for s, e in zip(starts, ends, strict=True)]
        return np.array([float(each[row, a:b].sum()) for row, (a, b) in enumerate(spans)])

    def _answer_tokens(self, answer: str) -> list[int]:
        """An answer as it follows other words: most tokenizers join the space to it."""
        spaced = answer if self.task == "masked" else f" {answer}"
        found = self.reader(spaced, add_special_tokens=False)["input_ids"]
        if not found:
            raise InvalidRequest(f"the answer {answer!r} is no token of {self.name}")
        return list(found)


def _task(model: Any, folder: Path | None, given: str | None) -> str:
    if given is not None:
        if given not in TASKS:
            raise unknown("task", given, TASKS)
        return given
    if folder is None:
        named = [type(model).__name__]
    else:
        if not (folder / "config.json").is_file():
            raise InvalidRequest(
                f"{folder} holds no config.json: give a folder that save_pretrained wrote"
            )
        auto = _need("transformers").AutoConfig
        config = auto.from_pretrained(str(folder), local_files_only=True, trust_remote_code=False)
        named = config.architectures or []
    for task, (end, _) in TASKS.items():
        if any(name.endswith((end, "ForCausalLM") if task == "causal" else end) for name in named):
            return task
    raise InvalidRequest(
        f"what {', '.join(named) or 'the model'} does is not plain from its name: give task=, one "
        f"of {', '.join(TASKS)}"
    )


def _loaded(folder: Path, task: str, reader: Any) -> tuple[Any, Any]:
    transformers = _need("transformers")
    reads = "AutoImageProcessor" if task == "image classification" else "AutoTokenizer"
    safe = {"local_files_only": True, "trust_remote_code": False}
    try:
        model = getattr(transformers, TASKS[task][1]).from_pretrained(
            str(folder), use_safetensors=True, **safe
        )
        if reader is None:
            reader = getattr(transformers, reads).from_pretrained(str(folder), **safe)
    except (OSError, ValueError) as error:
        raise InvalidRequest(f"{folder}: {' '.join(str(error).split())}") from error
    return model, reader


def _need(package: str) -> Any:
    try:
        return importlib.import_module(package)
    except ModuleNotFoundError as error:
        raise InvalidRequest(
            f"a transformers model needs the package {error.name!r}: pip install 'recombine[hf]'"
        ) from error
