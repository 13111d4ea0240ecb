"""`diarnorm convert`: a model file with another norm that computes the same."""

from collections.abc import Sequence
from pathlib import Path

from diarnorm.commands.arguments import Parser
from diarnorm.resources import find_model

EPILOG = """\
Exact, up to rounding: --to rms for a model with norm=layer (LayerNorm's offset moves into the next layer, what is added
to the residual stream gets mean zero), and --fold-batch for BatchNorms (into the layers beside them). Any other --to
would change what the model computes: it is refused, and the change stated, unless --force is given.

  diarnorm convert --to rms layer.safetensors rms.safetensors
  diarnorm convert --fold-batch batch.safetensors none.safetensors

OUT is written in float32, since rounding to float16 again would change the model.

Exit codes: 0; 2 for a model that cannot be converted."""


def make_parser() -> Parser:
    """Options of `diarnorm convert`."""
    parser = Parser("convert", "Put another norm under a model's trained weights without changing its results.", EPILOG)
    parser.add_argument("model", metavar="MODEL", help="a shipped model or a model file")
    parser.add_argument("out", metavar="OUT", type=Path, help="the new model file")
    parser.add_argument("--to", metavar="NORM", help="the norm of the new model")
    parser.add_argument("--fold-batch", action="store_true", help="fold BatchNorms into the layers beside them (first)")
    parser.add_argument("--force", action="store_true", help="swap the norm even where that changes the results")
    parser.add_debug()
    return parser


def main(argv: Sequence[str]) -> int:
    """Run `diarnorm convert` with these arguments; the exit code."""
    parser = make_parser()
    options = parser.parse_args(argv)
    if options.to is None and not options.fold_batch:
        parser.error("give --to NORM or --fold-batch")
    path = find_model(options.model)
    if options.out.exists():
        raise ValueError(f"{options.out} is there already: give another name, or remove it")
    import torch

    from diarnorm.checkpoint import load_checkpoint, save_checkpoint
    from diarnorm.convert import convert, fold_batch, with_model

    checkpoint = load_checkpoint(path)
    if options.fold_batch:
        checkpoint = with_model(checkpoint, fold_batch(checkpoint.model))
    if options.to is not None:
        checkpoint = with_model(checkpoint, convert(checkpoint.model, options.to, force=options.force))
    save_checkpoint(options.out, checkpoint, dtype=torch.float32)
    for step in checkpoint.training["converted"]:
        names = [f"norm={side['norm']} conv_norm={side['conv_norm']}" for side in (step["from"], step["to"])]
        print(f"{names[0]} -> {names[1]}: what is read off the encoder changes by {step['error']:.1e}")
    print(f"{options.out} written")
    return 0
