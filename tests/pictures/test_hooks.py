"""What is recorded of a denoiser, against sums done by hand."""

from __future__ import annotations

from contextlib import suppress

import numpy as np
import pytest

from recombine.errors import InvalidRequest, NotApplicable
from recombine.pictures import Recorder
from recombine.pictures.hooks import matching

pytestmark = pytest.mark.heavy


@pytest.fixture
def toy(torch):
    """A denoiser whose first block gives out (rows, 3, 4, 4), the second (rows, 5 tokens, 3)."""

    class Gives(torch.nn.Module):
        def __init__(self, give):
            super().__init__()
            self.give = give

        def forward(self, hidden):
            return self.give(hidden)

    class Toy(torch.nn.Module):
        def __init__(self, *gives):
            super().__init__()
            self.transformer_blocks = torch.nn.ModuleList(map(Gives, gives))

        def forward(self, hidden_states, timestep, encoder_hidden_states=None):
            for block in self.transformer_blocks:
                block(hidden_states * timestep)
            return hidden_states

    return Toy


def as_it_is(hidden):
    return hidden


def as_tokens(hidden):
    return hidden.flatten(2).transpose(1, 2)


def test_channels_and_tokens_are_pooled_alike(torch, toy):
    denoiser = toy(
        as_it_is, as_tokens, lambda hidden: (as_tokens(hidden),), lambda h: h.mean((2, 3))
    )
    hidden = torch.randn(1, 3, 4, 4)
    with Recorder(denoiser, fractions=[1.0]) as recorder, recorder.image():
        denoiser(hidden, 1.0)
    found = recorder.features()
    expected = hidden.mean((2, 3)).numpy()
    assert len(found) == 4
    for layer, rows in found.items():
        assert rows == pytest.approx(np.tile(expected, 2), abs=1e-6), layer


def test_steps_are_taken_at_their_fractions_and_averaged(torch, toy):
    denoiser = toy(as_it_is)
    with Recorder(denoiser) as recorder, recorder.image():
        for step in range(1, 31):
            denoiser(torch.ones(1, 1, 2, 2), float(step))
    [row] = recorder.features()["transformer_blocks.0/conditional"]
    assert row.tolist() == [9, 15, 21, 30, 15.5]
    assert recorder.steps == 30


@pytest.mark.parametrize("announced", [False, True])
def test_every_image_counts_its_steps_from_the_start(torch, toy, announced):
    denoiser = toy(as_it_is)
    last = []
    with Recorder(denoiser, fractions=[0.1, 1.0]) as recorder:
        for image in (10, 20):
            with recorder.image(announced=announced):
                for step in range(10):
                    denoiser(torch.ones(1, 1, 2, 2), float(image + step))
                    recorder.end_step(None, step, None, {})
            last.append(recorder.features()["transformer_blocks.0/conditional"][0].tolist())
    assert last == [[10, 19, 14.5], [20, 29, 24.5]]


def test_an_image_that_failed_leaves_nothing_to_the_next(torch, toy):
    denoiser = toy(as_it_is)
    with Recorder(denoiser, fractions=[1.0]) as recorder:
        with suppress(ZeroDivisionError), recorder.image():
            denoiser(torch.ones(1, 1, 2, 2), 5.0)
            raise ZeroDivisionError
        denoiser(torch.ones(1, 1, 2, 2), 6.0)  # between images nobody listens
        with recorder.image():
            denoiser(torch.ones(1, 1, 2, 2), 7.0)
    assert recorder.features()["transformer_blocks.0/conditional"].tolist() == [[7, 7]]


def test_guidance_in_one_call_keeps_its_rows_apart(torch, toy):
    denoiser = toy(as_it_is)
    rows = torch.tensor([1.0, 2.0, 3.0, 4.0])[:, None, None, None]  # two images, unguided first
    text = torch.arange(4.0)[:, None, None].expand(4, 7, 2)
    with Recorder(denoiser, fractions=[1.0]) as recorder, recorder.image(images=2):
        denoiser(rows, 1.0, encoder_hidden_states=text)
    found = recorder.features()
    assert found["transformer_blocks.0/unconditional"][:, 0].tolist() == [1, 2]
    assert found["transformer_blocks.0/conditional"][:, 0].tolist() == [3, 4]
    prompt = recorder.prompt()
    assert prompt is not None
    assert prompt.tolist() == [[2, 2], [3, 3]]


def test_guidance_in_two_calls_a_step_keeps_them_apart(torch, toy):
    denoiser = toy(as_it_is)
    with Recorder(denoiser, fractions=[1.0]) as recorder, recorder.image(announced=True):
        for step in range(4):
            denoiser(torch.ones(1, 1, 2, 2), 1.0 + step)
            denoiser(torch.ones(1, 1, 2, 2), -1.0 - step)
            recorder.end_step(None, step, None, {})
    found = recorder.features()
    assert recorder.steps == 4
    assert found["transformer_blocks.0/conditional"].tolist() == [[4, 2.5]]
    assert found["transformer_blocks.0/unconditional"].tolist() == [[-4, -2.5]]


def test_without_guidance_there_is_no_unconditional_branch(torch, toy):
    denoiser = toy(as_it_is)
    with Recorder(denoiser) as recorder, recorder.image():
        denoiser(torch.ones(1, 1, 2, 2), 1.0)
    assert list(recorder.features()) == ["transformer_blocks.0/conditional"]


@pytest.mark.parametrize("text_first", [True, False])
def test_the_stream_as_long_as_the_prompt_is_left_out(torch, toy, text_first):
    def both(hidden):
        streams = (torch.full((1, 7, 3), 99.0), as_tokens(hidden))
        return streams if text_first else streams[::-1]

    denoiser = toy(both)
    with Recorder(denoiser, fractions=[1.0]) as recorder, recorder.image():
        denoiser(torch.ones(1, 3, 2, 2), 1.0, encoder_hidden_states=torch.zeros(1, 7, 3))
    found = recorder.features()
    assert list(found) == ["transformer_blocks.0/conditional"]
    assert found["transformer_blocks.0/conditional"].max() == 1.0


def hooks_on(denoiser):
    return sum(
        len(module._forward_hooks) + len(module._forward_pre_hooks) for module in denoiser.modules()
    )


def test_hooks_are_gone_also_after_an_error(torch, toy):
    denoiser = toy(as_it_is, as_tokens)
    with suppress(ZeroDivisionError), Recorder(denoiser):
        assert hooks_on(denoiser) == 3
        raise ZeroDivisionError
    assert hooks_on(denoiser) == 0


def test_a_hook_that_cannot_be_put_takes_back_the_others(torch, toy, monkeypatch):
    denoiser = toy(as_it_is, as_tokens)
    last = denoiser.transformer_blocks[1]
    monkeypatch.setattr(type(last), "register_forward_hook", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError), Recorder(denoiser):
        pass
    assert hooks_on(denoiser) == 0


def test_layers_are_chosen_by_pattern_or_refused_by_name(torch, toy):
    denoiser = toy(as_it_is, as_tokens)
    assert Recorder(denoiser, ["*.1"]).layers == ["transformer_blocks.1"]
    with pytest.raises(InvalidRequest, match=r"called blocks\.\*: .*transformer_blocks\.\*"):
        Recorder(denoiser, ["blocks.*"])
    assert matching(["a.0", "a.0.ff", "b.0"], ["a.*", "*.0.ff"]) == ["a.0", "a.0.ff"]


def test_a_denoiser_of_another_make_is_read_at_its_longest_list(torch):
    class Other(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = torch.nn.ModuleList(torch.nn.Identity() for _ in range(3))
            self.heads = torch.nn.ModuleList(torch.nn.Identity() for _ in range(2))

        def forward(self, x):
            return x

    assert Recorder(Other()).layers == ["layers.0", "layers.1", "layers.2"]
    with pytest.raises(NotApplicable, match="has no list of blocks"):
        Recorder(torch.nn.Linear(1, 1))


@pytest.mark.parametrize(
    ("rows", "value", "error", "complaint"),
    [
        (3, 1.0, NotApplicable, "given 3 rows for 1 images"),
        (1, float("inf"), InvalidRequest, r"'transformer_blocks\.0' gave numbers .* not finite"),
    ],
)
def test_what_cannot_be_read_is_named(torch, toy, rows, value, error, complaint):
    denoiser = toy(as_it_is)
    with Recorder(denoiser) as recorder, recorder.image():
        denoiser(torch.full((rows, 1, 2, 2), value), 1.0)
    with pytest.raises(error, match=complaint):
        recorder.features()


def test_a_block_without_rows_is_named(torch, toy):
    denoiser = toy(lambda hidden: None)
    with pytest.raises(NotApplicable, match=r"block 'transformer_blocks\.0' returns nothing"):
        with Recorder(denoiser) as recorder, recorder.image():
            denoiser(torch.ones(1, 1, 2, 2), 1.0)
    assert hooks_on(denoiser) == 0


def test_a_denoiser_that_never_ran_is_named(torch, toy):
    with Recorder(toy(as_it_is)) as recorder:
        with pytest.raises(InvalidRequest, match="was never called"):
            recorder.features()
