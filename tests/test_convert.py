"""Converted models: the same outputs, the same turns, said in the file; what is not exact is refused with its error."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

from diarnorm import cli, convert
from diarnorm.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from diarnorm.model import Model, ModelConfig
from diarnorm.modelfile import read_header
from diarnorm.norms import NORMS, RMSNorm
from diarnorm.residual import layer_to_rms, relative_error
from diarnorm.rttm import format_turn
from diarnorm.stream import Diarizer
from tests.tiny import ENCODER, QUICK_TURNS, make_checkpoint, make_model, shake, two_voices


def model_with(kind: str = "prototypes", **changes: str | None) -> Model:
    """A tiny model whose norms, writers and running averages hide nothing."""
    config = make_model().config
    torch.manual_seed(5)
    memory = replace(config.memory, kind=kind)
    model = shake(Model(replace(config, encoder=replace(ENCODER, **changes), memory=memory)))
    assert isinstance(model, Model)
    return model.eval()


def rttm(checkpoint: Checkpoint) -> list[str]:
    """Lines for two voices."""
    stream = Diarizer(checkpoint).stream()
    turns = stream.push(two_voices(8 * 16_000))
    return [format_turn(turn, "x") for turn in turns + stream.finish()]


@pytest.mark.parametrize("conv_norm", [None, "batch", "rms", "none"])
@pytest.mark.parametrize(("dtype", "largest"), [(torch.float64, 1e-12), (torch.float32, 1e-5)])
def test_layer_becomes_rms(conv_norm: str | None, dtype: torch.dtype, largest: float) -> None:
    model = model_with(norm="layer", conv_norm=conv_norm).to(dtype)
    before = convert.read_off(model)
    conversion = convert.convert(model, "rms")
    assert conversion.error <= largest
    assert relative_error(before, convert.read_off(conversion.model)) == conversion.error
    config = conversion.model.config.encoder
    assert (config.norm, config.conv_norm) == ("rms", "layer" if conv_norm is None else conv_norm)
    assert torch.equal(convert.read_off(model), before)


@pytest.mark.parametrize(
    "changes", [{"norm": "batch"}, {"norm": "rms", "conv_norm": "batch"}, {"norm": "batch", "placement": "post"}]
)
@pytest.mark.parametrize(("dtype", "largest"), [(torch.float64, 1e-12), (torch.float32, 1e-5)])
def test_batch_norms_fold(changes: dict[str, str], dtype: torch.dtype, largest: float) -> None:
    conversion = convert.fold_batch(model_with(**changes).to(dtype))
    assert conversion.error <= largest
    config = conversion.model.config.encoder
    stays = changes["norm"] == "rms" or "placement" in changes
    assert (config.norm, config.conv_norm) == (changes["norm"] if stays else "none", "none")


def test_the_stream_names_every_norm_and_linear_layer_of_the_encoder() -> None:
    model = Model()
    stream = convert.residual_stream(model.config)
    named = [*stream.norms, *stream.writers, *(reader for readers in stream.norms.values() for reader in readers)]
    inside = {name for name, module in model.named_modules() if isinstance(module, nn.Linear | nn.RMSNorm)}
    expected = {name for name in inside if name.startswith("encoder") and not name.endswith("convolution.norm")}
    assert len(named) == len(set(named))
    assert set(named) == expected | set(convert.readers(model.config.memory))


@pytest.mark.parametrize(("norm", "changes"), [("layer", {}), ("batch", {"conv_norm": "rms"})])
def test_fixed_outputs_read_the_encoder_with_another_layer(norm: str, changes: dict[str, str]) -> None:
    model = model_with("none", norm=norm, **changes).double()
    conversion = convert.fold_batch(model) if norm == "batch" else convert.convert(model, "rms")
    assert conversion.error <= 1e-12
    x = torch.from_numpy(two_voices(40 * 1280))[None].double()
    with torch.no_grad():
        before, after = (each(x, chunk=4)[0].activity for each in (model, conversion.model))
    assert before.std() > 0.01
    torch.testing.assert_close(after, before, rtol=0, atol=1e-6)


@pytest.mark.parametrize("left_out", ["encoder.entry", "encoder.blocks.1.convolution.project"])
def test_a_writer_left_out_is_an_error_of_the_program(left_out: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def incomplete(config: ModelConfig) -> convert.ResidualStream:
        return replace(whole, writers=[name for name in whole.writers if name != left_out])

    model = model_with(norm="layer")
    whole = convert.residual_stream(model.config)
    monkeypatch.setattr(convert, "residual_stream", incomplete)
    with pytest.raises(RuntimeError, match="should be exact, but changes what is read off the encoder by"):
        convert.convert(model, "rms")


EXACT = [("layer", "rms"), ("none", "batch")]
"""The second because a BatchNorm that has seen nothing changes nothing."""


@pytest.mark.parametrize(("norm", "to"), EXACT)
def test_what_is_exact_is_not_refused(norm: str, to: str) -> None:
    assert convert.convert(model_with(norm=norm), to).error < 1e-5


@pytest.mark.parametrize(("norm", "to"), [(a, b) for a in NORMS for b in NORMS if a != b and (a, b) not in EXACT])
def test_naive_swaps_are_refused_with_their_error(norm: str, to: str) -> None:
    model = model_with(norm=norm)
    with pytest.raises(ValueError, match=rf"norm={norm} .*cannot become norm={to} exactly.* by [0-9.]+%; train"):
        convert.convert(model, to)
    conversion = convert.convert(model, to, force=True)
    assert conversion.error > 0.01
    assert conversion.model.config.encoder.norm == to
    assert torch.equal(conversion.model.encoder.entry.weight, model.encoder.entry.weight)


def test_post_norm_is_refused() -> None:
    with pytest.raises(ValueError, match="norm=layer with placement=post cannot become norm=rms exactly"):
        convert.convert(model_with(norm="layer", placement="post"), "rms")


@pytest.mark.parametrize("to", ["layer", "rsm"])
def test_norms_that_make_no_sense_are_refused(to: str) -> None:
    with pytest.raises(ValueError, match=f"norm=layer, it cannot become {to}: choose one of rms, batch, none"):
        convert.convert(model_with(norm="layer"), to)


def test_nothing_to_fold() -> None:
    with pytest.raises(ValueError, match="norm=layer, conv_norm=rms: there is no BatchNorm that can be folded"):
        convert.fold_batch(model_with(norm="layer", conv_norm="rms"))


def test_turns_are_identical() -> None:
    before = make_checkpoint("layer", talkative=True)
    network = layer_to_rms(before.model, convert.residual_stream(before.model.config))
    assert isinstance(network, Model)
    lines = rttm(before)
    assert len(lines) > 10
    assert rttm(replace(before, model=network)) == lines
    swapped = make_checkpoint("layer", talkative=True)
    swapped.model.encoder.final_norm = RMSNorm(ENCODER.dim)
    assert rttm(swapped) != lines


# ---- the command --------------------------------------------------------------------------------------------


@pytest.fixture
def layer_file(tmp_path: Path) -> Path:
    """A model file with norm=layer that hears somebody."""
    model = model_with(norm="layer")
    with torch.no_grad():
        model.memory.embed.weight.mul_(3.0)
        model.memory.decoder.head.weight.mul_(60.0)
        model.memory.decoder.head.bias.fill_(-3.0)
    path = tmp_path / "layer.safetensors"
    save_checkpoint(path, Checkpoint(model, QUICK_TURNS, 4, (4,), {"seed": 3}))
    return path


def test_the_command_writes_a_model_that_gives_the_same_rttm(
    layer_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "rms.safetensors"
    assert cli.main(["convert", "--to", "rms", str(layer_file), str(out)]) == 0
    printed, errors = capsys.readouterr()
    assert errors == ""
    assert printed.startswith("norm=layer conv_norm=layer -> norm=rms conv_norm=layer: what is read off the encoder")
    lines = rttm(load_checkpoint(layer_file))
    assert len(lines) >= 3
    assert rttm(load_checkpoint(out, norm="rms")) == lines
    header = read_header(out)
    assert header.facts["norm"] == "rms"
    assert header.dtypes == ("F32",)
    record = header.facts["training"]
    assert record["seed"] == 3
    assert record["converted"][0]["from"] == {"norm": "layer", "conv_norm": "layer"}
    assert record["converted"][0]["error"] < 1e-5


def test_the_command_folds_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before, out = tmp_path / "before.safetensors", tmp_path / "after.safetensors"
    model = model_with(norm="layer", conv_norm="batch")
    save_checkpoint(before, Checkpoint(model, QUICK_TURNS, 4, (4,)), dtype=torch.float32)
    assert cli.main(["convert", "--fold-batch", "--to", "rms", str(before), str(out)]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 3
    after = load_checkpoint(out).model
    assert (after.config.encoder.norm, after.config.encoder.conv_norm) == ("rms", "none")
    assert relative_error(convert.read_off(model), convert.read_off(after)) <= 1e-5


def test_mistakes_of_the_command(layer_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = str(tmp_path / "out.safetensors")
    for arguments, message in [
        ([str(layer_file), out], "give --to NORM or --fold-batch"),
        (["--to", "batch", str(layer_file), out], "cannot become norm=batch exactly"),
        (["--fold-batch", str(layer_file), out], "there is no BatchNorm that can be folded"),
        (["--to", "rms", str(layer_file), str(layer_file)], "is there already"),
        (["--to", "rms", "nosuch.safetensors", out], "nosuch.safetensors: no such file"),
    ]:
        assert cli.main(["convert", *arguments]) == 2
        assert message in capsys.readouterr().err
        assert not Path(out).exists()
    assert cli.main(["convert", "--to", "batch", "--force", str(layer_file), out]) == 0
    assert json.loads(json.dumps(read_header(out).facts))["norm"] == "batch"
