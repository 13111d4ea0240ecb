"""Many recordings at once give what a stream gives for each; probes see what is there and change nothing."""

from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from diarnorm.conformer import rotary_table, rotate
from diarnorm.robustness import passes
from diarnorm.robustness.passes import make_sheet, run
from diarnorm.robustness.probes import watching
from diarnorm.stream import Diarizer
from tests.tiny import ENCODER, make_checkpoint, make_encoder, noise, two_voices

LENGTHS = (16 * 16_000, 100_001, 51_200, 200_123)

pytestmark = pytest.mark.usefixtures("one_thread")


def recordings() -> list[np.ndarray]:
    """Pieces of two voices, each another."""
    return [np.roll(two_voices(), 7000 * at)[:length].copy() for at, length in enumerate(LENGTHS)]


@pytest.mark.parametrize(("norm", "frontend"), [("rms", "ema"), ("layer", "none"), ("batch", "frame"), ("rms", "pcen")])
def test_turns_are_those_of_a_stream(norm: str, frontend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passes, "ENCODER_FRAMES", 450)  # so that the encoder gets the rows in two lots
    diarizer = Diarizer(make_checkpoint(norm, frontend, talkative=True))
    traces = run(diarizer, make_sheet(recordings()))
    assert all(trace.turns for trace in traces)
    for samples, trace in zip(recordings(), traces, strict=True):
        stream = diarizer.stream()
        assert list(trace.turns) == stream.push(samples) + stream.finish()


def test_settings_are_those_of_the_stream() -> None:
    diarizer = Diarizer(make_checkpoint(talkative=True))
    (trace,) = run(diarizer, make_sheet(recordings()[:1]), chunk=6, num_slots=2)
    stream = diarizer.stream(chunk_ms=480, max_speakers=2)
    assert list(trace.turns) == stream.push(recordings()[0]) + stream.finish()
    assert trace.activity.shape == (200, 2)
    other = diarizer.stream()
    assert list(trace.turns) != other.push(recordings()[0]) + other.finish()


def test_a_recording_is_the_same_alone_and_beside_others() -> None:
    diarizer = Diarizer(make_checkpoint(talkative=True))
    together = run(diarizer, make_sheet(recordings()), attention=True)
    (alone,) = run(diarizer, make_sheet(recordings()[1:2]), attention=True)
    assert alone.attention is not None
    for name in ("activity", "embedding", "powers", "attention"):
        ours, theirs = getattr(alone, name), getattr(together[1], name)
        if name == "attention":  # queries beyond the end are among those of the last chunk
            ours, theirs = ours[:, :-1], theirs[:, :-1]
        np.testing.assert_allclose(ours, theirs, atol=2e-5)


def test_embeddings_have_unit_norm_and_attention_adds_up() -> None:
    (trace,) = run(Diarizer(make_checkpoint()), make_sheet(recordings()[:1]), attention=True)
    np.testing.assert_allclose(np.linalg.norm(trace.embedding, axis=1), 1.0, atol=1e-5)
    assert trace.attention is not None
    np.testing.assert_allclose(trace.attention.sum(axis=-1), 1.0, atol=1e-5)
    assert (trace.attention[:, 0, : ENCODER.left_context] < 1e-6).all()  # nothing was heard before the first chunk


@pytest.mark.parametrize("placement", ["pre", "post"])
def test_the_output_of_a_watched_encoder_is_the_same(placement: str) -> None:
    encoder, mel = make_encoder(placement=placement), noise(2, 96, 80)
    with torch.inference_mode():
        before, _ = encoder(mel, chunk=4)
        with watching(encoder, attention=True) as seen:
            during, _ = encoder(mel, chunk=4)
        after, _ = encoder(mel, chunk=4)
    assert torch.equal(before, during)
    assert torch.equal(before, after)
    assert len(seen.powers) == len(seen.attention) == ENCODER.num_blocks
    assert not any(block._forward_hooks for block in encoder.blocks)
    with watching(encoder, attention=False) as nothing, torch.inference_mode():
        encoder(mel, chunk=4)
    assert not nothing.attention


def test_powers_are_those_of_the_residual_stream() -> None:
    encoder, mel = make_encoder(), noise(1, 32, 80)
    kept = []
    hook = encoder.final_norm.register_forward_pre_hook(lambda _, given: kept.append(given[0]))
    with watching(encoder, attention=False) as seen, torch.inference_mode():
        encoder(mel, chunk=4)
    hook.remove()
    torch.testing.assert_close(seen.powers[-1], kept[0].pow(2).mean(dim=-1))


def test_attention_against_products_by_hand() -> None:
    """One chunk, first block: softmax over its own keys, from the block's own projections."""
    encoder, mel = make_encoder(), noise(1, 32, 80)
    block: Any = encoder.blocks[0]
    chunk, left = 4, ENCODER.left_context
    with watching(encoder, attention=True) as seen, torch.inference_mode():
        encoder(mel, chunk=chunk)
        x = encoder.entry(mel.reshape(1, 4, -1))
        x = x + 0.5 * block.ff_in(block.norms[0](x))
        q, k, _ = block.attention.qkv(block.norms[1](x)).view(4, 3, ENCODER.num_heads, -1).unbind(dim=1)
        cosine, sine = rotary_table(left + chunk, q.shape[-1], x)
        q, k = (rotate(each.transpose(0, 1), cosine[left:], sine[left:]) for each in (q, k))
        expected = F.softmax(torch.einsum("hqd,hkd->hqk", q, k) / q.shape[-1] ** 0.5, dim=-1).mean(dim=(0, 1))
    torch.testing.assert_close(seen.attention[0][0, left:], expected, atol=1e-5, rtol=1e-5)


def test_features_are_changed_before_the_front_end() -> None:
    sheet = make_sheet(recordings()[:1])
    louder = make_sheet([recordings()[0] * np.float32(10.0)])
    heard = slice(2, None)  # the first two mel frames see the onset
    difference = louder.mel[0, heard] - sheet.mel[0, heard]
    assert float(difference.median()) == pytest.approx(np.log(100.0), abs=1e-3)
