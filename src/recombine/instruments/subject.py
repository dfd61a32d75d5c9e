"""The only door to a trained or foreign model: it says what can be asked of it."""

from __future__ import annotations

from typing import Any

import numpy as np

from recombine.errors import NotApplicable

ABILITIES = ("answer", "activations", "log-probabilities", "weights", "gradients")


class Subject:
    """A model under study, with the abilities instruments may ask for.

    Abilities are names from `ABILITIES`; asking for one that is absent says which, not why the
    program crashed.
    """

    abilities: frozenset[str] = frozenset()

    def need(self, instrument: str, *abilities: str) -> None:
        """Refuses politely when an instrument asks for what this subject cannot do."""
        missing = [ability for ability in abilities if ability not in self.abilities]
        if missing:
            have = ", ".join(sorted(self.abilities)) or "none"
            raise NotApplicable(
                f"{instrument} needs {', '.join(missing)} of {type(self).__name__}, which offers "
                f"{have}"
            )

    def answer(self, inputs: Any, key: Any = None) -> Any:
        """What the model says to a batch of inputs."""
        raise NotApplicable(f"{type(self).__name__} cannot answer")

    def activations(self, inputs: Any) -> dict[str, np.ndarray]:
        """Hidden vectors by layer name, one row per task."""
        raise NotApplicable(f"{type(self).__name__} does not show its activations")

    def weights(self) -> dict[str, np.ndarray]:
        """Weights by path."""
        raise NotApplicable(f"{type(self).__name__} does not show its weights")
