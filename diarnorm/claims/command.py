"""`diarnorm claims`: run the experiments behind what is said about norms, and write the report.

Experiments that have a recipe are configured by Hydra; every other one runs as it is.
"""

import importlib
import re
import sys
import time
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from diarnorm.claims.registry import CLAIMS, chosen
from diarnorm.claims.rules import EXACT, STUDY, TIMED, Claim, Experiment
from diarnorm.commands.arguments import Parser
from diarnorm.hydrajob import HydraCommand, quoted
from diarnorm.resources import recipes_dir

OUTPUT = Path("runs/claims")
RECIPES = "claims"
EPILOG = """examples:
  diarnorm claims                          what takes seconds: 1, 3, 4, 5, 7, 10, 11
  diarnorm claims 2 13                     what is timed on this machine
  diarnorm claims 8 data.speech=synthetic  a study; it goes on where it stopped
  diarnorm claims 8 grid.part=0/2          half of it, for one of two processes
  diarnorm claims all                      everything that needs nothing given
  diarnorm claims --report                 the report alone, from what is there
KEY=VALUE changes the recipe of an experiment, recipes/claims/NAME.yaml, of several those that have the key; the README
there has the commands."""


def main(argv: Sequence[str]) -> int:
    """Run `diarnorm claims` with these arguments; the exit code."""
    options = make_parser().parse_intermixed_args(list(argv))
    if options.list:
        print(*listing(), sep="\n")
        return 0
    numbers = [word for word in options.words if "=" not in word]
    overrides = [word for word in options.words if "=" in word]
    experiments = [] if options.report else find_experiments(numbers)
    meant = share_out(overrides, experiments)
    if numbers == ["all"]:
        experiments = with_needs(experiments, overrides)
    import torch

    torch.set_num_threads(1)
    codes = [run(each, meant[each], options.output) for each in experiments]
    _report(options.output)
    return max(codes, default=0)


def make_parser() -> Parser:
    """Options of `diarnorm claims`."""
    parser = Parser("claims", "Put what is said about norms to the test, with a verdict for each claim.", EPILOG)
    parser.add_argument(
        "words", metavar="N|all|KEY=VALUE", nargs="*", help="numbers of claims (default: those that take seconds)"
    )
    parser.add_argument("--list", action="store_true", help="list the claims with their experiments")
    parser.add_argument("--output", metavar="FOLDER", type=Path, default=OUTPUT, help="where the report goes")
    parser.add_argument("--report", action="store_true", help="run nothing, write the report from what is there")
    parser.add_debug()
    return parser


def find_experiments(words: Sequence[str]) -> list[Experiment]:
    """The experiments that are asked for: of some claims, all, or those that take seconds.

    Raises:
        ValueError: a word that is no number of a claim.
    """
    if list(words) == ["all"]:
        return [each for claim in CLAIMS for each in claim.experiments]
    for word in words:
        if not word.isdecimal():
            raise ValueError(f"{word!r} is no claim: give numbers from 1 to {len(CLAIMS)}, or all")
    if words:
        return [each for claim in chosen(tuple(map(int, words))) for each in claim.experiments]
    return [each for claim in CLAIMS for each in claim.experiments if each.kind == EXACT]


def share_out(overrides: Sequence[str], experiments: Sequence[Experiment]) -> dict[Experiment, list[str]]:
    """The changes that each experiment takes: all where just one has a recipe, else those whose key it has.

    Raises:
        ValueError: a change that is none of any of them.
    """
    with_recipe = [each for each in experiments if each.recipe]
    if overrides and not with_recipe:
        raise ValueError(
            f"{overrides[0]} changes a recipe, and none of these experiments has one: name a claim that does"
        )
    if len(with_recipe) < 2:
        return {each: list(overrides) if each.recipe else [] for each in experiments}
    keys = {each: _keys(each) for each in with_recipe} if overrides else {}
    for word in overrides:
        if not any(_key(word) in own for own in keys.values()):
            names = ", ".join(each.recipe for each in with_recipe)
            raise ValueError(f"{word}: no recipe of these has this key: {names} (recipes/{RECIPES}/NAME.yaml)")
    return {each: [word for word in overrides if _key(word) in keys.get(each, ())] for each in experiments}


def _keys(experiment: Experiment) -> set[str]:
    module = importlib.import_module(f"diarnorm.claims.{experiment.module}")
    return {each.name for each in fields(getattr(module, experiment.config))} | {"hydra"}


def _key(override: str) -> str:
    """The first part of the key: `grid` of `+grid.seeds=[0]`."""
    return re.split(r"[.=/@\[]", override.lstrip("+~"))[0]


def with_needs(experiments: Sequence[Experiment], overrides: Sequence[str]) -> list[Experiment]:
    """Those that need nothing given, or to which it is; which others there are goes to standard error."""
    given = {_key(word) for word in overrides}
    kept = [each for each in experiments if not each.needs or each.needs in given]
    for each in experiments:
        if each not in kept:
            print(f"{each.name} is left out: give {each.needs}=..., see recipes/{RECIPES}/README.md", file=sys.stderr)
    return kept


def listing() -> list[str]:
    """A line for each claim, and one for each of its experiments."""
    return [line for claim in CLAIMS for line in _lines(claim)]


def _lines(claim: Claim) -> list[str]:
    kinds = {EXACT: "seconds", TIMED: "minutes", STUDY: "a study"}
    experiments = [
        f"      {each.name}: {kinds.get(each.kind, f'needs {each.needs}=...')}"
        + (f", recipes/{RECIPES}/{each.recipe}.yaml" if each.recipe else "")
        for each in claim.experiments
    ]
    criteria = [f"      - {each.says}: {each.bounds}" for each in claim.criteria]
    return [f"{claim.number:3}. {claim.sentence} ({claim.source})", *experiments, *criteria]


def run(experiment: Experiment, overrides: Sequence[str], output: Path) -> int:
    """Run one experiment and keep its evidence; 0, or 2 where its recipe or what it is given does not fit."""
    print(f"{experiment.name} ...", file=sys.stderr, flush=True)
    module = importlib.import_module(f"diarnorm.claims.{experiment.module}")
    function = getattr(module, experiment.function)
    if not experiment.config:
        _keep(function, (), (), output)
        return 0
    folder = output / experiment.name

    def work(values: Any) -> dict[str, float]:
        config = _configured(command, values, getattr(module, experiment.config))
        _keep(function, (config, folder) if experiment.kind == STUDY else (config,), overrides, output)
        return {}

    config_class = getattr(module, experiment.config)
    command = HydraCommand("claims", experiment.name, lambda: config_class, work, "'speech=\"~/a=b,c\"'", ("models",))
    where = [f"hydra.run.dir={quoted(str(folder))}", "hydra.output_subdir=null"]
    return command.run([*overrides, *where], recipes_dir() / RECIPES, experiment.recipe, experiment.name)


def _configured(command: HydraCommand, config: Any, config_class: type) -> Any:
    """The dataclass of a configuration that Hydra composed; paths of a training mean the caller's folder."""
    from diarnorm.checkpoint import from_plain
    from diarnorm.commands.train import absolute_paths
    from diarnorm.training.config import RunConfig

    values = command.values(config)
    if issubclass(config_class, RunConfig):
        values = absolute_paths(values, Path.cwd())
    return from_plain(config_class, values)


def _keep(function: Any, arguments: tuple[Any, ...], overrides: Sequence[str], output: Path) -> None:
    from diarnorm.claims.cells import StudyConfig
    from diarnorm.claims.conditions import with_conditions
    from diarnorm.claims.records import record_of, save

    begin = time.perf_counter()
    evidence = function(*arguments)
    if evidence is None:
        return
    for config in arguments:
        if isinstance(config, StudyConfig):
            evidence = with_conditions(evidence, config)
    save(record_of(evidence, time.perf_counter() - begin, overrides), output)


def _report(output: Path) -> None:
    """Write the report, print what each claim came to."""
    from rich.console import Console
    from rich.table import Table

    from diarnorm.claims.records import load_all
    from diarnorm.claims.report import write_report
    from diarnorm.claims.words import headline
    from diarnorm.evaluation.figures import NO_MATPLOTLIB, has_matplotlib

    judgements = write_report(output, load_all(output))
    table = Table("#", "claim", "verdict", "first figure (95 % interval)")
    for each in judgements:
        table.add_row(str(each.claim.number), each.claim.sentence, each.verdict, headline(each))
    Console().print(table)
    if not has_matplotlib():
        print(f"diarnorm claims: {NO_MATPLOTLIB}", file=sys.stderr)
    print(f"{output}/claims.html, claims.md, claims.json written", file=sys.stderr)
