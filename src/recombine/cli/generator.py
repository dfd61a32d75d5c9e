"""The `generator` command: what can be read off a text-to-image pipeline, and what it draws."""

from __future__ import annotations

import json
import math
import re
import traceback
from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recombine.cli.judges import explained, judge_of
from recombine.cli.words import settings_of, text_table
from recombine.errors import InvalidRequest, NotApplicable, RecombineError
from recombine.lab.progress import Watch

if TYPE_CHECKING:
    from recombine.lab.intervals import Interval
    from recombine.pictures import PictureReading, PromptFamily, Sampling

SHOWN = 12  # layers; a large denoiser has hundreds


def document(chosen: Namespace) -> dict[str, Any]:
    """What was asked for: the families, the prompts of one, or a whole reading."""
    if chosen.list:
        return families()
    if chosen.prompt_family is None:
        raise InvalidRequest(
            "give --family NAME, such as animals-8 (recombine generator --list shows them all)"
        )
    from recombine.pictures import JudgeError

    try:
        return prompts(chosen) if chosen.prompts_only else read(chosen)
    except (InvalidRequest, NotApplicable, JudgeError) as error:
        raise type(error)(as_typed(str(error))) from error


def families() -> dict[str, Any]:
    """Every family of prompts, with its size and one prompt."""
    from recombine.pictures import FAMILIES

    return {
        "families": [
            {
                "name": name,
                "combinations": len(ranks),
                "concepts": len(family.concepts),
                # Not the first or the middle: there a template says the same word everywhere.
                "example": family.prompt(int(ranks[len(ranks) * 618 // 1000])),
            }
            for name, family in FAMILIES.items()
            for ranks in [family.ranks()]
        ]
    }


def prompts(chosen: Namespace) -> dict[str, Any]:
    """The prompts that a reading with these options would use, and the judge's question."""
    from recombine.pictures.shots import split

    family, sampling = _asked(chosen)
    return {
        "family": family.name,
        "images_each": sampling.images,
        "question": family.question(),
        "prompts": [
            {"part": part, "rank": int(rank), "prompt": family.prompt(int(rank))}
            for part, ranks in split(family, sampling).parts.items()
            for rank in ranks
        ],
    }


def read(chosen: Namespace) -> dict[str, Any]:
    """Makes, judges and reads the images; everything that can be wrong is checked before."""
    from recombine.pictures import load, read_pipeline
    from recombine.pictures.pipelines import make_image
    from recombine.pictures.reading import READING
    from recombine.pictures.shots import split

    family, sampling = _asked(chosen)
    split(family, sampling)
    folder = _folder(chosen)
    judge = judge_of(chosen, folder)
    quiet = chosen.quiet or chosen.json
    if quiet:
        _hush()
    try:
        pipeline = load(chosen.pipeline, chosen.dtype, chosen.device)
    except AssertionError as error:  # torch's word for a device it was not built for
        raise InvalidRequest(f"--device {chosen.device}: {error}") from error
    progress = Progress(Watch(quiet=quiet))
    try:
        reading = read_pipeline(pipeline, family, judge, folder, sampling, say=progress)
        progress.done()
    except RecombineError:
        raise
    except Exception as error:
        if all(
            frame.f_code is not make_image.__code__
            for frame, _ in traceback.walk_tb(error.__traceback__)
        ):
            raise
        raise NotApplicable(
            f"{type(pipeline).__name__} failed on an image: {explained(error)}; finished images "
            f"are kept in {folder}"
        ) from error
    finally:
        progress.close()
    return summary(reading) | {"reading": str(folder / READING)}


def _hush() -> None:
    """Takes the bars off that the libraries themselves draw while they load."""
    from recombine.pictures._optional import need

    for package in ("torch", "diffusers", "transformers"):
        need(package)
    for package in ("diffusers", "transformers"):
        need(f"{package}.utils.logging").disable_progress_bar()


def _asked(chosen: Namespace) -> tuple[PromptFamily, Sampling]:
    from recombine.pictures import Sampling, family_named

    sampling = Sampling(
        combinations=chosen.combinations,
        images=chosen.images,
        steps=chosen.steps,
        guidance=chosen.guidance,
        layers=None if chosen.layers is None else tuple(chosen.layers),
        options={name: _value(text) for name, text in settings_of(chosen.settings).items()},
        seed=chosen.seed,
    )
    return family_named(chosen.prompt_family), sampling


def _value(text: str) -> Any:
    """512 is a number, true a truth, and anything else the text itself."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def _folder(chosen: Namespace) -> Path:
    from recombine.pictures.shots import REQUEST

    if chosen.pipeline is None:
        raise InvalidRequest(
            "give a PIPELINE: a folder that diffusers saved, or a name on its hub "
            "(--prompts-only and --list need none)"
        )
    if chosen.to is None:
        raise InvalidRequest(
            "give --to FOLDER, where images, judgements and the reading are kept; "
            "the same command with the same folder continues"
        )
    folder = Path(chosen.to)
    if folder.exists() and not folder.is_dir():
        raise InvalidRequest(f"--to {folder} is a file: give a folder")
    if folder.is_dir() and any(folder.iterdir()) and not (folder / REQUEST).exists():
        raise InvalidRequest(f"--to {folder} holds other files: give a new or empty folder")
    return folder


def as_typed(message: str) -> str:
    """A message that names arguments of Python, with the options typed for them.

    >>> as_typed("combinations=3: expected at least 8; raise most_calls or pass layers=")
    '--combinations 3: expected at least 8; raise --judge-calls or pass --layers'
    """
    text = re.sub(r"\b(combinations|images|steps)=(-?\d+)", r"--\1 \2", message)
    text = text.replace("most_calls", "--judge-calls").replace("layers=", "--layers")
    text = re.sub(r"^endpoint '", "--judge-endpoint '", text)
    return re.sub(r"^unknown prompt family", "unknown --family", text)


class Progress:
    """Hears "image 3 of 800: ..." and "judging 3 of 240", and shows one bar for each."""

    def __init__(self, watch: Watch):
        self.watch, self.doing = watch, ""

    def __call__(self, text: str) -> None:
        found = re.fullmatch(r"(\w+) (\d+) of (\d+)(?:: (.*))?", text)
        if found is None:
            self.watch.say(text)
            return
        doing, number, total = found[1], int(found[2]), int(found[3])
        if doing != self.doing:
            self.done()
            self.watch.start("images" if doing == "image" else doing, {doing: total})
            self.doing = doing
        self.watch(doing, number - 1, total, found[4] or f"{number} of {total}")
        self.watch.draw()

    def done(self) -> None:
        """What was being done is finished."""
        if self.doing:
            self.watch.finish(self.doing)
            self.watch.draw(last=True)

    def close(self) -> None:
        """No more is to come, finished or not."""
        self.watch.close()


def summary(reading: PictureReading) -> dict[str, Any]:
    """The main numbers; an interval is [estimate, low, high], and what is unknown is null."""
    rows = reading.table
    probes = ("decodability", "shuffled", "pixels", "prompt_embedding")
    columns = {name: [getattr(row, name) for row in rows] for name in probes}
    return {
        "family": reading.family,
        "pipeline": dict(reading.pipeline),
        "judge": reading.judge,
        "combinations": dict(reading.combinations),
        "images": reading.images,
        "flagged": reading.flagged,
        "success": _three(reading.success),
        "reliability": _known(reading.reliability),
        "layer": reading.layer,
        "layers": {name: _known(score) for name, score in reading.layers.items()},
        "read_off": {
            name: _known(sum(column) / len(column))
            for name, column in columns.items()
            if None not in column
        },
        "correlations": {name: _three(found) for name, found in reading.correlations.items()},
    }


def _three(interval: Interval) -> list[float | None]:
    return [_known(value) for value in (interval.estimate, interval.low, interval.high)]


def _known(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


def lines(found: dict[str, Any]) -> list[str]:
    """The same for people."""
    shown: Mapping[str, Callable[[dict[str, Any]], list[str]]] = {
        "families": _family_lines,
        "prompts": _prompt_lines,
        "reading": _reading_lines,
    }
    return next(tell for key, tell in shown.items() if key in found)(found)


def _family_lines(found: dict[str, Any]) -> list[str]:
    columns = ["family", "combinations", "example"]
    rows = [[one["name"], one["combinations"], one["example"]] for one in found["families"]]
    return [text_table(columns, rows), "", "recombine generator --family FAMILY --prompts-only"]


def _prompt_lines(found: dict[str, Any]) -> list[str]:
    # One line each, however long: these are for grep and files as much as for reading.
    return [f"{one['part']:<10}  {one['prompt']}" for one in found["prompts"]]


def _reading_lines(found: dict[str, Any]) -> list[str]:
    parts, ways = found["combinations"], found["read_off"]
    each = found["images"] // sum(parts.values())
    told = [
        f"{found['family']} by {found['pipeline']['pipeline']}, judged by {found['judge']}",
        f"prompts: {parts['fit']} to fit probes on, {parts['validation']} to choose a layer on, "
        f"{parts['test']} to measure on; {each} images each",
        f"success: {_interval(found['success'])} of the images of the test prompts",
        f"split-half reliability of success: {_number(found['reliability'])}{_ceiling(found)}",
    ]
    if found["flagged"]:
        told.append(f"blacked out by the pipeline's own filter: {found['flagged']} images")
    best = sorted(found["layers"].items(), key=lambda one: -(one[1] or 0.0))
    table = [[name, _number(score)] for name, score in best[:SHOWN]]
    told += ["", text_table(["layer", "decodability on validation prompts"], table)]
    if len(best) > SHOWN:
        told.append(f"... and {len(best) - SHOWN} more layers")
    named = {
        "decodability": f"decodability of {found['layer']}",
        "decodability, given the baselines": "the same, given the baselines",
        "pixels": "baseline: the finished pixels",
        "prompt_embedding": "baseline: the prompt's embedding",
        "shuffled": "control: shuffled labels",
    }
    table = [
        [text, _number(ways[name]) if name in ways else "", _interval(found["correlations"][name])]
        for name, text in named.items()
        if name in found["correlations"]
    ]
    columns = ["read off the test prompts", "mean", "correlation with success"]
    return [*told, "", text_table(columns, table), "", f"reading: {found['reading']}"]


def _ceiling(found: dict[str, Any]) -> str:
    reliability = found["reliability"]
    if reliability is None:
        return " (it takes two images each, and success that varies)"
    if reliability <= 0:
        return " (no correlation can be expected)"
    return f" (no correlation beyond {math.sqrt(reliability):.2f} can be expected)"


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:z.3f}"


def _interval(three: Sequence[float | None]) -> str:
    estimate, low, high = (_number(value) for value in three)
    return estimate if estimate == "–" else f"{estimate} [{low}, {high}]"
