"""`diarnorm score`: error rates of RTTM files against a reference."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from diarnorm.commands.arguments import USER_ERROR, Parser, seconds
from diarnorm.commands.sinks import first_line, is_own_line

EPILOG = """\
REF and HYP are RTTM files or folders of them; recordings are matched by their names in the files. DER counts miss,
false alarm and confusion in seconds of speaker time, overlapped speech included; beside it stands the DER of HYP with
all its labels merged to one.

  diarnorm score reference.rttm turns.rttm --uem scored.uem
  diarnorm score references/ turns/ --collar 0.25 --skip-overlap

Exit codes: 0; 2 for files that cannot be read or have nothing to score."""


def make_parser() -> Parser:
    """Options of `diarnorm score`."""
    parser = Parser("score", "Diarization error rate by pyannote.metrics, per recording and pooled.", EPILOG)
    parser.add_argument("reference", metavar="REF", help="who spoke when in truth")
    parser.add_argument("hypothesis", metavar="HYP", help="what is scored")
    parser.add_argument(
        "--uem", metavar="FILE", help="regions that are scored (default: the extent of REF and HYP together)"
    )
    parser.add_argument(
        "--collar",
        metavar="S",
        type=seconds,
        default=0.0,
        help="seconds on each side of a reference boundary that are not scored (NIST; pyannote's collar is twice this)",
    )
    parser.add_argument(
        "--skip-overlap", action="store_true", help="leave out where the reference has several speakers"
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--strict", action="store_true", help="exit with 2 if a recording of REF is missing in HYP")
    parser.add_debug()
    return parser


def main(argv: Sequence[str]) -> int:
    """Run `diarnorm score` with these arguments; the exit code."""
    options = make_parser().parse_args(argv)
    from diarnorm.evaluation.scores import format_table
    from diarnorm.evaluation.scoring import score_files

    result = score_files(
        options.reference,
        options.hypothesis,
        options.uem,
        collar_s=options.collar,
        skip_overlap=options.skip_overlap,
    )
    for warning in result.warnings:
        print(f"diarnorm score: {warning}", file=sys.stderr)
    if _is_output(options.reference) and not _is_output(options.hypothesis):
        print("diarnorm score: REF holds turns that diarnorm wrote, HYP does not: are they swapped?", file=sys.stderr)
    print(json.dumps(result.to_dict(), ensure_ascii=False, indent=2) if options.json else format_table(result))
    return USER_ERROR if options.strict and result.missing else 0


def _is_output(given: str) -> bool:
    """Whether this program wrote the turns of a file or folder, as far as their first lines tell."""
    path = Path(given)
    firsts = [first_line(file) for file in (sorted(path.glob("*.rttm")) if path.is_dir() else [path])]
    return any(firsts) and all(is_own_line(line) for line in firsts if line)
