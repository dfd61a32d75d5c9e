"""Packages that only these tests need, and generators small enough for a test."""

from __future__ import annotations

import json
from typing import Any

import pytest

WHY = "needs the extra 'diffusers': make test-all installs it"


@pytest.fixture(scope="session")
def torch() -> Any:
    # Asked for in a fixture: a module that skipped itself would hide that it has heavy tests.
    package = pytest.importorskip("torch", reason=WHY)
    package.set_num_threads(1)  # for so small networks threads only wait for one another
    return package


@pytest.fixture(scope="session")
def diffusers(torch) -> Any:
    return pytest.importorskip("diffusers", reason=WHY)


@pytest.fixture(scope="session")
def tokenizer(diffusers, tmp_path_factory) -> Any:
    """Letter by letter, from a vocabulary of our own."""
    from transformers import CLIPTokenizer

    folder = tmp_path_factory.mktemp("vocabulary")
    letters = "abcdefghijklmnopqrstuvwxyz,."
    words = [*letters, *(f"{letter}</w>" for letter in letters), "<|startoftext|>", "<|endoftext|>"]
    vocabulary = folder / "vocab.json"
    vocabulary.write_text(json.dumps({word: i for i, word in enumerate(words)}), "utf-8")
    merges = folder / "merges.txt"
    merges.write_text("#version: 0.2\n", "utf-8")
    return CLIPTokenizer(str(vocabulary), str(merges), model_max_length=48)


def text_config(tokenizer: Any) -> Any:
    from transformers import CLIPTextConfig

    return CLIPTextConfig(
        vocab_size=len(tokenizer), hidden_size=16, intermediate_size=32, num_hidden_layers=2,
        num_attention_heads=2, max_position_embeddings=48, projection_dim=16,
        bos_token_id=tokenizer.bos_token_id, eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )  # fmt: skip


def tiny_vae(diffusers: Any) -> Any:
    return diffusers.AutoencoderKL(
        block_out_channels=(8, 8), down_block_types=("DownEncoderBlock2D",) * 2,
        up_block_types=("UpDecoderBlock2D",) * 2, latent_channels=4, norm_num_groups=4,
        sample_size=16, shift_factor=0.0, scaling_factor=1.0,
    )  # fmt: skip


@pytest.fixture
def stable_diffusion(torch, diffusers, tokenizer) -> Any:
    """A U-Net pipeline with random weights, always the same."""
    from transformers import CLIPTextModel

    torch.manual_seed(0)
    unet = diffusers.UNet2DConditionModel(
        sample_size=8, in_channels=4, out_channels=4, block_out_channels=(8, 16),
        layers_per_block=1, down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"),
        up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"), cross_attention_dim=16,
        attention_head_dim=4, norm_num_groups=4,
    )  # fmt: skip
    pipeline = diffusers.StableDiffusionPipeline(
        vae=tiny_vae(diffusers),
        text_encoder=CLIPTextModel(text_config(tokenizer)),
        tokenizer=tokenizer,
        unet=unet,
        scheduler=diffusers.DDIMScheduler(clip_sample=False, steps_offset=1),
        safety_checker=None,
        feature_extractor=None,
        requires_safety_checker=False,
    )
    pipeline.set_progress_bar_config(disable=True)
    return pipeline


@pytest.fixture
def diffusion_transformer(torch, diffusers, tokenizer) -> Any:
    """A pipeline whose blocks carry the prompt beside the image, as Stable Diffusion 3's do."""
    from transformers import CLIPTextModelWithProjection

    torch.manual_seed(0)
    text = CLIPTextModelWithProjection(text_config(tokenizer))
    transformer = diffusers.SD3Transformer2DModel(
        sample_size=8, patch_size=1, in_channels=4, out_channels=4, num_layers=2,
        attention_head_dim=8, num_attention_heads=2, joint_attention_dim=32,
        caption_projection_dim=16, pooled_projection_dim=32, pos_embed_max_size=16,
    )  # fmt: skip
    pipeline = diffusers.StableDiffusion3Pipeline(
        transformer=transformer,
        scheduler=diffusers.FlowMatchEulerDiscreteScheduler(),
        vae=tiny_vae(diffusers),
        text_encoder=text,
        tokenizer=tokenizer,
        text_encoder_2=text,
        tokenizer_2=tokenizer,
        text_encoder_3=None,
        tokenizer_3=None,
    )
    pipeline.set_progress_bar_config(disable=True)
    return pipeline
