"""Networks that draw a picture, and evolution that is told to: what they begin with and reach."""

from __future__ import annotations

from dataclasses import replace

import jax
import numpy as np
import pytest

from recombine.cppn import Architecture, fits, picture, stencil_genome
from recombine.cppn.graph import wiring
from recombine.errors import InvalidRequest
from recombine.lab.engine import Population
from recombine.learners import check_learner
from recombine.learners.check import stand_ins
from recombine.learners.directed import DirectedPicture
from recombine.learners.picture_set import ROOM, STAGES, PictureApproach, PictureSet
from recombine.learners.pictures import PictureLearner, PictureProgram, woken

SMALL = PictureSet(size=16)
EVOLVED = PictureSet("evolved", 2, 16, evaluations=600)
LEARNER = PictureLearner(SMALL, training_steps=60, evaluation_every=20)
GENOME = b"""<genome><nodes>
<node type="in" label="x"><marking branch="0" id="1"/><activation>identity(x)</activation></node>
<node type="in" label="bias"><marking branch="0" id="2"/><activation>identity(x)</activation></node>
<node type="out" label="ink"><marking branch="0" id="3"/><activation>gaussian(x)</activation></node>
</nodes><links>
<link><source branch="0" id="1"/><target branch="0" id="3"/><weight>2.5</weight></link>
</links></genome>"""


@pytest.fixture(scope="module")
def evolved():
    return EVOLVED.make()


@pytest.mark.slow
def test_descent_keeps_the_contract_of_a_learner():
    check_learner(LEARNER, mate=replace(LEARNER, number=1))


def test_what_goes_on_from_another_network_keeps_the_contract():
    check_learner(replace(LEARNER, begin=LEARNER, sibling="turned"))


def test_directed_evolution_keeps_the_contract():
    check_learner(DirectedPicture(SMALL, evaluations=100))


def test_the_network_of_evolution_draws_exactly_what_its_genome_does(evolved):
    """The genome as a graph is the oracle; the learner only has matrices."""
    lines = EVOLVED.lines()
    for number in range(EVOLVED.count):
        learner = PictureLearner(EVOLVED, number, "evolved")
        given = {"pictures": evolved}
        known = learner.prepare(given).first["known"]
        subject = learner.subject(learner.weights(learner.program().init({"known": known}, None)),
                                  given)  # fmt: skip
        wanted = picture(lines[number][-1], EVOLVED.size)
        np.testing.assert_allclose(subject.drawn(), wanted, atol=2e-4)
        np.testing.assert_allclose(subject.target, wanted, atol=1e-6)


def test_a_set_is_the_same_each_time_and_another_for_another_seed(evolved):
    again, other = EVOLVED.make(), replace(EVOLVED, seed=1).make()
    assert all(np.array_equal(evolved[name], again[name]) for name in evolved)
    assert not np.array_equal(evolved["target"], other["target"])


def test_unselected_genomes_are_of_the_size_of_the_elites_and_no_elites():
    chance = replace(EVOLVED, source="unselected")
    elites, walks = EVOLVED.lines(), chance.lines()
    for line, walk in zip(elites, walks, strict=True):
        assert len(walk) == len(line)
        assert wiring(walk[-1]).hidden == wiring(line[-1]).hidden >= 4
        assert walk[-1] != line[-1] and walk[0] != line[0]
        assert picture(walk[-1], 32).std(axis=(0, 1)).max() >= 0.1
    assert chance.lines() == walks
    assert chance.make()["target"].shape == EVOLVED.make()["target"].shape
    assert replace(chance, seed=1).lines() != walks


def test_sets_and_evolutions_towards_their_pictures_share_one_evolution(monkeypatch):
    """Made from what they need they are, to the last bit, what each makes by itself."""
    wanted = (EVOLVED, replace(EVOLVED, source="unselected", size=8), replace(EVOLVED, size=12),
              *(PictureApproach(EVOLVED, n, evaluations=100) for n in range(2)))  # fmt: skip
    alone = [one.make() for one in wanted]
    needs = [one.needs() for one in wanted]
    assert all(need == needs[0] for need in needs) and not SMALL.needs()
    given = {name: need.make() for name, need in needs[0].items()}
    monkeypatch.setattr("recombine.learners.picture_set.evolve", None)
    for one, own in zip(wanted, alone, strict=True):
        shared = one.make_from(given)
        assert shared.keys() == own.keys()
        assert all(np.array_equal(shared[name], own[name]) for name in own)


def test_stencils_are_symmetric_by_making_and_all_fit():
    found = replace(SMALL, count=4).make()["target"].reshape(4, 16, 16, 3)
    np.testing.assert_allclose(found, found[:, :, ::-1], atol=1e-6)
    # The first stencil is too deep for the architecture and is passed over.
    assert fits([stencil_genome(0, details=0)]).depth > Architecture.parse(ROOM).depth


def test_descent_comes_nearer_and_an_evolved_network_stays():
    learners = [LEARNER, replace(LEARNER, way="evolved")]
    ends = []
    for learner in learners:
        population = Population([learner], [learner.prepare(stand_ins(learner))], "float32")
        population.compile()
        population.evaluate()
        while population.running():
            population.chunk(learner.steps)
        population.evaluate()
        ends.append([float(v[0]) for v in population.curves.evaluations["error"]])
    assert ends[0][-1] < 0.5 * ends[0][0]
    assert max(ends[1]) < 1e-8 and learners[1].steps == 10


def test_a_curriculum_goes_along_the_ancestors_and_ends_at_the_picture(evolved):
    given = {"pictures": evolved}
    plain, along = (
        PictureLearner(EVOLVED, 0, way).prepare(given).member["stages"]
        for way in ("descent", "curriculum")
    )
    np.testing.assert_array_equal(along[-1], plain[-1])
    assert plain.shape == along.shape == (STAGES, 256, 3)
    assert all(np.array_equal(one, plain[0]) for one in plain)
    assert not np.array_equal(along[0], along[-1])
    # Each stage has a quarter of the steps.
    program = PictureProgram("1;gaussian:2,sin:2", 16)
    arrays = {"stages": np.stack([np.full((256, 3), n / 4) for n in range(4)]).astype(np.float32),
              "rate": np.float32(0), "steps": np.int32(40)}  # fmt: skip
    state = program.init(arrays, jax.random.key(0))
    drawn = np.asarray(state.model(program.pixels))
    step = jax.jit(program.step)
    for t, stage in ((0, 0), (9, 0), (10, 1), (39, 3)):
        _, metrics = step(arrays, state, jax.numpy.int32(t))
        np.testing.assert_allclose(metrics["loss"], np.mean((drawn - stage / 4) ** 2), rtol=1e-4)


def test_siblings_are_turned_recoloured_or_put_together():
    given = SMALL.make()
    first, second = given["target"].reshape(2, 16, 16, 3)

    def target(sibling, number=0):
        learner = PictureLearner(SMALL, number, sibling=sibling)
        return learner.target(given).reshape(16, 16, 3)

    np.testing.assert_array_equal(target("turned"), np.transpose(first, (1, 0, 2)))
    np.testing.assert_array_equal(target("recoloured"), first[..., [2, 0, 1]])
    np.testing.assert_array_equal(target("recombined")[:, :8], first[:, :8])
    np.testing.assert_array_equal(target("recombined")[:, 8:], second[:, 8:])
    np.testing.assert_array_equal(target("recombined", 1)[:, 8:], first[:, 8:])
    np.testing.assert_array_equal(given["target"][0].reshape(16, 16, 3), first)


def start(learner, given):
    prepared = learner.prepare(given)
    arrays = jax.tree.map(jax.numpy.asarray, {**prepared.merged(), **prepared.first})
    return arrays, learner.program().init(arrays, jax.random.key(0))


def test_a_network_that_is_woken_draws_the_same_to_the_last_bit(evolved):
    """Fresh weights go into neurons that nobody hears, and none leads out of them."""
    for number in range(EVOLVED.count):
        asleep, awake = (start(PictureLearner(EVOLVED, number, way), {"pictures": evolved})[1].model
                         for way in ("evolved", "awake"))  # fmt: skip
        pixels = PictureProgram(EVOLVED.architecture, EVOLVED.size).pixels
        np.testing.assert_array_equal(asleep(pixels), awake(pixels))
        idle = 0
        for old, new in zip(asleep.matrices(), awake.matrices(), strict=True):
            changed = (old != new).any(axis=0)
            assert not old[:, changed].any() and new[:, changed].all()
            idle += changed.sum()
        assert idle > 100
        assert np.mean((awake(pixels) - evolved["target"][number]) ** 2) < 1e-8


def test_gradients_reach_neurons_that_are_awake_and_none_that_sleep(evolved):
    moved = []
    for way in ("evolved", "awake"):
        learner = PictureLearner(EVOLVED, 0, way)
        weights = learner.weights(start(learner, {"pictures": evolved})[1])
        given = {"pictures": evolved, "begin": weights}
        next_one = replace(learner, begin=learner, sibling="turned", training_steps=20)
        arrays, state = start(next_one, given)
        first, step = state.model.flat(), jax.jit(next_one.program().step)
        for t in range(20):
            state, _ = step(arrays, state, jax.numpy.int32(t))
        moved.append(np.mean(np.asarray(state.model.flat() != first)))
    assert moved[0] < 0.5 and moved[1] > 0.9


def test_a_neuron_with_weights_on_either_side_is_not_idle():
    """A picture without colours has a hue that hears nothing and is heard."""
    rng = np.random.default_rng(0)
    matrices = [rng.normal(size=shape) for shape in ((4, 3), (3, 3), (3, 3))]
    matrices[0][:, 0] = matrices[1][1] = 0.0
    fresh = [rng.normal(size=one.shape) for one in matrices]
    for old, new in zip(matrices, woken(matrices, fresh), strict=True):
        np.testing.assert_array_equal(old, new)
    matrices[0][:, 1] = 0.0
    found = woken(matrices, fresh)
    np.testing.assert_array_equal(found[0][:, 1], fresh[0][:, 1])
    np.testing.assert_array_equal(found[0][:, [0, 2]], matrices[0][:, [0, 2]])


def test_evolution_towards_a_picture_never_gets_worse_and_says_how_near_it_came():
    request = PictureApproach(SMALL, 1, evaluations=300)
    found = request.make()
    assert np.all(np.diff(found["curve"]) <= 0)
    target = SMALL.make()["target"][1].reshape(16, 16, 3)
    assert found["curve"][-1] == pytest.approx(np.mean((found["drawn"] - target) ** 2), rel=1e-4)
    learner = DirectedPicture(SMALL, 1, evaluations=300)
    assert learner.materials() == {"approach": request}
    arrays = learner.prepare({"approach": found}).merged()
    state = learner.program().init(arrays, None)
    for t in range(learner.steps):
        state, _ = learner.program().step(arrays, state, t)
    assert float(learner.program().evaluate(arrays, state)["error"]) == found["curve"][-1]
    np.testing.assert_array_equal(learner.subject(learner.weights(state)).answer(), found["drawn"])


def test_a_genome_of_ones_own_is_named_by_its_file(tmp_path):
    file = tmp_path / "bell.xml"
    file.write_bytes(GENOME)
    given = PictureSet("archive", 1, 8, genomes=(str(file),))
    given.check()
    drawn = given.make()["target"][0].reshape(8, 8, 3)
    x = np.linspace(-1, 1, 8)
    bell = np.abs(2 * np.exp(-((2.5 * x) ** 2)) - 1)
    np.testing.assert_allclose(drawn, np.broadcast_to(bell[None, :, None], (8, 8, 3)), atol=1e-6)


def test_a_genome_that_is_not_here_says_what_to_type(tmp_path, monkeypatch):
    monkeypatch.delenv("RECOMBINE_DATA", raising=False)
    monkeypatch.setenv("RECOMBINE_CACHE", str(tmp_path))
    learner = PictureLearner(PictureSet("archive", 1, 8, genomes=("skull",)))
    with pytest.raises(InvalidRequest, match="recombine data get picbreeder"):
        learner.check()
    with pytest.raises(InvalidRequest, match="no genome in"):
        PictureSet("archive", 1, 8, genomes=("not/there.xml",)).check()
    other = tmp_path / "letter.txt"
    other.write_text("Dear all,")
    with pytest.raises(InvalidRequest, match="neither a zip archive nor XML"):
        PictureSet("archive", 1, 8, genomes=(str(other),)).check()


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: PictureSet("evolvd"), "did you mean 'evolved'"),  # type: ignore[arg-type]
        (lambda: PictureSet("archive", 2, genomes=("skull",)), "1 genomes for count=2"),
        (lambda: PictureSet(size=4), "of 4 pixels a side"),
        (lambda: PictureLearner(SMALL, 2).check(), "number=2: expected 0 to 1"),
        (lambda: PictureLearner(SMALL, 0.5).check(), "number=0.5: expected 0 to 1, a whole"),  # type: ignore[arg-type]
        (lambda: DirectedPicture(SMALL, 0.5).check(), "number=0.5"),  # type: ignore[arg-type]
        (lambda: PictureLearner(SMALL, way="descend").check(), "descent"),  # type: ignore[arg-type]
        (lambda: PictureLearner(PictureSet(architecture="8;cache")).check(), "not an architecture"),
        (lambda: replace(LEARNER, begin=PictureLearner(PictureSet(architecture="1;sin:2"))).check(),
         "architecture it has"),
        (lambda: PictureApproach(SMALL, evaluations=10), "10 evaluations"),
        (lambda: DirectedPicture(SMALL, evaluations=5).check(), "5 evaluations"),
        (lambda: replace(LEARNER, learning_rate=float("nan")).check(), "learning_rate=nan"),
        (lambda: replace(LEARNER, training_steps=-1).check(), "training_steps=-1"),
        (lambda: replace(LEARNER, evaluation_every=0).check(), "evaluation_every=0"),
        (lambda: DirectedPicture(SMALL, 7).check(), "number=7"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_with_what_could(make, words):
    with pytest.raises(InvalidRequest, match=words):
        make()


def test_the_archive_has_the_architectures_that_the_study_names():
    import os

    from recombine.studies.fracture import ARCHITECTURES

    if not os.environ.get("RECOMBINE_DATA"):
        pytest.skip("RECOMBINE_DATA names no folder with the set picbreeder")
    for name, shape in ARCHITECTURES.items():
        made = PictureSet("archive", 1, 16, architecture=shape, genomes=(name,))
        assert str(fits([line[-1] for line in made.lines()])) == shape
        assert made.make()["target"].shape == (1, 256, 3)
