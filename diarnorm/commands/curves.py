"""`diarnorm curves`: training runs side by side, as a table and a picture."""

import re
from collections.abc import Sequence
from pathlib import Path

from diarnorm.commands.arguments import Parser, checked

EPILOG = """\
RUN is a folder of `diarnorm train`, finished or not. Runs of one family, such as the seeds of one
setting, share a colour.

  diarnorm curves runs/norm_study/* --family-by '^norm=([a-z]+),' --output curves.png"""


def make_parser() -> Parser:
    """Options of `diarnorm curves`."""
    parser = Parser("curves", "Training runs side by side: loss, DER, gradient norm, speed.", EPILOG)
    parser.add_argument("runs", metavar="RUN", nargs="+", help="folder of a training run")
    parser.add_argument(
        "--family-by",
        metavar="REGEX",
        type=checked(str, _check_pattern),
        help="expression whose one group, found in a folder's name, is the family",
    )
    parser.add_argument("--output", metavar="PNG", help="write a picture; needs matplotlib")
    parser.add_debug()
    return parser


def _check_pattern(pattern: str) -> None:
    try:
        num_groups = re.compile(pattern).groups
    except re.error as error:
        raise ValueError(f"{pattern!r} is no regular expression: {error}") from error
    if num_groups != 1:
        raise ValueError(f"{pattern!r} has {num_groups} groups: give one, such as '^norm=([a-z]+),'")


def main(argv: Sequence[str]) -> int:
    """Run `diarnorm curves` with these arguments; the exit code."""
    options = make_parser().parse_args(argv)
    from diarnorm.training.curves import draw, read_curve, table

    curves = [read_curve(Path(run), options.family_by) for run in options.runs]
    if options.output:
        draw(curves, Path(options.output))
    print(table(curves))
    return 0
