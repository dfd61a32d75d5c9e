"""Who judges the images of the `generator` command: a vision model, or a user's own function."""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from argparse import Namespace
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recombine.errors import InvalidRequest, RecombineError, unknown

if TYPE_CHECKING:
    from recombine.pictures import PromptFamily
    from recombine.pictures.judge import Judge

HOW_TO_JUDGE = (
    "--judge-endpoint URL --judge-model NAME for a vision model that speaks OpenAI's chat "
    "completions, or --judge package.module:function for a judge of your own"
)
ANSWERS = "answers.jsonl"


def judge_of(chosen: Namespace, folder: Path) -> Judge:
    """The judge that was asked for; its answers are kept in the folder."""
    endpoint, model = chosen.judge_endpoint, chosen.judge_model
    if chosen.judge is not None:
        if endpoint or model:
            raise InvalidRequest(f"two judges were given, but one is needed: {HOW_TO_JUDGE}")
        return _own_judge(chosen.judge)
    if not endpoint and not model:
        raise InvalidRequest(f"a judge must say what the images show: give {HOW_TO_JUDGE}")
    if not endpoint or not model:
        lost = "--judge-model NAME" if endpoint else "--judge-endpoint URL"
        raise InvalidRequest(f"{lost} is missing: the two belong together")
    if chosen.judge_calls is not None and chosen.judge_calls < 1:
        raise InvalidRequest(f"--judge-calls {chosen.judge_calls}: expected at least 1")
    from recombine.pictures import VisionJudge

    variable = None if chosen.judge_key_variable == "none" else chosen.judge_key_variable
    # The judge itself would notice only after all images were made.
    if variable is not None and not os.environ.get(variable):
        raise InvalidRequest(
            f"the environment has no {variable}: export it, name another with "
            "--judge-key-variable NAME, or say --judge-key-variable none for an endpoint "
            "without a key"
        )
    return VisionJudge(
        endpoint, model, folder / ANSWERS, key_variable=variable, most_calls=chosen.judge_calls
    )


@dataclass(frozen=True)
class OwnJudge:
    """A user's judge whose failures become one line that says where they happened."""

    judge: Callable[..., Any]
    identity: str

    def __call__(self, image: Any, family: PromptFamily, values: Sequence[str]) -> Any:
        from recombine.pictures.judge import JudgeError, image_name

        try:
            return self.judge(image, family, values)
        except RecombineError:
            raise
        except Exception as error:
            raise JudgeError(
                f"{image_name(image)}: the judge {self.identity} failed: {explained(error)}; "
                "run again to continue"
            ) from error


def _own_judge(path: str) -> OwnJudge:
    """The function, or an instance of the class, at "package.module:name"."""
    module_name, _, name = path.partition(":")
    if not module_name or not name:
        raise InvalidRequest(f"--judge {path}: expected package.module:function")
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())  # last, so that no file here hides an installed package
    try:
        module = importlib.import_module(module_name)
        named = getattr(module, name, None)
        judge: Any = named() if isinstance(named, type) else named
    except Exception as error:
        if isinstance(error, ModuleNotFoundError) and error.name in _parents(module_name):
            raise InvalidRequest(
                f"--judge {path}: there is no module {error.name}, neither installed nor in "
                f"{os.getcwd()}"
            ) from error
        raise InvalidRequest(f"--judge {path}: {explained(error)}") from error
    if judge is None:
        raise unknown(
            f"name in {module_name}", name, [n for n in vars(module) if not n.startswith("_")]
        )
    if not callable(judge):
        raise InvalidRequest(
            f"--judge {path}: {judge!r} cannot be called; expected a function of "
            "(image, family, values)"
        )
    identity = getattr(judge, "identity", None)
    return OwnJudge(judge, identity if isinstance(identity, str) else f"{module_name}.{name}")


def _parents(module: str) -> list[str]:
    parts = module.split(".")
    return [".".join(parts[:n]) for n in range(1, len(parts) + 1)]


def explained(error: BaseException) -> str:
    """An error of somebody else's code: what, and the line it came from."""
    said = " ".join(str(error).split()) or "no message"
    frame, line = list(traceback.walk_tb(error.__traceback__))[-1]
    return f"{type(error).__name__}: {said} ({frame.f_code.co_filename}, line {line})"
