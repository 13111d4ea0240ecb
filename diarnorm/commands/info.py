"""`diarnorm info`: what a model file says about itself."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from diarnorm.commands.arguments import Parser
from diarnorm.modelfile import ModelHeader, read_header
from diarnorm.resources import DEFAULT_MODEL, find_model, model_names
from diarnorm.timebase import FRAME_MS


def make_parser() -> Parser:
    """Options of `diarnorm info`."""
    names = ", ".join(model_names())
    parser = Parser("info", f"Norm, sizes, thresholds and training record of a model. Shipped: {names or 'none'}.")
    parser.add_argument(
        "model",
        metavar="NAME|PATH",
        nargs="?",
        help=f"a shipped model or a model file (default: {DEFAULT_MODEL})",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_debug()
    return parser


def main(argv: Sequence[str]) -> int:
    """Run `diarnorm info` with these arguments; the exit code."""
    options = make_parser().parse_args(argv)
    path = find_model(options.model)
    header = read_header(path)
    if options.json:
        sizes = {"num_values": header.num_values, "num_bytes": header.num_bytes, "dtypes": header.dtypes}
        print(json.dumps({"path": str(path), **sizes, **header.facts}, ensure_ascii=False, indent=2))
    else:
        print(*info_lines(path, header), sep="\n")
    return 0


def info_lines(path: Path, header: ModelHeader) -> list[str]:
    """The header as text, a subject on each line."""
    facts = header.facts
    chunks = ", ".join(str(FRAME_MS * chunk) for chunk in facts["chunks"])
    lines = [
        f"model     {path} ({header.num_bytes / 1e6:.1f} MB, {'/'.join(header.dtypes)})",
        f"size      {header.num_values} parameters and constants in {len(header.shapes)} tensors",
        f"norm      {facts['norm']}",
        f"chunk     {FRAME_MS * facts['chunk']} ms (trained with {chunks} ms)",
    ]
    # The memory decides when a newcomer is confirmed; the turns follow it.
    turns = {**facts["turns"], "confirm_frames": facts["model"]["memory"]["confirm_frames"]}
    # The configuration of the run fills a screen: it is for --json.
    training = {key: value for key, value in facts["training"].items() if key != "config"}
    sections = {**facts["model"], "turns": turns, "training": training}
    return lines + [f"{name:<9} {_pairs(values)}" for name, values in sections.items()]


def _pairs(values: Mapping[str, Any]) -> str:
    """Names and values on one line; a nested record in JSON."""
    words = (
        f"{key}={json.dumps(value, ensure_ascii=False) if isinstance(value, dict | list) else value}"
        for key, value in values.items()
    )
    return " ".join(words) if values else "no record"
