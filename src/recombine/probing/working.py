"""The work of `probe`: folds, labellings, the answers of every layer, and what they add up to."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from recombine.lab.intervals import Interval
from recombine.probing import controls
from recombine.probing.answers import Answers, across_folds
from recombine.probing.curves import FRACTIONS, Curve, described, kept_rows
from recombine.probing.fitting import cross_fit
from recombine.probing.folds import deal_combinations, deal_rows, readable_rows
from recombine.probing.pairs import PairQuestion, PairReading, pair_reading
from recombine.probing.preparing import Prepared
from recombine.probing.readings import Control, LabelReading, LayerReading, Score, TargetReading
from recombine.probing.scoring import Lots, Scorer, chance, interval, label_scorers, scorers, whole
from recombine.probing.targets import Target
from recombine.probing.verdicts import Bars, Scored, judged, skill
from recombine.seeds import host_seed


@dataclass(frozen=True, eq=False)
class _Column:
    """A labelling to fit: the truth, or a random one."""

    target: Target
    truth: np.ndarray
    span: slice


@dataclass(frozen=True, eq=False)
class _Fitted:
    """Answers to every labelling by one layer, and how much the training folds like it."""

    answers: list[Answers]
    validation: Float[np.ndarray, "labelling fold"]


class Work:
    """One run of `probe`: the folds, what is fitted, and the answers of every layer."""

    def __init__(
        self, data: Prepared, questions: list[PairQuestion], folds: int, asked: int, draws: int,
        seed: int, bars: Bars, say: Callable[[str], None],
    ):  # fmt: skip
        self.data, self.questions, self.folds, self.asked = data, questions, folds, asked
        self.draws, self.seed, self.bars, self.say = draws, seed, bars, say
        extra = {id(h): h for q in questions for h in q.halves} | {
            id(q.both): q.both for q in questions
        }
        self.fitted_targets = [*data.targets]
        self.fitted_targets += [t for t in extra.values() if t not in data.targets]
        self.fold = deal_combinations(data.group, self.fitted_targets, folds, seed=seed)
        self.row_fold = deal_rows(data.group, folds, seed=seed)
        self.lots = Lots.of(data.group, host_seed(seed, "probe/lots"))
        sizes = np.bincount(data.group)
        # A lone row has no mate in training; then "within" says nothing about it.
        self.mated = sizes[data.group] > 1
        self.columns = self._labellings()
        self.y = np.concatenate([one.truth for one in self.columns], axis=1)
        self.across = self._fits(self.fold, "combinations")
        self.within = self._fits(self.row_fold, "rows") if self.mated.any() else {}
        # What is fitted to compare with, by layer: all targets share it.
        self._others: dict[str, dict[str, list[float]]] = {}
        self._parts: dict[str, list[tuple[int, list[Answers]]]] = {}

    def _labellings(self) -> list[_Column]:
        found: list[_Column] = []

        def add(target: Target, truth: np.ndarray) -> None:
            start = found[-1].span.stop if found else 0
            found.append(_Column(target, truth, slice(start, start + truth.shape[1])))

        for target in self.fitted_targets:
            add(target, target.columns)
        group = self.data.group
        for target in self.data.targets:
            for draw in range(self.draws):
                rng = self._rng(f"control/{target.name}/{draw}")
                add(target, controls.random_labels(target.columns, group, rng))
            if controls.varies_within(target.columns, group):
                rng = self._rng(f"shuffled/{target.name}")
                add(target, controls.shuffled_within(target.columns, group, rng))
        return found

    def _rng(self, name: str) -> np.random.Generator:
        return np.random.default_rng(host_seed(self.seed, f"probe/{name}"))

    def _fit(
        self,
        x: np.ndarray,
        columns: Sequence[_Column],
        fold: Int[np.ndarray, " row"],
        train: np.ndarray | None = None,
    ) -> _Fitted:
        y, spans = self.y[:, : columns[-1].span.stop], [one.span for one in columns]
        fit = cross_fit(x, y, spans, fold, train=train)
        answers = [across_folds(fit, one.target.kind, self.data.rows, number, one.span)
                   for number, one in enumerate(columns)]  # fmt: skip
        return _Fitted(answers, fit.validation)

    def _fits(self, fold: Int[np.ndarray, " row"], how: str) -> dict[str, _Fitted]:
        found = {}
        for name, x in self.data.layers.items():
            self.say(f"layer {name}: {x.shape[1]} features, held out by {how}")
            found[name] = self._fit(x, self.columns, fold)
        return found

    def _places(self, target: Target) -> tuple[int, list[int], int | None]:
        """Where a target's true, random and shuffled labellings are."""
        own = [i for i, one in enumerate(self.columns) if one.target is target]
        drawn = own[1 : 1 + self.draws]
        return own[0], drawn, own[1 + self.draws] if len(own) > 1 + self.draws else None

    def _chosen(self, fits: Mapping[str, _Fitted], place: int) -> list[str]:
        """For each fold, the layer that its training folds read best."""
        names = list(fits)
        liked = np.stack([fits[name].validation[place] for name in names])
        return [names[i] for i in liked.argmax(axis=0)]

    def _mixed(
        self, fits: Mapping[str, _Fitted], place: int, fold: Int[np.ndarray, " row"]
    ) -> Answers:
        """The answers of each fold's chosen layer."""
        picks = self._chosen(fits, place)
        parts = {name: fits[name].answers[place] for name in set(picks)}
        first = parts[picks[0]]
        if len(parts) == 1:
            return first
        mixed = [np.array(getattr(first, f)) for f in ("equal", "shares", "scores", "usual")]
        for a, name in enumerate(picks):
            rows, own = fold == a, parts[name]
            for whole_array, part in zip(
                mixed, (own.equal, own.shares, own.scores, own.usual), strict=True
            ):
                whole_array[rows] = part[rows]
        return Answers(*mixed)

    def readings(self) -> list[TargetReading]:
        return [self._reading(target) for target in self.data.targets]

    def _reading(self, target: Target) -> TargetReading:
        self.say(f"scoring {target.name}")
        main, (true, drawn, _) = target.metric, self._places(target)
        rows = readable_rows(target, self.fold)
        across = scorers(target, target.columns, self._mixed(self.across, true, self.fold),
                         self.fold, rows, self.lots)  # fmt: skip
        inside = self.mated & readable_rows(target, self.row_fold)
        within = None
        if self.within and inside.any():
            within = scorers(target, target.columns, self._mixed(self.within, true, self.row_fold),
                             self.row_fold, inside, self.lots)  # fmt: skip
        random = [self._control(target, i, self.across, self.fold) for i in drawn]
        scores = tuple(
            Score(
                metric,
                self._interval(target, one),
                None if within is None else self._interval(target, within[metric]),
                chance(target, metric, rows),
                float(np.mean([control[metric] for control in random])),
            )
            for metric, one in across.items()
        )
        first = scores[0]
        floor = max(first.chance, first.control)
        own = skill(first.across, floor)
        inner = None if first.within is None else skill(first.within, first.chance)
        scored = Scored(int(rows.sum()), len(rows), len(np.unique(self.data.group[rows])))
        verdict = judged(self.bars, own, inner, self.data.combinations, self.asked, scored)
        gap = None
        if within is not None:
            one, other = within[main], across[main]
            gap = self._interval(target, lambda w: one(w) - other(w))
        picks = self._chosen(self.across, true)
        layer = max(dict.fromkeys(picks), key=lambda name: (
            picks.count(name), float(self.across[name].validation[true].mean())
        ))  # fmt: skip
        return TargetReading(
            target.name, target.kind, target.said, target.values, verdict, own, gap, layer,
            tuple(picks), scores, self._by_layer(target, rows, inside),
            self._controls(target, layer, first, [c[main] for c in random]),
            self._curve(target, layer, rows) if self.bars.enough(scored) else None,
            int((~rows).sum()),
            self._labels(target, rows, inside, floor, first.chance),
        )  # fmt: skip

    def _labels(
        self, target: Target, rows: np.ndarray, inside: np.ndarray, floor: float, chance: float
    ) -> tuple[LabelReading, ...]:
        """Each label alone: a mean hides the one that is readable among others that are not."""
        if target.kind != "multilabel":
            return ()
        place = self._places(target)[0]
        mixed = self._mixed(self.across, place, self.fold)
        across = label_scorers(target, mixed, self.fold, rows, self.lots)
        within: list[Scorer | None] = [None] * len(across)
        if self.within and inside.any():
            mixed = self._mixed(self.within, place, self.row_fold)
            within = [*label_scorers(target, mixed, self.row_fold, inside, self.lots)]
        found = []
        for label, one, other in zip(target.values, across, within, strict=True):
            new = self._interval(target, one)
            seen = None if other is None else self._interval(target, other)
            inner = None if seen is None else skill(seen, chance)
            verdict = judged(
                self.bars, skill(new, floor), inner, self.data.combinations, self.asked
            )
            found.append(LabelReading(label, new, seen, verdict))
        return tuple(found)

    def _interval(self, target: Target, score: Callable[[np.ndarray], float]) -> Interval:
        return interval(score, self.lots, target.kind, seed=host_seed(self.seed, "probe/intervals"))

    def _control(
        self, target: Target, place: int, fits: Mapping[str, _Fitted], fold: np.ndarray
    ) -> dict[str, float]:
        """Scores of a random labelling, which chooses its layers as the true one does."""
        everything = np.ones(self.data.rows, bool) if fold is self.fold else self.mated
        scored = scorers(target, self.columns[place].truth, self._mixed(fits, place, fold), fold,
                         everything, self.lots)  # fmt: skip
        return {metric: whole(one, self.lots) for metric, one in scored.items()}

    def _by_layer(
        self, target: Target, rows: np.ndarray, inside: np.ndarray
    ) -> tuple[LayerReading, ...]:
        main, (true, drawn, _) = target.metric, self._places(target)
        found = []
        for name, x in self.data.layers.items():
            one = {name: self.across[name]}
            across = scorers(target, target.columns, one[name].answers[true], self.fold, rows,
                             self.lots)[main]  # fmt: skip
            within = None
            if self.within and inside.any():
                answers = self.within[name].answers[true]
                within = self._interval(target, scorers(
                    target, target.columns, answers, self.row_fold, inside, self.lots
                )[main])  # fmt: skip
            control = np.mean([self._control(target, i, one, self.fold)[main] for i in drawn])
            found.append(LayerReading(
                name, x.shape[1], self._interval(target, across), within, float(control),
                float(one[name].validation[true].mean()),
            ))  # fmt: skip
        return tuple(found)

    def _controls(
        self, target: Target, layer: str, first: Score, random: list[float]
    ) -> tuple[Control, ...]:
        _, drawn, shuffled = self._places(target)
        main, within = target.metric, None
        if self.within:
            within = float(np.mean([self._control(target, i, self.within, self.row_fold)[main]
                                    for i in drawn]))  # fmt: skip
        null = None
        if shuffled is not None:
            null = self._control(target, shuffled, self.across, self.fold)[main]
        place = self.data.targets.index(target)
        others = self._other_features(layer)
        features, mixed, inputs = (
            others[name][place] if name in others else None
            for name in ("random", "mixed", "inputs")
        )
        reach = f"{self.draws} draws from {min(random):.3f} to {max(random):.3f}"
        return (
            Control("chance", first.chance, "an answer that looks at nothing"),
            Control("random labels per combination, combinations never seen", first.control,
                    f"the control task ({reach}); selectivity is the score less this"),
            Control("random labels per combination, rows of combinations seen", within,
                    "how well a probe of this size memorises combinations"),
            Control("random features of the same dimension", features, "Gaussian, know nothing"),
            Control("activations of other rows", mixed, "the same features, shuffled over rows"),
            Control("random projections of the inputs", inputs,
                    "what is readable without the model" if inputs is not None
                    else "no inputs were given"),
            Control("targets shuffled within combinations", null,
                    "what the combination alone tells" if null is not None
                    else "does not apply: the target is the same in all rows of a combination"),
        )  # fmt: skip

    def _other_features(self, layer: str) -> dict[str, list[float]]:
        """Main scores of all targets by features of the same dimension that know nothing."""
        if layer not in self._others:
            self.say(f"layer {layer}: random features of the same dimension")
            x, rng = self.data.layers[layer], self._rng(f"features/{layer}")
            found = {"random": self._by_features(controls.gaussian(x.shape[0], x.shape[1], rng))}
            found["mixed"] = self._by_features(x, rng.permutation(self.data.rows))
            if self.data.inputs is not None:
                found["inputs"] = self._by_features(
                    controls.projected(self.data.inputs, x.shape[1], rng)
                )
            self._others[layer] = found
        return self._others[layer]

    def _by_features(self, x: np.ndarray, order: np.ndarray | None = None) -> list[float]:
        """The main scores by other features; with `order`, by these of other rows."""
        # Targets move instead of features: the same pairing, without a second copy of the latter.
        place = np.arange(self.data.rows) if order is None else order
        targets = self.data.targets
        columns, fold = self.columns[: len(targets)], self.fold[place]
        y = self.y[place, : columns[-1].span.stop]
        fit = cross_fit(x, y, [one.span for one in columns], fold)
        lots = Lots(self.lots.of_row[place], self.lots.count, self.lots.combinations)
        scores = []
        for number, one in enumerate(columns):
            answers = across_folds(fit, one.target.kind, len(y), number, one.span)
            rows = readable_rows(one.target, self.fold)[place]
            scored = scorers(one.target, one.truth[place], answers, fold, rows, lots)
            scores.append(whole(scored[one.target.metric], lots))
        return scores

    def _smaller(self, layer: str) -> list[tuple[int, list[Answers]]]:
        """Answers by probes of fewer combinations, for growing numbers of them."""
        if layer not in self._parts:
            self.say(f"layer {layer}: fewer combinations")
            found, full = [], round(self.data.combinations * (self.folds - 1) / self.folds)
            for fraction in FRACTIONS:
                train, size = kept_rows(self.data.group, self.fold, fraction, self._rng("curve"))
                if 2 * (self.folds - 1) <= size < full and size not in [n for n, _ in found]:
                    columns = self.columns[: len(self.data.targets)]
                    fit = self._fit(self.data.layers[layer], columns, self.fold, train)
                    found.append((size, fit.answers))
            place = slice(0, len(self.data.targets))
            self._parts[layer] = [*found, (full, self.across[layer].answers[place])]
        return self._parts[layer]

    def _curve(self, target: Target, layer: str, rows: np.ndarray) -> Curve:
        place, parts = self.data.targets.index(target), self._smaller(layer)
        scores = [
            self._interval(target, scorers(
                target, target.columns, answers[place], self.fold, rows, self.lots
            )[target.metric])
            for _, answers in parts
        ]  # fmt: skip
        return described([size for size, _ in parts], scores, target.metric)

    def _cautious(self, target: Target) -> Answers:
        """The answers of chosen layers, and one fixed value where training folds found nothing.

        Holding a combination out leaves its values rarer beside the others it came with. A probe
        that has nothing else to go by then answers worse than chance, and a pair of such answers
        would make any other look good.
        """
        place = self._places(target)[0]
        answers = self._mixed(self.across, place, self.fold)
        best = np.max([fit.validation[place] for fit in self.across.values()], axis=0)
        nothing = (best <= 0)[self.fold]
        equal, shares = (np.where(nothing, 0, one) for one in (answers.equal, answers.shares))
        return Answers(equal, shares, answers.scores, answers.usual)

    def pair_readings(self) -> list[PairReading]:
        found = []
        for question in self.questions:
            answers = [self._cautious(one) for one in (question.both, *question.halves)]
            found.append(pair_reading(
                question, answers[0], (answers[1], answers[2]), self.fold,
                readable_rows(question.both, self.fold), self.lots, self.bars,
                seed=host_seed(self.seed, "probe/pairs"),
            ))  # fmt: skip
        return found
