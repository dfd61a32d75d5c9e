"""Does a generator compose what can be read off it? Decodability against composition success.

For prompts held out from the probe: how well a linear probe reads the prompt's concepts off the
generator's activations, beside how often a judge finds all of them in the images. "Held out" is
from the probe; nothing is known of what the generator itself was trained on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool, Float
from scipy import stats

from recombine.combinations import Space
from recombine.lab.answers import AnswerLog
from recombine.lab.files import write_json
from recombine.lab.memberships import clustered
from recombine.lab.statistics import Interval, partial_correlation, pearson
from recombine.pictures.family import PromptFamily
from recombine.pictures.judge import Judge, checked, image_hash, image_name, success
from recombine.pictures.pipelines import described
from recombine.pictures.probe import (
    Scores,
    by_combination,
    read_off,
    shuffled_labels,
    split_half,
)
from recombine.pictures.shots import PROMPT, Album, Sampling, Shot, Split, split
from recombine.seeds import host_seed
from recombine.supports import LEVELS, Support, novelty

JUDGEMENTS, READING = "judgements.jsonl", "reading.json"
PIXELS = "pixels"
_GRID = 8  # pixels a side that the baseline sees of the finished image
Vector = Float[np.ndarray, " combination"]


@dataclass(frozen=True)
class CombinationReading:
    """One test combination: what could be read off, and how often it was drawn.

    `decodability`, `pixels`, `prompt_embedding` and `shuffled` are the skill of a probe on the
    chosen layer, on the finished image, on the embedding of the prompt, and on the chosen layer
    with shuffled labels: 1 perfect, 0 no better than how common each concept is. `named` is the
    share of concepts that the probe on the chosen layer names. `novelty` says how far the
    combination is from those the probe was fitted on.
    """

    rank: int
    prompt: str
    decodability: float
    named: float
    pixels: float
    prompt_embedding: float | None
    shuffled: float
    success: float
    images: int
    novelty: str


@dataclass(frozen=True)
class PictureReading:
    """What was read of one generator with one family of prompts.

    `layers` has each layer's skill on the validation combinations, by which `layer` was chosen.
    `reliability` is how far success rates would repeat with new images; no correlation with them
    can be expected beyond its square root. `correlations` with success have intervals
    that know which combinations share concepts.
    """

    family: str
    pipeline: Mapping[str, Any]
    judge: str
    combinations: Mapping[str, int]
    images: int
    flagged: int
    layer: str
    layers: Mapping[str, float]
    success: Interval
    reliability: float
    correlations: Mapping[str, Interval]
    table: tuple[CombinationReading, ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, strings, lists and dicts."""
        return asdict(self)


def read_pipeline(
    pipeline: Any,
    family: PromptFamily,
    judge: Judge,
    folder: str | Path,
    sampling: Sampling | None = None,
    *,
    say: Callable[[str], None] | None = None,
) -> PictureReading:
    """Makes the images, records, judges, probes; what is in `folder` already is not made again.

    The reading is also written to `folder` as reading.json. `say` is told of the progress.
    """
    sampling, say = sampling or Sampling(), say or (lambda _: None)
    parts = split(family, sampling)
    album = Album(folder, family, sampling)
    album.take(pipeline, [s for part in parts.parts.values() for s in album.shots(part)], say)
    drawn = _judged(album, album.shots(parts.test), judge, say)
    reading = _read(album, parts, drawn, described(pipeline), _identity(judge))
    write_json(album.folder / READING, reading.to_dict())
    return reading


def _identity(judge: Judge) -> str:
    named = getattr(judge, "identity", None)
    if isinstance(named, str):
        return named
    kind = judge if hasattr(judge, "__qualname__") else type(judge)
    return f"{kind.__module__}.{kind.__qualname__}"


def _judged(
    album: Album, shots: list[Shot], judge: Judge, say: Callable[[str], None]
) -> Bool[np.ndarray, "combination image"]:
    """Whether each image is a success; every judgement is on disk before the next is asked for."""
    log = AnswerLog(album.folder / JUDGEMENTS)
    family, found = album.family, []
    for number, shot in enumerate(shots, 1):
        image, values = album.picture(shot), family.values(shot.rank)
        key = f"{shot.name} {image_hash(image)} {_identity(judge)}"
        name = image_name(image)
        shown = log.get(key)
        if shown is None:
            say(f"judging {number} of {len(shots)}")
            shown = checked(judge(image, family, values), family, values, name)
            log.put(key, shown, {"image": name, "prompt": family.prompt(shot.rank)})
        found.append(success(checked(shown, family, values, name), family, values))
    return np.array(found).reshape(-1, album.sampling.images)


def _read(
    album: Album,
    parts: Split,
    drawn: Bool[np.ndarray, "combination image"],
    pipeline: Mapping[str, Any],
    judge: str,
) -> PictureReading:
    family, space = album.family, album.family.space
    shots = {name: album.shots(ranks) for name, ranks in parts.parts.items()}
    groups = {name: np.array([s.rank for s in some]) for name, some in shots.items()}
    labels = {name: space.indicator(ranks).astype(np.float64) for name, ranks in groups.items()}
    held = {
        layer: read_off(
            _features(album, shots["fit"], layer), {"true": labels["fit"]}, groups["fit"],
            _features(album, shots["validation"], layer), labels["validation"], space,
        )["true"].skill.mean()
        for layer in album.features(shots["fit"][0])
        if layer != PROMPT
    }  # fmt: skip
    layer = max(held, key=lambda name: held[name])

    known = shots["fit"] + shots["validation"]
    known_groups = np.concatenate([groups["fit"], groups["validation"]])
    known_labels = np.concatenate([labels["fit"], labels["validation"]])
    rng = np.random.default_rng(host_seed(album.sampling.seed, "pictures"))
    wrong = shuffled_labels(known_labels, known_groups, rng)

    def tested(name: str, targets: Mapping[str, np.ndarray]) -> dict[str, Scores]:
        return read_off(
            _features(album, known, name), targets, known_groups,
            _features(album, shots["test"], name), labels["test"], space,
        )  # fmt: skip

    main = tested(layer, {"true": known_labels, "shuffled": wrong})
    measures = {
        "decodability": main["true"].skill,
        "named": main["true"].named,
        "shuffled": main["shuffled"].skill,
        PIXELS: tested(PIXELS, {"true": known_labels})["true"].skill,
    }
    if PROMPT in album.features(known[0]):
        measures["prompt_embedding"] = tested(PROMPT, {"true": known_labels})["true"].skill
    columns = {name: by_combination(rows, groups["test"]) for name, rows in measures.items()}
    rate = drawn.mean(axis=1)
    levels = novelty(Support(space, parts.fit), parts.test).level
    table = tuple(
        CombinationReading(
            rank=int(rank),
            prompt=family.prompt(int(rank)),
            success=float(rate[row]),
            images=drawn.shape[1],
            novelty=LEVELS[levels[row]],
            **{"prompt_embedding": None} | {n: float(c[row]) for n, c in columns.items()},  # type: ignore[arg-type]
        )
        for row, rank in enumerate(parts.test)
    )
    every = [shot for some in shots.values() for shot in some]
    return PictureReading(
        family=family.name,
        pipeline=dict(pipeline),
        judge=judge,
        combinations={name: len(part) for name, part in parts.parts.items()},
        images=len(every),
        flagged=sum(album.about(shot)["flagged"] for shot in every),
        layer=layer,
        layers={name: float(score) for name, score in held.items()},
        success=clustered_by_concept(lambda rows: float(rate[rows].mean()), space, parts.test),
        reliability=split_half(drawn, rng),
        correlations=_correlations(columns, rate, space, parts.test),
        table=table,
    )


def _features(album: Album, shots: list[Shot], layer: str) -> Float[np.ndarray, "row feature"]:
    if layer == PIXELS:
        small = [album.picture(shot).resize((_GRID, _GRID), resample=4) for shot in shots]  # box
        return np.stack([np.asarray(one, np.float64).ravel() for one in small])
    return np.stack([album.features(shot)[layer].astype(np.float64) for shot in shots])


def _correlations(
    columns: Mapping[str, Vector], rate: Vector, space: Space, ranks: np.ndarray
) -> dict[str, Interval]:
    def against(values: Vector, other: Vector) -> Interval:
        return clustered_by_concept(
            lambda rows: pearson(values[rows], other[rows]).estimate, space, ranks, fisher=True
        )

    found = {name: against(values, rate) for name, values in columns.items()}
    found["decodability, by rank"] = against(
        stats.rankdata(columns["decodability"]), stats.rankdata(rate)
    )
    baselines = [columns[name] for name in (PIXELS, "prompt_embedding") if name in columns]
    given = np.column_stack(baselines)
    found["decodability, given the baselines"] = clustered_by_concept(
        lambda rows: (
            partial_correlation(columns["decodability"][rows], rate[rows], given[rows]).estimate
        ),
        space,
        ranks,
        fisher=True,
    )
    return found


def clustered_by_concept(
    statistic: Callable[[np.ndarray], float],
    space: Space,
    ranks: np.ndarray,
    *,
    fisher: bool = False,
    level: float = 0.95,
) -> Interval:
    """The interval of a statistic of combinations, which share concepts and so are not independent:
    each concept is left out in turn, with all its combinations."""
    return clustered(statistic, space.indicator(ranks), fisher=fisher)(level)
