"""What is asked about scenes of objects: swapped bindings, whole reports, and visual search."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from recombine.families.objects import SEARCHES, Asked, Objects, Scene, corners

Trained = Bool[Array, "colour shape"]


def draw(
    family: Objects, task: str, trained: Trained, key: PRNGKeyArray, count: int, *,
    sizes: Int[Array, "size"], unseen: bool = False, kind: int | Int[Array, ""] | None = None,
) -> Asked:  # fmt: skip
    """Behind `Objects.draw`."""
    scene_key, picture_key = jax.random.split(key)
    if task == "swap":
        scene, question, answer = swap(family, trained, scene_key, count, sizes, unseen)
    elif task == "report":
        scene = report(family, trained, scene_key, count, sizes, unseen)
        question = jnp.zeros((count, family.question_size))
        answer = jnp.zeros(count, bool)
    else:
        scene, question, answer = search(family, trained, scene_key, count, sizes, unseen, kind)
    return Asked(family.render(scene, picture_key), question, answer, scene)


def among(
    key: PRNGKeyArray, allowed: Bool[Array, "*batch option"], count: int
) -> Int[Array, "*batch {count}"]:
    """`count` draws, each uniform among the allowed options of its row."""
    so_far = jnp.cumsum(allowed, axis=-1)
    total = so_far[..., -1:]
    drawn = jax.random.uniform(key, (*allowed.shape[:-1], count)) * total
    drawn = jnp.minimum(jnp.floor(drawn).astype(so_far.dtype), total - 1)
    found = jnp.sum(so_far[..., None, :] <= drawn[..., None], axis=-1)
    return jnp.clip(found, 0, allowed.shape[-1] - 1).astype(jnp.int32)


def _sizes(key: PRNGKeyArray, sizes: Int[Array, "size"], count: int) -> Int[Array, "{count} 1"]:
    return sizes[jax.random.randint(key, (count, 1), 0, sizes.shape[0])]


def _four(
    family: Objects, trained: Trained, key: PRNGKeyArray, count: int, unseen: bool
) -> tuple[Array, Array, Array, Array]:
    """Two colours a, b and two shapes x, y: (a, x) is asked about, the others are trained pairs."""
    fours = jnp.asarray(corners(family.colours, family.shapes))
    a, b, x, y = fours.T
    allowed = trained[a, y] & trained[b, x] & trained[b, y] & (trained[a, x] != unseen)
    chosen = fours[among(key, allowed, count)]
    return chosen[:, 0], chosen[:, 1], chosen[:, 2], chosen[:, 3]


def _question(
    family: Objects, colour: Int[Array, "item"], shape: Int[Array, "item"]
) -> Float[Array, "item feature"]:
    hot = jax.nn.one_hot(colour, family.colours), jax.nn.one_hot(shape, family.shapes)
    return jnp.concatenate(hot, axis=-1)


def swap(
    family: Objects, trained: Trained, key: PRNGKeyArray, count: int, sizes: Int[Array, "size"],
    unseen: bool,
) -> tuple[Scene, Array, Array]:  # fmt: skip
    """Pairs of scenes with the same features, bound differently: item i and item i + count / 2.

    Is (a, x) there? Yes in {(a, x), (b, y)} and no in {(a, y), (b, x)}. Which colours there are,
    and which shapes where, is drawn without regard to the answer, so that who sees colours and
    shapes apart answers by chance.
    """
    four_key, other_key, size_key = jax.random.split(key, 3)
    half, more = count // 2, family.most_objects - 2
    a, b, x, y = _four(family, trained, four_key, half, unseen)
    colours, shapes = jnp.arange(family.colours), jnp.arange(family.shapes)
    on_colour = (colours == a[:, None]) | (colours == b[:, None])
    on_shape = (shapes == x[:, None]) | (shapes == y[:, None])
    allowed = trained & ~(on_colour[:, :, None] & on_shape[:, None, :])
    others = among(other_key, allowed.reshape(half, -1), more)
    colour = jnp.concatenate([a[:, None], b[:, None], others // family.shapes], axis=1)
    rest = others % family.shapes
    yes = jnp.concatenate([x[:, None], y[:, None], rest], axis=1)
    no = jnp.concatenate([y[:, None], x[:, None], rest], axis=1)
    there = jnp.arange(family.most_objects) < _sizes(size_key, sizes, half)
    scene = Scene(
        jnp.concatenate([colour, colour]), jnp.concatenate([yes, no]),
        jnp.concatenate([there, there]),
    )  # fmt: skip
    question = _question(family, a, x)
    return scene, jnp.concatenate([question, question]), jnp.arange(2 * half) < half


def report(
    family: Objects, trained: Trained, key: PRNGKeyArray, count: int, sizes: Int[Array, "size"],
    unseen: bool,
) -> Scene:  # fmt: skip
    """Scenes of different pairs; in an unseen one the first is held out and the others are not."""
    order_key, first_key, size_key = jax.random.split(key, 3)
    pairs, most = trained.reshape(-1), family.most_objects
    noise = jax.random.uniform(order_key, (count, pairs.shape[0]))
    order = jnp.argsort(jnp.where(pairs, noise, 2.0), axis=1).astype(jnp.int32)
    if unseen:
        first = among(first_key, jnp.broadcast_to(~pairs, noise.shape), 1)
        order = jnp.concatenate([first, order], axis=1)
    order = jnp.pad(order, [(0, 0), (0, max(0, most - order.shape[1]))])[:, :most]
    there = jnp.arange(most) < _sizes(size_key, sizes, count)
    return Scene(order // family.shapes, order % family.shapes, there)


def search(
    family: Objects, trained: Trained, key: PRNGKeyArray, count: int, sizes: Int[Array, "size"],
    unseen: bool, kind: int | Int[Array, ""] | None,
) -> tuple[Scene, Array, Array]:  # fmt: skip
    """Is the target (a, x) among n objects? Pairs of scenes, with it and without: item i and item
    i + count / 2.

    Conjunctive: (a, x) and (b, y) in the one are (a, y) and (b, x) in the other, among the same
    others, any of (a, y), (b, x) and (b, y). Both have as many objects of each colour and of each
    shape, so that who knows all these numbers and no binding answers by chance. Published: others
    are (a, y) or (b, x), each by lot, and without a target there are others only (Campbell et al.,
    2024); objects of colour a and objects of shape x then add up to n + 1 with it and to n without.
    Disjunctive: all others are (b, x), so that a colour is enough. Palette: the same with others of
    any colours but a, drawn one by one, so that colours repeat among many.
    """
    four_key, other_key, either_key, colour_key, size_key, kind_key = jax.random.split(key, 6)
    half, most = count // 2, family.most_objects
    a, b, x, y = (part[:, None] for part in _four(family, trained, four_key, half, unseen))
    if kind is None:
        kinds = jax.random.randint(kind_key, (half, 1), 0, len(SEARCHES))
    else:
        kinds = jnp.broadcast_to(kind, (half, 1))
    place = jnp.arange(most)
    # Of others in conjunctive search: 0 is (a, y), 1 is (b, x), 2 is (b, y).
    without = jnp.where(place < 2, place, jax.random.randint(other_key, (half, most), 0, 3))
    other = jnp.concatenate([jnp.where(place == 1, 2, without), without])
    either = jax.random.randint(either_key, (half, most), 0, 2)
    partners = trained.T[x[:, 0]] & (jnp.arange(family.colours) != a)
    mixed = among(colour_key, partners, most)
    there = place < _sizes(size_key, sizes, half)
    a, b, x, y, kinds, mixed, there, either = (
        jnp.concatenate([part, part]) for part in (a, b, x, y, kinds, mixed, there, either)
    )
    published = kinds == SEARCHES.index("published")
    bound = (kinds == SEARCHES.index("conjunctive")) | published
    other = jnp.where(published, either, other)
    by_colour = jnp.where(kinds == SEARCHES.index("palette"), mixed, b)
    colour = jnp.where(bound, jnp.where(other == 0, a, b), by_colour)
    shape = jnp.where(bound & (other != 1), y, x)
    answer = jnp.arange(2 * half) < half
    target = answer[:, None] & (place == 0)
    scene = Scene(jnp.where(target, a, colour), jnp.where(target, x, shape), there)
    return scene, _question(family, a[:, 0], x[:, 0]), answer
