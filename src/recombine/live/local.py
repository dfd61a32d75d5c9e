"""A causal language model in a folder on this machine, read with `transformers`."""

from __future__ import annotations

import hashlib
import importlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from recombine.errors import InvalidRequest, unknown
from recombine.lab.files import sha256_file
from recombine.live.model import Answer, Progress

DTYPES = ("float32", "float16", "bfloat16")
LENGTH = 8  # bytes with which a safetensors file says how long its header is
LONGEST_HEADER = 100_000_000  # bytes, as the format has it
BLOCK, MOST_BLOCKS = 4096, 4096  # bytes of a tensor that are looked at, and how many tensors
CHARACTERS_SHOWN = 120  # of what torch says: it may list every device there is
UNREADABLE = (OSError, ValueError, KeyError)  # what transformers raises for files it cannot use


@dataclass
class LocalModel:
    """A folder that `save_pretrained` wrote, with its tokenizer; greedy, `batch` prompts at a time.

    Prompts go through the tokenizer's chat template if it has one. Only safetensors are loaded and
    no code of the folder is run. Nothing is loaded before the first question.

        model = LocalModel("models/some-chat-model", device="cuda", dtype="bfloat16")
        print(next(model.ask(["What is 2 + 2?"])).text)
    """

    path: str | Path
    longest: int = 1024
    batch: int = 8
    device: str = "cpu"
    dtype: str = "float32"
    quiet: bool = False
    free: bool = True

    def __post_init__(self) -> None:
        if not (Path(self.path) / "config.json").is_file():
            raise InvalidRequest(
                f"{self.path} holds no config.json: give a folder that save_pretrained wrote, or "
                "into which a model of the hub was downloaded"
            )
        if self.dtype not in DTYPES:
            raise unknown("dtype", self.dtype, DTYPES)
        if self.longest < 1 or self.batch < 1:
            raise InvalidRequest(
                f"longest={self.longest}, batch={self.batch}: expected at least 1 each"
            )

    def check(self, prompts: Sequence[str] = ()) -> None:
        """Refuses a device that this machine, or its build of torch, does not have."""
        try:
            self._torch.zeros(1, device=self.device).tolist()
        except (RuntimeError, AssertionError, ValueError, NotImplementedError) as error:
            why = " ".join(str(error).split()).split(". ")[0].rstrip(".")
            raise InvalidRequest(
                f"device {self.device!r} cannot be used here ({why[:CHARACTERS_SHOWN]}): expected "
                "cpu, or another that this machine and its build of torch have"
            ) from None

    @property
    def identity(self) -> str:
        """The folder's name, a hash of its files and weights, and what else changes answers."""
        name = Path(self.path).resolve().name
        return f"{name} {self._fingerprint} {self.dtype} longest={self.longest}"

    @cached_property
    def _fingerprint(self) -> str:
        parts = []
        for file in sorted(Path(self.path).iterdir()):
            if file.suffix in (".json", ".jinja"):
                parts.append(f"{file.name} {sha256_file(file)}")
            elif file.suffix == ".safetensors":
                parts.append(f"{file.name} {fingerprint(file)}")
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:12]

    @cached_property
    def _torch(self) -> Any:
        return _need("torch")

    @cached_property
    def _tokenizer(self) -> Any:
        auto = _need("transformers").AutoTokenizer
        missing = InvalidRequest(
            f"{self.path} holds no tokenizer that can be read: write it there with "
            "tokenizer.save_pretrained, or download the model's tokenizer files into it"
        )
        try:
            made = auto.from_pretrained(
                str(self.path), local_files_only=True, trust_remote_code=False
            )
        except UNREADABLE as error:
            raise missing from error
        if not made.vocab_size:  # of some models transformers makes an empty one from no file
            raise missing
        if made.pad_token is None:
            made.pad_token = made.eos_token or made.unk_token
        return made

    @cached_property
    def _model(self) -> Any:
        auto, dtype = _need("transformers").AutoModelForCausalLM, getattr(self._torch, self.dtype)
        if self.quiet:
            _need("transformers.utils.logging").disable_progress_bar()
        try:
            made = auto.from_pretrained(
                str(self.path), local_files_only=True, trust_remote_code=False,
                use_safetensors=True,
            )  # fmt: skip
        except UNREADABLE as error:
            raise InvalidRequest(f"{self.path}: {' '.join(str(error).split())}") from error
        return made.to(device=self.device, dtype=dtype).eval()

    def ask(self, prompts: Sequence[str], progress: Progress | None = None) -> Iterator[Answer]:
        """Answers in order, each the likeliest continuation token by token."""
        for start in range(0, len(prompts), self.batch):
            part = prompts[start : start + self.batch]
            for number, answer in enumerate(self._continued(part), start + 1):
                if progress:
                    progress(number, len(prompts))
                yield answer

    def log_probability(self, texts: Sequence[str]) -> list[float]:
        """The log-probability of each text from its second token on, given those before.

        Nothing is put before the text, so its first token is not scored; a text of one token
        has 0.
        """
        found: list[float] = []
        for start in range(0, len(texts), self.batch):
            found += self._scored(texts[start : start + self.batch])
        return found

    def _continued(self, prompts: Sequence[str]) -> list[Answer]:
        torch, tokenizer, model = self._torch, self._tokenizer, self._model
        given = self._encoded([self._as_chat(prompt) for prompt in prompts], "left")
        start = given["input_ids"].shape[1]
        most = self.longest if self._room is None else min(self.longest, self._room - start)
        if most < self.longest and len(prompts) > 1:
            # The longest prompt would leave as little room to the others: each has its own.
            return [answer for prompt in prompts for answer in self._continued([prompt])]
        if most < 1:
            raise InvalidRequest(
                f"a prompt of {start} tokens leaves no room for an answer: {self.path} reads "
                f"{self._room} tokens in all; ask shorter questions, or a model that reads more"
            )
        with torch.inference_mode():
            made = model.generate(
                **given, do_sample=False, num_beams=1, max_new_tokens=most,
                temperature=None, top_p=None, top_k=None, pad_token_id=tokenizer.pad_token_id,
            )  # fmt: skip
        ends = model.generation_config.eos_token_id
        stops = set(ends if isinstance(ends, list) else [] if ends is None else [ends])
        answers = []
        for tokens in made[:, start:].tolist():
            cut = len(tokens) == most and not stops & set(tokens)
            answers.append(Answer(tokenizer.decode(tokens, skip_special_tokens=True), cut=cut))
        return answers

    def _scored(self, texts: Sequence[str]) -> list[float]:
        torch, model = self._torch, self._model
        given = self._encoded(list(texts), "right")
        with torch.inference_mode():
            logits = model(**given).logits[:, :-1].float()
        tokens, mask = given["input_ids"][:, 1:], given["attention_mask"][:, 1:]
        each = logits.log_softmax(-1).gather(-1, tokens.unsqueeze(-1)).squeeze(-1)
        return torch.where(mask.bool(), each, 0.0).sum(-1, dtype=torch.float64).tolist()

    def _as_chat(self, prompt: str) -> str:
        if not self._tokenizer.chat_template:
            return prompt
        messages = [{"role": "user", "content": prompt}]
        return self._tokenizer.apply_chat_template(
            messages, tokenize=False, add_generation_prompt=True
        )

    @property
    def _room(self) -> int | None:
        """How many tokens the model reads, those it writes included; None if it does not say."""
        return getattr(self._model.config, "max_position_embeddings", None)

    def _encoded(self, texts: list[str], side: str) -> dict[str, Any]:
        tokenizer = self._tokenizer
        tokenizer.padding_side = side
        # A chat template writes its own special tokens.
        special = not tokenizer.chat_template and side == "left"
        given = tokenizer(texts, return_tensors="pt", padding=True, add_special_tokens=special)
        length = given["input_ids"].shape[1]
        if self._room is not None and length > self._room:
            raise InvalidRequest(
                f"a text of {length} tokens is too long for {self.path}, which reads {self._room}"
            )
        names = ("input_ids", "attention_mask")
        return {name: given[name].to(self.device) for name in names}


def fingerprint(path: Path) -> str:
    """A hash of a file of weights that any training changes, without reading all of it.

    It covers the size, the header, and a block in the middle of every tensor (of some thousands, if
    there are more), so that it notices also where only some layers were trained.
    """
    size = path.stat().st_size
    found = hashlib.sha256(str(size).encode())
    with path.open("rb") as file:
        start = file.read(LENGTH)
        header = file.read(min(int.from_bytes(start, "little"), LONGEST_HEADER))
        found.update(start + header)
        begin = LENGTH + len(header)
        spans = _tensors(header) or [(0, size - begin)]
        for low, high in spans[:: -(-len(spans) // MOST_BLOCKS)]:
            file.seek(begin + max(low, (low + high - BLOCK) // 2))
            found.update(file.read(min(BLOCK, max(0, high - low))))
    return found.hexdigest()


def _tensors(header: bytes) -> list[tuple[int, int]]:
    """Where each tensor of a safetensors file lies behind the header; [] of what is none."""
    try:
        told = json.loads(header)
        spans = [one["data_offsets"] for name, one in told.items() if name != "__metadata__"]
        return sorted((int(low), int(high)) for low, high in spans if 0 <= low <= high)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return []


def _need(package: str) -> Any:
    try:
        return importlib.import_module(package)
    except ModuleNotFoundError as error:
        raise InvalidRequest(
            f"a local model needs the package {error.name!r}: pip install 'recombine[hf]'"
        ) from error
