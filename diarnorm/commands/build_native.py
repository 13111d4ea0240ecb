"""`diarnorm build-native`: compile RMSNorm's native CPU kernel for this machine."""

from collections.abc import Sequence
from time import perf_counter

from diarnorm.commands.arguments import Parser

EPILOG = """\
The kernel makes norm=rms faster than norm=layer on a CPU; the results are the same up to rounding. It needs a C++
compiler (c++, g++ or clang++, or the one named in the variable CXX), takes 10 to 30 seconds, and is written to
$XDG_CACHE_HOME/diarnorm (~/.cache/diarnorm). To be rid of it, delete that folder.

Exit codes: 0; 2 where there is no compiler, or it cannot compile the kernel."""


def make_parser() -> Parser:
    """Options of `diarnorm build-native`."""
    parser = Parser("build-native", "Compile RMSNorm's native CPU kernel for this machine and its torch.", EPILOG)
    parser.add_argument("--force", action="store_true", help="compile again what is there")
    parser.add_debug()
    return parser


def main(argv: Sequence[str]) -> int:
    """Run `diarnorm build-native` with these arguments; the exit code."""
    options = make_parser().parse_args(argv)
    from diarnorm.kernels import native

    path = native.library_path()
    if path.exists() and not options.force:
        print(f"{path} is there already (--force compiles it again)")
    else:
        started_s = perf_counter()
        native.build()
        print(f"{path} compiled in {perf_counter() - started_s:.0f} s; RMSNorm on the CPU uses it from now on")
    if native.load_library() is None:
        raise ValueError(f"{path} cannot be loaded: compile it again with --force, or name another compiler in CXX")
    return 0
