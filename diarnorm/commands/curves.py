"""`diarnorm curves`: training runs side by side, as a table and a picture."""

import sys
from collections.abc import Sequence
from pathlib import Path

from diarnorm.checks import check_one_group
from diarnorm.commands.arguments import Parser, checked

EPILOG = """\
RUN is a folder of `diarnorm train`, finished or not; files, such as Hydra leaves beside the runs of
a sweep, are passed over. Runs of one family, such as the seeds of one setting, share a colour.

  diarnorm curves runs/base/*
  diarnorm curves runs/base/norm=*,train.seed=* --family-by '^norm=([a-z]+),' --output curves.png"""


def make_parser() -> Parser:
    """Options of `diarnorm curves`."""
    parser = Parser("curves", "Training runs side by side: loss, DER, gradient norm, speed.", EPILOG)
    parser.add_argument("runs", metavar="RUN", nargs="+", help="folder of a training run")
    parser.add_argument(
        "--family-by",
        metavar="REGEX",
        type=checked(str, _check_family),
        help="expression whose one group, found in a folder's name, is the family",
    )
    parser.add_argument("--output", metavar="PNG", help="write a picture; needs matplotlib")
    parser.add_debug()
    return parser


def _check_family(pattern: str) -> None:
    check_one_group("--family-by", pattern, "^norm=([a-z]+),")


def _folders(given: Sequence[str]) -> list[Path]:
    """What was given but for files, each of which is said to be passed over.

    Raises:
        ValueError: nothing but files.
    """
    paths = [Path(run) for run in given]
    files = [path for path in paths if path.is_file()]
    if len(files) == len(paths):
        raise ValueError(f"{files[0]} is a file: give folders of training runs")
    for path in files:
        print(f"diarnorm curves: {path} is a file, no run, and is passed over", file=sys.stderr)
    return [path for path in paths if path not in files]


def main(argv: Sequence[str]) -> int:
    """Run `diarnorm curves` with these arguments; the exit code."""
    options = make_parser().parse_args(argv)
    from diarnorm.training.curves import draw, read_curve, table

    curves = [read_curve(folder, options.family_by) for folder in _folders(options.runs)]
    if options.output:
        draw(curves, Path(options.output))
    print(table(curves))
    return 0
