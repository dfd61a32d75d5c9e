"""The whole reading, of generators with random weights and of one with a planted answer."""

from __future__ import annotations

import json
import shutil
from types import SimpleNamespace

import numpy as np
import pytest

from recombine.errors import InvalidRequest, NotApplicable, StoreError
from recombine.lab.files import read_json
from recombine.pictures import JudgeError, Sampling, family_named, load, read_pipeline
from recombine.pictures._optional import need
from recombine.pictures.shots import split

SMALL = Sampling(combinations=20, images=2, steps=3)


class Oracle:
    """A judge that goes by the pixels of a random image, and counts."""

    identity = "oracle"

    def __init__(self, breaks_at=None):
        self.asked, self.breaks_at = 0, breaks_at

    def __call__(self, image, family, values):
        self.asked += 1
        if self.asked == self.breaks_at:
            raise JudgeError("the judge has gone home")
        parity = int(np.asarray(image).sum()) % 2 == 0
        return dict.fromkeys(family.wanted(values), parity)


@pytest.fixture
def planted(torch):
    """Makes a generator whose features and successes are known by construction.

    Block b carries the concepts of a combination with noise[b](rank) on top; an image shows them
    if `shows(rank, generator)`, else nothing. Pixel m tells whether concept m is shown.
    """
    from PIL import Image

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            blocks = (torch.nn.Identity() for _ in range(8))
            self.transformer_blocks = torch.nn.ModuleList(blocks)
            self.scale = torch.nn.Parameter(torch.ones(1))

        def forward(self, hidden_states):
            for number, block in enumerate(self.transformer_blocks[: hidden_states.shape[1]]):
                block(hidden_states[:, [number]] * self.scale)

    class Pipeline:
        def __init__(self, family, noise, shows):
            self.family, self.noise, self.shows = family, noise, shows
            self.ranks = {family.prompt(int(rank)): int(rank) for rank in family.ranks()}
            fixed = torch.Generator().manual_seed(1)
            self.mix = torch.randn(family.space.modules, 24, generator=fixed)
            self.unet, self.made = Net(), 0

        def __call__(
            self, prompt, num_inference_steps, generator, output_type, callback_on_step_end
        ):
            self.made += 1
            rank = self.ranks[prompt]
            concepts = torch.tensor(self.family.space.indicator([rank])[0]).float()
            levels = torch.tensor([level(rank) for level in self.noise])[:, None]
            for step in range(num_inference_steps):
                noise = torch.randn(len(levels), 24, generator=generator)
                self.unet((concepts @ self.mix + levels * noise)[None])
                callback_on_step_end(self, step, step, {})
            pixels = np.zeros((64, 3), np.uint8)
            if self.shows(rank, generator):
                pixels[: len(concepts)] = 255 * concepts.numpy()[:, None]
            return SimpleNamespace(images=[Image.fromarray(pixels.reshape(8, 8, 3))])

    return Pipeline


def sees_pixels(image, family, values):
    """The judge of planted images, which cannot err."""
    pixels = np.asarray(image).reshape(64, 3)[:, 0] > 127
    return {concept: bool(there) for concept, there in zip(family.concepts, pixels, strict=False)}


def stopping(pipeline, after):
    """Makes the pipeline's U-Net fail, as a kill would, after so many calls."""
    calls = iter(range(after))
    step = pipeline.scheduler.step

    def counted(*args, **settings):
        if next(calls, None) is None:
            raise KeyboardInterrupt
        return step(*args, **settings)

    return counted


@pytest.mark.heavy
def test_a_pipeline_is_read_from_prompt_to_correlation(stable_diffusion, tmp_path):
    one = family_named("animals-8")
    told = []
    reading = read_pipeline(stable_diffusion, one, Oracle(), tmp_path, SMALL, say=told.append)
    assert reading.combinations == {"fit": 10, "validation": 4, "test": 6}
    assert reading.images == 40 and len(told) == 40 + 12
    assert reading.layer == max(reading.layers, key=reading.layers.__getitem__)
    blocks, branches = zip(*(name.split("/") for name in reading.layers), strict=True)
    assert set(branches) == {"conditional", "unconditional"}
    assert {block.split(".")[0] for block in blocks} == {"down_blocks", "mid_block", "up_blocks"}
    assert len(reading.table) == 6
    for row in reading.table:
        assert row.prompt == one.prompt(row.rank) and row.success in (0.0, 0.5, 1.0)
        assert row.prompt_embedding is not None
    assert {"decodability", "pixels", "prompt_embedding", "shuffled"} <= set(reading.correlations)
    assert json.loads(json.dumps(reading.to_dict()))["family"] == "animals-8"
    written = read_json(tmp_path / "reading.json")
    assert written["layer"] == reading.layer and len(written["table"]) == 6


@pytest.mark.heavy
def test_a_diffusion_transformer_is_read_the_same_way(diffusion_transformer, tmp_path):
    sampling = Sampling(
        combinations=20, images=1, steps=2, guidance=3.0, options={"height": 16, "width": 16}
    )
    one = family_named("animals-8")
    reading = read_pipeline(diffusion_transformer, one, Oracle(), tmp_path, sampling)
    assert set(reading.layers) == {
        f"transformer_blocks.{block}/{branch}"
        for block in (0, 1)
        for branch in ("conditional", "unconditional")
    }


@pytest.mark.heavy
def test_what_is_done_is_not_done_again(stable_diffusion, tmp_path, monkeypatch):
    one = family_named("animals-8")
    first = read_pipeline(stable_diffusion, one, Oracle(), tmp_path, SMALL)
    monkeypatch.setattr(stable_diffusion.scheduler, "step", stopping(stable_diffusion, 0))
    idle = Oracle()
    again = read_pipeline(stable_diffusion, one, idle, tmp_path, SMALL)
    assert idle.asked == 0
    assert json.dumps(again.to_dict()) == json.dumps(first.to_dict())


@pytest.mark.heavy
def test_a_killed_run_ends_with_the_same_reading(stable_diffusion, tmp_path):
    one = family_named("animals-8")
    undisturbed = read_pipeline(stable_diffusion, one, Oracle(), tmp_path / "a", SMALL)
    step = stable_diffusion.scheduler.step
    for after in (4, 50):
        stable_diffusion.scheduler.step = stopping(stable_diffusion, after)
        with pytest.raises(KeyboardInterrupt):
            read_pipeline(stable_diffusion, one, Oracle(), tmp_path / "b", SMALL)
        stable_diffusion.scheduler.step = step
    broken = Oracle(breaks_at=5)
    with pytest.raises(JudgeError, match="gone home"):
        read_pipeline(stable_diffusion, one, broken, tmp_path / "b", SMALL)
    last = Oracle()
    reading = read_pipeline(stable_diffusion, one, last, tmp_path / "b", SMALL)
    assert last.asked == 12 - 4
    assert json.dumps(reading.to_dict()) == json.dumps(undisturbed.to_dict())


@pytest.mark.heavy
def test_a_folder_is_continued_only_by_the_request_that_began_it(stable_diffusion, torch, tmp_path):
    one = family_named("animals-8")
    read_pipeline(stable_diffusion, one, Oracle(), tmp_path, SMALL)
    longer = Sampling(combinations=20, images=2, steps=4)
    with pytest.raises(InvalidRequest, match="made with sampling steps 3, not 4: use another"):
        read_pipeline(stable_diffusion, one, Oracle(), tmp_path, longer)
    with pytest.raises(InvalidRequest, match="family name 'animals-8', not 'solids-8'"):
        read_pipeline(stable_diffusion, family_named("solids-8"), Oracle(), tmp_path, SMALL)
    with torch.no_grad():
        stable_diffusion.unet.conv_in.weight += 1.0
    with pytest.raises(InvalidRequest, match="made with pipeline weights"):
        read_pipeline(stable_diffusion, one, Oracle(), tmp_path, SMALL)


@pytest.mark.heavy
def test_another_judge_is_asked_anew(stable_diffusion, tmp_path):
    one = family_named("animals-8")
    read_pipeline(stable_diffusion, one, Oracle(), tmp_path, SMALL)
    other = Oracle()
    other.identity = "a second opinion"
    read_pipeline(stable_diffusion, one, other, tmp_path, SMALL)
    assert other.asked == 12


@pytest.mark.heavy
@pytest.mark.parametrize("file", ["picture.png", "features.safetensors"])
def test_a_damaged_file_is_named(planted, tmp_path, file):
    one = family_named("animals-8")
    pipeline = planted(one, [lambda rank: 0.1], lambda rank, generator: True)
    read_pipeline(pipeline, one, sees_pixels, tmp_path, SMALL)
    shot = f"{split(one, SMALL).test[0]}-1"
    path = tmp_path / "images" / shot / file
    bits = bytearray(path.read_bytes())
    bits[len(bits) // 2] ^= 1
    path.write_bytes(bits)
    with pytest.raises(StoreError, match=rf"{shot}/{file} is damaged"):
        read_pipeline(pipeline, one, sees_pixels, tmp_path, SMALL)
    shutil.rmtree(path.parent)
    before = pipeline.made
    read_pipeline(pipeline, one, sees_pixels, tmp_path, SMALL)
    assert pipeline.made == before + 1


@pytest.mark.heavy
def test_a_judge_that_answers_nonsense_is_named_with_the_image(planted, tmp_path):
    one = family_named("animals-8")
    pipeline = planted(one, [lambda rank: 0.1], lambda rank, generator: True)
    with pytest.raises(JudgeError, match=r"picture\.png: the judge names 'unicorn'"):
        read_pipeline(pipeline, one, lambda *_: {"unicorn": True}, tmp_path, SMALL)


LARGE = Sampling(combinations=90, images=4, steps=1)


def blur(rank):
    """A noise level from .2 to 8, of no order in the ranks."""
    return 0.2 * 40 ** float(np.random.default_rng(rank).uniform())


@pytest.mark.heavy
def test_a_planted_link_between_decodability_and_success_is_found(torch, planted, tmp_path):
    one = family_named("animal-colour")
    test = set(split(one, LARGE).test.tolist())

    def shows(rank, generator):
        return float(torch.rand(1, generator=generator)) < (0.9 if blur(rank) < 1.3 else 0.1)

    # The probe learns from clear images, so that only what is read off the test images varies.
    pipeline = planted(one, [lambda rank: blur(rank) if rank in test else 0.1], shows)
    reading = read_pipeline(pipeline, one, sees_pixels, tmp_path, LARGE)
    found = reading.correlations["decodability"]
    assert found.estimate > 0.4 and found.low > 0
    assert reading.reliability > 0.3
    assert np.mean([row.shuffled for row in reading.table]) < 0.1


@pytest.mark.heavy
def test_no_link_is_found_where_there_is_none(torch, planted, tmp_path):
    one = family_named("animal-colour")

    def shows(rank, generator):
        return float(np.random.default_rng([rank, 1]).uniform()) < 0.5

    reading = read_pipeline(planted(one, [blur], shows), one, sees_pixels, tmp_path, LARGE)
    found = reading.correlations["decodability"]
    assert found.low < 0 < found.high
    assert reading.reliability == pytest.approx(1.0)


@pytest.mark.heavy
def test_the_layer_is_not_chosen_by_what_the_test_combinations_show(planted, tmp_path):
    one = family_named("animal-colour")
    clean = set(split(one, LARGE).fit.tolist()) | set(split(one, LARGE).test.tolist())
    # The second block is the best everywhere but on the validation combinations.
    blocks = [lambda rank: 1.0, lambda rank: 0.01 if rank in clean else 50.0]
    pipeline = planted(one, blocks, lambda rank, generator: True)
    reading = read_pipeline(pipeline, one, sees_pixels, tmp_path, LARGE)
    assert reading.layer == "transformer_blocks.0/conditional"


@pytest.mark.heavy
def test_success_that_never_varies_has_no_correlation(planted, tmp_path):
    one = family_named("animal-colour")
    pipeline = planted(one, [blur], lambda rank, generator: True)
    reading = read_pipeline(pipeline, one, sees_pixels, tmp_path, LARGE)
    assert reading.success.estimate == 1.0
    assert np.isnan(reading.correlations["decodability"].estimate)
    assert read_json(tmp_path / "reading.json")["success"]["estimate"] == 1.0


@pytest.mark.heavy
def test_a_saved_pipeline_is_loaded_and_makes_the_same_images(stable_diffusion, tmp_path):
    stable_diffusion.save_pretrained(tmp_path / "saved")
    loaded = load(tmp_path / "saved")
    one = family_named("animals-8")
    before = read_pipeline(stable_diffusion, one, Oracle(), tmp_path / "a", SMALL)
    after = read_pipeline(loaded, one, Oracle(), tmp_path / "b", SMALL)
    assert json.dumps(before.to_dict()) == json.dumps(after.to_dict())


@pytest.mark.heavy
@pytest.mark.parametrize(
    ("spoil", "complaint"),
    [
        (lambda f: (f / "unet/diffusion_pytorch_model.safetensors").unlink(), "weights of unet"),
        (lambda f: shutil.rmtree(f / "vae"), r"vae is missing, and the pipeline needs its vae"),
        (lambda f: (f / "model_index.json").unlink(), r"model_index\.json is missing"),
        (lambda f: (f / "model_index.json").write_text("{"), r"model_index\.json is damaged"),
        (
            lambda f: (f / "unet/diffusion_pytorch_model.safetensors").write_bytes(b"\x80\x04N."),
            "cannot load the pipeline .*saved",
        ),
        (
            lambda f: (f / "unet/big.safetensors.index.json").write_text(
                '{"weight_map": {"a": "part-2.safetensors"}}'
            ),
            r"part-2\.safetensors is missing",
        ),
    ],
)
def test_a_pipeline_that_cannot_be_loaded_says_what_it_lacks(
    stable_diffusion, tmp_path, spoil, complaint
):
    stable_diffusion.save_pretrained(tmp_path / "saved")
    spoil(tmp_path / "saved")
    with pytest.raises(StoreError, match=complaint):
        load(tmp_path / "saved")


@pytest.mark.heavy
def test_a_pipeline_without_a_denoiser_is_refused(torch, tmp_path):
    with pytest.raises(NotApplicable, match="object has no unet or transformer"):
        read_pipeline(object(), family_named("animals-8"), Oracle(), tmp_path, SMALL)


@pytest.mark.heavy
def test_an_option_the_pipeline_does_not_know_is_named(stable_diffusion, tmp_path):
    sampling = Sampling(combinations=20, images=1, steps=1, options={"hieght": 16})
    with pytest.raises(InvalidRequest, match="did you mean 'height'"):
        read_pipeline(stable_diffusion, family_named("animals-8"), Oracle(), tmp_path, sampling)


def test_an_unknown_precision_is_refused_before_anything_is_loaded():
    with pytest.raises(InvalidRequest, match="did you mean 'float16'"):
        load("anything", dtype="floot16")


def test_a_package_that_is_missing_is_named_with_its_extra():
    with pytest.raises(InvalidRequest, match=r"'no_such_package': pip install 'recombine\[diff"):
        need("no_such_package")


@pytest.mark.parametrize(
    "wrong", [{"combinations": 3}, {"images": 0}, {"steps": 0}, {"fit": 0.9}, {"validation": 0.0}]
)
def test_an_impossible_sampling_is_refused(wrong):
    with pytest.raises(InvalidRequest, match=next(iter(wrong))):
        Sampling(**wrong)
