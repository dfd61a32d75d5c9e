"""Learning to draw one picture from coordinates, by descent, after evolution, or along its path."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from recombine.checks import at_least, rates
from recombine.cppn import Architecture, LayeredCPPN, coordinates
from recombine.errors import InvalidRequest, unknown
from recombine.instruments.subject import Subject
from recombine.learners._learner import Arrays, Learner, Material, Program, Tensors
from recombine.learners.optimiser import Trained, descend, start
from recombine.learners.picture_set import STAGES, PictureSet
from recombine.seeds import key_at, stream
from recombine.trees import named, unnamed

WAYS = ("descent", "curriculum", "evolved", "awake")
SIBLINGS = ("", "turned", "recoloured", "recombined")


@dataclass(frozen=True)
class PictureProgram(Program):
    """Descent on the mean squared error of all pixels, at steps of one length."""

    architecture: str
    size: int

    @property
    def pixels(self) -> Float[Array, "pixel 4"]:
        return jnp.asarray(coordinates(self.size), jnp.float32)

    def shapes(self) -> LayeredCPPN:
        return jax.eval_shape(self._draw, jax.random.key(0))

    def _draw(self, key: Any) -> LayeredCPPN:
        return LayeredCPPN.draw(key, Architecture.parse(self.architecture))

    def init(self, arrays: dict[str, Any], key: Any) -> Trained:
        return start(arrays["known"] if "known" in arrays else self._draw(key))

    def step(self, arrays: dict[str, Any], state: Any, t: Any) -> tuple[Any, dict[str, Any]]:
        # Stages of equal length; without a curriculum all are the picture itself.
        share = t.astype(jnp.float32) / arrays["steps"].astype(jnp.float32)
        stage = jnp.minimum((share * STAGES).astype(jnp.int32), STAGES - 1)
        target = arrays["stages"][stage]
        value, gradient = jax.value_and_grad(self.error)(state.model, target)
        # The gradient's direction only, as the twins of published pictures were trained.
        length = jnp.sqrt(sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(gradient)) + 1e-20)
        gradient = jax.tree.map(lambda leaf: leaf / length, gradient)
        state = descend(
            state, value, gradient, t, rate=arrays["rate"], decay=jnp.float32(0),
            running=t < arrays["steps"],
        )  # fmt: skip
        return state, {"loss": value}

    def error(self, model: Any, target: Float[Array, "pixel 3"]) -> Float[Array, ""]:
        return jnp.mean((model(self.pixels) - target) ** 2)

    def evaluate(self, arrays: dict[str, Any], state: Any) -> dict[str, Any]:
        return {"error": self.error(state.model, arrays["stages"][-1])}


@dataclass(frozen=True)
class PictureLearner(Learner):
    """A network that draws one picture of a set, in one of four ways.

    `descent` trains it from random weights, `curriculum` the same along the pictures of its
    ancestors, `evolved` takes the network that evolution drew it with. Where evolution left
    nothing but zeros on both sides of a neuron no gradient ever reaches it; `awake` takes
    evolution's network with fresh weights into such neurons, which draws exactly the same. After
    another learner (`begin`) it goes on from that one's weights, and may be asked for a `sibling`:
    the picture turned about its diagonal, with other colours, or half of it with half of the next
    picture.
    """

    version: ClassVar[int] = 1

    pictures: PictureSet = field(default_factory=PictureSet)
    number: int = 0
    way: Literal["descent", "curriculum", "evolved", "awake"] = "descent"
    sibling: Literal["", "turned", "recoloured", "recombined"] = ""
    begin: PictureLearner | None = None
    seed: int = 0
    training_steps: int = 2_000
    learning_rate: float = 3e-3
    evaluation_every: int = 100

    @property
    def steps(self) -> int:
        return 10 if self.still else self.training_steps

    @property
    def still(self) -> bool:
        """Whether nothing is trained: an evolved network, as it is."""
        return self.way in ("evolved", "awake") and self.begin is None

    @property
    def evaluate_every(self) -> int:
        return min(self.steps, self.evaluation_every)

    @property
    def init_seed(self) -> int:
        return self.seed

    @property
    def precision(self) -> str:
        return "float32"  # pictures are compared to a few thousandths

    @property
    def size(self) -> int:
        shapes = Architecture.parse(self.pictures.architecture).shapes
        return sum(rows * columns for rows, columns in shapes)

    def check(self) -> None:
        self.pictures.check()
        for name, value, known in (("way", self.way, WAYS), ("sibling", self.sibling, SIBLINGS)):
            if value not in known:
                raise unknown(name, value, known)
        self.pictures.check_number(self.number)
        at_least(self, training_steps=1, evaluation_every=1)
        rates(self, "learning_rate")
        if (
            self.begin is not None
            and self.begin.pictures.architecture != self.pictures.architecture
        ):
            raise InvalidRequest("a network can only go on in the architecture it has")

    def upstream(self) -> dict[str, Learner]:
        return {} if self.begin is None else {"begin": self.begin}

    def materials(self) -> dict[str, Material]:
        return {"pictures": self.pictures}

    def program(self, precision: str = "float32") -> PictureProgram:
        return PictureProgram(self.pictures.architecture, self.pictures.size)

    def prepare(self, given: Mapping[str, Tensors]) -> Arrays:
        pictures = given["pictures"]
        target = self.target(pictures)
        stages = np.broadcast_to(target, (STAGES, *target.shape))
        if self.way == "curriculum" and not self.sibling:
            stages = pictures["path"][self.number]
        member: dict[str, Any] = {
            "stages": np.ascontiguousarray(stages, np.float32),
            "rate": np.float32(0.0 if self.still else self.learning_rate),
            "steps": np.int32(self.steps),
        }
        first: dict[str, Any] = {}
        if self.begin is not None:
            first["known"] = unnamed(given["begin"], self.program().shapes())
        elif self.still:
            matrices = [pictures[f"matrix{n}"][self.number] for n in range(len(self._shapes()))]
            if self.way == "awake":
                matrices = woken(matrices, self._fresh())
            drawn = LayeredCPPN.of(Architecture.parse(self.pictures.architecture), matrices)
            first["known"] = jax.tree.map(np.asarray, drawn)
        return Arrays(member=member, first=first)

    def _fresh(self) -> list[Float[np.ndarray, "in out"]]:
        key = key_at(stream(self.seed, "wake"), 0)
        return LayeredCPPN.draw(key, Architecture.parse(self.pictures.architecture)).matrices()

    def _shapes(self) -> tuple[tuple[int, int], ...]:
        return Architecture.parse(self.pictures.architecture).shapes

    def target(self, pictures: Tensors) -> Float[np.ndarray, "pixel 3"]:
        """What is to be drawn."""
        side = self.pictures.size
        own = pictures["target"][self.number].reshape(side, side, 3)
        if self.sibling == "turned":
            own = np.swapaxes(own, 0, 1)
        elif self.sibling == "recoloured":
            own = np.roll(own, 1, axis=-1)
        elif self.sibling == "recombined":
            other = pictures["target"][(self.number + 1) % self.pictures.count]
            own = own.copy()
            own[:, side // 2 :] = other.reshape(side, side, 3)[:, side // 2 :]
        return own.reshape(-1, 3)

    def weights(self, state: Trained) -> Tensors:
        return named(state.model)

    def subject(self, weights: Tensors, given: Mapping[str, Tensors] | None = None) -> Subject:
        from recombine.instruments.picture_fracture import PictureSubject

        if given is None:
            given = {"pictures": self.pictures.make()}
        network = jax.tree.map(jnp.asarray, unnamed(weights, self.program().shapes()))
        side = self.pictures.size
        target = self.target(given["pictures"]).reshape(side, side, 3)
        return PictureSubject(network, weights, target, self.seed)


def woken(
    matrices: Sequence[Float[np.ndarray, "in out"]], fresh: Sequence[Float[np.ndarray, "in out"]]
) -> list[Float[np.ndarray, "in out"]]:
    """The matrices with fresh weights into idle neurons: those with zeros on both sides.

    What leads from them to any other neuron stays at zero, so that the network answers as before;
    but it has a gradient now, since they say something.

    >>> first, last = np.array([[1.0, 0.0]]), np.array([[1.0], [0.0]])
    >>> [one.tolist() for one in woken([first, last], [np.full((1, 2), 0.5), last])]
    [[[1.0, 0.5]], [[1.0], [0.0]]]
    """
    found = []
    for into, out_of, new in zip(matrices[:-1], matrices[1:], fresh[:-1], strict=True):
        idle = (into == 0).all(axis=0) & (out_of == 0).all(axis=1)
        found.append(np.where(idle, new, into))
    return [*found, matrices[-1]]
