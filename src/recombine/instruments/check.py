"""The contract of an instrument, as a battery anybody can run on an instrument of their own."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from recombine.errors import NotApplicable
from recombine.families.check import ContractBroken, check_spec, require, same
from recombine.instruments._instrument import Instrument, Reading, check_controls
from recombine.instruments.subject import ABILITIES, Subject
from recombine.learners._learner import Learner, Tensors

HIGH = 0.25
"""What a planted signal must reach: its best number, in the instrument's own unit (R², a share)."""


class Mute(Subject):
    """A subject that can do nothing."""


def check_instrument(
    instrument: Instrument,
    learner: Learner,
    weights: Tensors,
    untrained_weights: Tensors,
    others: Mapping[str, Subject] | None = None,
    given: Mapping[str, Tensors] | None = None,
) -> None:
    """Raises `ContractBroken`, with a sentence that says what is wrong, unless it is sound.

    It reads the learner with these weights twice, beside its untrained twin; `others` are the
    subjects of the cells the instrument asks for, `given` what the learner's subject is made from
    besides its weights.
    """
    check_spec(instrument, "an instrument")
    _check_declared(instrument)
    _check_refuses_the_mute(instrument)
    others = dict(others or {})
    missing = sorted(instrument.cells(learner).keys() - others.keys())
    require(not missing, f"{instrument.name} asks for other cells: give others for {missing}")
    kept = {path: array.copy() for path, array in weights.items()}
    reading = _read(instrument, learner, weights, untrained_weights, others, given)
    try:
        check_controls(instrument, reading)
    except Exception as error:
        raise ContractBroken(str(error)) from error
    _check_numbers(instrument, reading)
    _check_document(instrument, reading)
    again = _read(instrument, learner, weights, untrained_weights, others, given)
    require(
        _text(again) == _text(reading),
        f"{instrument.name} must give the same reading twice: draw from the subject's seeds",
    )
    require(same(weights, kept), f"{instrument.name} must not change the weights it looks at")
    _check_controls_behave(instrument, reading)


def _read(
    instrument: Instrument, learner: Learner, weights: Tensors, untrained: Tensors,
    others: Mapping[str, Subject], given: Mapping[str, Tensors] | None,
) -> Reading:  # fmt: skip
    subjects = (learner.subject(tensors, given) for tensors in (weights, untrained))
    return instrument.read(next(subjects), next(subjects), others)


def _check_declared(instrument: Instrument) -> None:
    strange = sorted(set(instrument.needs) - set(ABILITIES))
    require(
        instrument.needs and not strange,
        f"needs must name abilities ({', '.join(ABILITIES)}), got {instrument.needs}",
    )
    require(
        instrument.name and "untrained" in instrument.controls and "planted" in instrument.controls,
        "an instrument must have a name, and `untrained` and `planted` among its controls, got "
        f"{instrument.name!r} and {instrument.controls}",
    )


def _check_refuses_the_mute(instrument: Instrument) -> None:
    sentence = (
        f"{instrument.name} must raise NotApplicable for a subject without {instrument.needs}: "
        "begin with subject.need(self.name, *self.needs)"
    )
    try:
        instrument.read(Mute(), Mute(), {})
    except NotApplicable:
        return
    except Exception as error:
        raise ContractBroken(f"{sentence} (got {type(error).__name__}: {error})") from error
    require(False, sentence)


def _check_numbers(instrument: Instrument, reading: Reading) -> None:
    require(reading.values, f"a reading of {instrument.name} has no values")
    for where, numbers in {"values": reading.values, **reading.controls}.items():
        for name, value in numbers.items():
            require(
                isinstance(value, int | float) and math.isfinite(value),
                f"{instrument.name} read {value!r} as {where}/{name}: readings are finite numbers",
            )


def _check_document(instrument: Instrument, reading: Reading) -> None:
    try:
        stored = json.loads(json.dumps(reading.document(), allow_nan=False))
    except (TypeError, ValueError) as error:
        raise ContractBroken(f"a reading of {instrument.name} cannot be stored: {error}") from error
    require(
        Reading.from_document(stored) == reading,
        f"a reading of {instrument.name} must be the same after it is stored: plain numbers, "
        "names as keys, lists and not tuples",
    )


def _check_controls_behave(instrument: Instrument, reading: Reading) -> None:
    planted = max(reading.controls["planted"].values())
    require(
        planted >= HIGH,
        f"{instrument.name} does not find what was planted: its best number is {planted:.3g}",
    )
    shuffled = reading.controls.get("shuffled")
    if shuffled is not None:
        best = max(shuffled.values())
        require(
            best < planted / 2,
            f"{instrument.name} finds a signal in shuffled targets: {best:.3g}, planted "
            f"{planted:.3g}",
        )


def _text(reading: Reading) -> str:
    return json.dumps(reading.document(), sort_keys=True, default=_plain)


def _plain(value: Any) -> Any:
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else str(value)
