"""Networks written down instead of trained: a teacher as the weights of an ordinary MLP.

W(z)^T x = sum_i x_i w_ih(z), and each w_ih is linear in the task z: a teacher of any number of
modules needs only (inputs x hidden units) products, each the difference of two squares, which
ReLU units interpolate. Hence O(1/sqrt(eps) + M) units reach every tolerance eps (Redhardt, Akram
and Schug, "Scaling can lead to compositional generalization", 2025).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, ClassVar, Literal, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from recombine.checks import at_least
from recombine.combinations import Slots, Space
from recombine.encodings.linear import Identity, Orthogonal, Tokens
from recombine.encodings.nonlinear import IntervalShuffle
from recombine.errors import InvalidRequest, unknown
from recombine.families.additive import Additive
from recombine.families.hyperteacher import Hyperteacher
from recombine.models._circuits import (
    CHORDS_OF_A_TOOTH,
    Forms,
    Squares,
    beside,
    chord_units,
    look_up,
    polarised,
    product_weights,
    square_by_sawtooth,
    square_by_segments,
    themselves,
)
from recombine.models._model import Model, Setting
from recombine.models.layers import Linear
from recombine.models.mlp import FirstLayer, MLPModel

METHODS = ("segments", "depth")
DISCRETE = (0.0, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)  # every weight a module can have


@dataclass(frozen=True)
class Constructed(Model):
    """A spec: the teacher itself, written into hidden layers of the given `widths`.

    Get one from `constructed_for`, which knows the widths a family needs. Squares are taken in
    one layer on `segments` pieces, or by method "depth" in `squarings` layers. With `random` the
    same shapes are drawn as any MLP's: the control.

    >>> Constructed().parameters(code=16, inputs=16, outputs=16)
    402480
    """

    pads: ClassVar[bool] = False
    # Small differences of squares carry the answer; bfloat16 has three digits.
    precision: ClassVar[str] = "float32"

    widths: tuple[int, ...] = (8208, 16)
    method: Literal["segments", "depth"] = "segments"
    segments: int = 16
    squarings: int = 3
    random: bool = False

    def __post_init__(self):
        if self.method not in METHODS:
            raise unknown("method", self.method, METHODS)
        at_least(self, segments=2, squarings=1)
        if not self.widths or min(self.widths) < 1:
            raise InvalidRequest(
                f"widths={self.widths}: expected the units of each hidden layer; use "
                "constructed_for(family, encoding)"
            )

    @property
    def layers(self) -> int:
        return len(self.widths)

    @property
    def units(self) -> int:
        """Hidden neurons."""
        return sum(self.widths)

    @property
    def resolution(self) -> int:
        """Into how many pieces of [-2, 2] the square is cut."""
        return self.segments if self.method == "segments" else 2 ** (self.squarings + 1)

    def parameters(self, code: int, inputs: int, outputs: int) -> int:
        sizes = (code + inputs, *self.widths, outputs)
        return sum((ins + 1) * outs for ins, outs in pairwise(sizes))

    def bound(self, setting: Setting) -> Float[Array, ""]:
        """How far an answer can be off, for any task and input in [-1, 1], known in advance.

        A product of range R is off by at most R / n^2, which the ReLU and the sums hand on; what
        float32 may add to that is estimated, generously.
        """
        return amplification(setting) * (1 / self.resolution**2 + roundoff(setting))

    def draw(
        self, key: PRNGKeyArray, *, code: int, inputs: int, outputs: int,
        setting: Setting | None = None,
    ) -> MLPModel:  # fmt: skip
        if self.random:
            return self._at_random(key, code, inputs, outputs)
        if setting is None:
            raise InvalidRequest(
                "a constructed network is written for a family: draw it with setting=Setting("
                "family, encoding, content, code), or use random=True for its shapes alone"
            )
        self.check(setting.family, setting.encoding)
        with jax.default_matmul_precision("highest"):
            write = _additive if isinstance(setting.family, Additive) else _hyperteacher
            layers = write(self, setting)
        first, *hidden, output = layers
        return MLPModel(
            FirstLayer(
                task=Linear(first.matrix[:code], None),
                input=Linear(first.matrix[code:], first.offset),
            ),
            tuple(Linear(layer.matrix, layer.offset) for layer in hidden),
            Linear(output.matrix, output.offset),
        )

    def check(self, family: Any, encoding: Any) -> None:
        """Refuses a family or encoding this spec was not made for."""
        needed = _widths(self, family, encoding)
        if needed != self.widths:
            raise InvalidRequest(
                f"this construction has layers of {self.widths} units, but "
                f"{type(family).__name__} told by {type(encoding).__name__} needs {needed}: use "
                "constructed_for(family, encoding)"
            )

    def _at_random(self, key: PRNGKeyArray, code: int, inputs: int, outputs: int) -> MLPModel:
        keys = jax.random.split(key, self.layers + 2)
        fan_in = code + inputs
        first = FirstLayer(
            task=Linear.draw(keys[0], code, self.widths[0], bias=False, fan_in=fan_in),
            input=Linear.draw(keys[1], inputs, self.widths[0], fan_in=fan_in),
        )
        shapes = zip(keys[2:-1], self.widths[:-1], self.widths[1:], strict=True)
        hidden = tuple(Linear.draw(k, ins, outs) for k, ins, outs in shapes)
        return MLPModel(first, hidden, Linear.draw(keys[-1], self.widths[-1], outputs))

    def _squares(self, u: Forms, carried: Forms) -> Squares:
        if self.method == "segments":
            return square_by_segments(u, carried, self.segments)
        return square_by_sawtooth(u, carried, self.squarings)


def constructed_for(
    family: Any, encoding: Any = None, *, method: Literal["segments", "depth"] = "segments",
    segments: int = 16, squarings: int = 3, random: bool = False,
) -> Constructed:  # fmt: skip
    """The spec of the network that computes a family's teacher, told by an encoding.

    >>> constructed_for(Hyperteacher(modules=256, active=3), segments=4).widths
    (2064, 16)
    """
    spec = Constructed(method=method, segments=segments, squarings=squarings, random=random)
    return replace(spec, widths=_widths(spec, family, encoding or Identity()))


def _widths(spec: Constructed, family: Any, encoding: Any) -> tuple[int, ...]:
    told = table_units(family, encoding)
    if isinstance(family, Additive):
        squares, carried, last = 2 * family.features * family.output_units, 0, ()
        first = (family.features + (told or family.modules),)
    else:
        squares, carried = 2 * family.input_units * family.hidden[0], family.hidden[0]
        first, last = ((family.input_units + told,) if told else ()), family.hidden
    if spec.method == "segments":
        each = (chord_units(spec.segments),)
    else:
        each = (chord_units(CHORDS_OF_A_TOOTH), *(3,) * (spec.squarings - 1))
    return (*first, *(squares * units + carried for units in each), *last)


def table_units(family: Any, encoding: Any) -> int:
    """Units a layer needs to look the task up from its code; 0 where the code is affine in it.

    Refuses what cannot be written down at all.
    """
    if not isinstance(family, Hyperteacher | Additive):
        raise InvalidRequest(
            f"no construction is known for {type(family).__name__}: use Hyperteacher or Additive"
        )
    if isinstance(family, Hyperteacher) and len(family.hidden) != 1:
        raise InvalidRequest(
            f"the construction is for teachers of one hidden layer, got hidden={family.hidden}: "
            f"use hidden=({family.hidden[0]},)"
        )
    if isinstance(encoding, Identity | Orthogonal):
        return 0
    if isinstance(encoding, Tokens | IntervalShuffle):
        if family.weights == "continuous":
            raise InvalidRequest(
                f"{type(encoding).__name__} cuts weights into tenths, and continuous weights "
                "cannot be read back continuously: use weights='discrete' or the identity encoding"
            )
        # Weights of 0 or 1 have two codes, and two points make a line.
        table = isinstance(encoding, IntervalShuffle) and family.weights == "discrete"
        return family.modules * (len(DISCRETE) - 1) if table else 0
    raise InvalidRequest(
        f"no exact decoding of {type(encoding).__name__} is known: use Identity, Orthogonal, "
        "Tokens or IntervalShuffle"
    )


class Told(NamedTuple):
    """How z is read from the code: through a layer of units, or straight."""

    units: Forms | None
    latents: Forms  # over the units, or over the code


def _told(setting: Setting) -> Told:
    family, encoding, code = setting.family, setting.encoding, setting.code
    modules = family.modules
    if isinstance(encoding, Orthogonal):
        return Told(None, Forms(code["rotation"][:modules, :modules], jnp.zeros(modules)))
    if isinstance(encoding, Tokens):
        # A sentence alternates names and weights, tenths above the zero's token. The constant name
        # before each weight takes the zero off again: of many modules, a bias would have to undo
        # a large sum, and rounding would show.
        zero = code["zero_weight"][:modules] / code["names"][:modules]
        words = jnp.stack([-0.1 * zero, jnp.full(modules, 0.1)], axis=1)
        matrix = (words[:, :, None] * jnp.eye(modules)[:, None, :]).reshape(-1, modules)
        return Told(None, Forms(matrix, jnp.zeros(modules)))
    if isinstance(encoding, IntervalShuffle):
        values = jnp.asarray(DISCRETE if family.weights == "discrete" else (0.0, 1.0))
        real = {"permutation": jnp.asarray(code["permutation"]), "real": jnp.ones(values.shape)}
        codes = encoding.encode(real, values, _no_examples)
        if family.weights == "discrete":
            return Told(*look_up(codes, values, modules))
        slope = 1 / (codes[1] - codes[0])
        return Told(None, Forms(jnp.eye(modules) * slope, jnp.tile(-codes[0] * slope, modules)))
    return Told(None, themselves(modules))


def roundoff(setting: Setting) -> float:
    """What float32 may add to the error, as a share of the amplification C.

    Measured, then nearly doubled. It grows with what has to cancel: a sentence of tokens counts
    up to M + 11, and the lines through shuffled intervals are steep, also where z is zero.
    """
    harder = 1.0
    if isinstance(setting.encoding, Tokens):
        harder += setting.family.modules / 16
    elif isinstance(setting.encoding, IntervalShuffle):
        harder = 5 + setting.family.modules / 32
    return 4 * harder * float(jnp.finfo(jnp.float32).eps)


def _no_examples(_: int) -> Any:
    raise InvalidRequest("a task told by examples cannot be looked up")


def _hyperteacher(spec: Constructed, setting: Setting) -> list[Forms]:
    family, content, told = setting.family, setting.content, _told(setting)
    modules, ins, hidden = family.modules, family.input_units, family.hidden[0]
    theta = content["theta0"][:modules] * content["shrink"]
    beta = content["beta0"][:modules] * content["shrink"]
    x, layers = themselves(ins), []
    if told.units is not None:
        layers.append(beside(told.units, x.shifted(1.0)))  # x >= -1, so x + 1 passes the ReLU
        x = x.shifted(-1.0)
    x, z = x.among(told.latents.matrix.shape[0], 0), told.latents.among(0, ins)
    reach = ranges(theta, family.space)
    share = z.into((theta / jnp.where(reach > 0, reach, 1.0)).reshape(modules, -1))
    # Biases and weights are never negative: b(z) passes every ReLU on its way.
    squares = spec._squares(polarised(x.repeated(hidden), share), z.into(beta))
    gains = (reach[:, :, None] * jnp.eye(hidden)).reshape(-1, hidden)
    total = squares.sums(product_weights(gains), jnp.eye(hidden))
    omega = content["omega"]
    return [*layers, *squares.layers, total, Forms(omega, jnp.zeros(omega.shape[1]))]


def _additive(spec: Constructed, setting: Setting) -> list[Forms]:
    family, content, told = setting.family, setting.content, _told(setting)
    modules, features, outs = family.modules, family.features, family.output_units
    omega = content["omega"][:modules] * content["shrink"]
    # Below: the features, and z as it is or as its table's units. Neither is ever negative.
    below = told.latents if told.units is None else told.units
    latents = themselves(modules) if told.units is None else told.latents
    first = beside(below, Forms(content["features"], content["bias"]))
    z = latents.among(0, features)
    height, reach = _feature_heights(content), ranges(omega, family.space)
    phi = Forms(jnp.diag(1 / jnp.where(height > 0, height, 1.0)), jnp.zeros(features))
    phi = phi.among(below.width, 0).repeated(outs)
    share = z.into((omega / jnp.where(reach > 0, reach, 1.0)).reshape(modules, -1))
    nothing = Forms(jnp.zeros((below.width + features, 0)), jnp.zeros(0))
    squares = spec._squares(polarised(phi, share), nothing)
    gains = ((height[:, None] * reach)[:, :, None] * jnp.eye(outs)).reshape(-1, outs)
    return [first, *squares.layers, squares.sums(product_weights(gains), jnp.zeros((0, outs)))]


def _feature_heights(content: dict[str, Array]) -> Float[Array, "feature"]:
    return jax.nn.relu(jnp.sum(jnp.abs(content["features"]), axis=0) + content["bias"])


def ranges(bank: Float[Array, "module *shape"], space: Space) -> Float[Array, "*shape"]:
    """The largest size that sum_m z_m bank_m can have in each entry, over all tasks of a space."""
    sizes = jnp.abs(bank)
    if isinstance(space, Slots):
        starts = zip(space.starts.tolist(), space.levels, strict=True)
        largest = [jnp.max(sizes[start : start + count], axis=0) for start, count in starts]
        return jnp.sum(jnp.stack(largest), axis=0)
    return jnp.sum(jnp.sort(sizes, axis=0)[-space.active :], axis=0)


def amplification(setting: Setting) -> Float[Array, ""]:
    """C of the error bound C / n^2: what all products together can amount to in one output."""
    family, content = setting.family, setting.content
    with jax.default_matmul_precision("highest"):
        if isinstance(family, Additive):
            bank = content["omega"][: family.modules] * content["shrink"]
            return jnp.max(_feature_heights(content) @ ranges(bank, family.space))
        reach = ranges(content["theta0"][: family.modules] * content["shrink"], family.space)
        return jnp.max(jnp.sum(reach, axis=0) @ jnp.abs(content["omega"]))
