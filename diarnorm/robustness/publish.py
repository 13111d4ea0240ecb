"""From a study to its report: tables, pictures, sounds, and the page with all of them."""

from pathlib import Path

from diarnorm.evaluation.recordings import parse_source, read_set
from diarnorm.robustness.conditions import Condition
from diarnorm.robustness.corruption import parse
from diarnorm.robustness.figures import draw_all
from diarnorm.robustness.page import page, write_page
from diarnorm.robustness.players import Player, players_of
from diarnorm.robustness.study import Study
from diarnorm.robustness.summary import cells_of, rows_of
from diarnorm.robustness.tables import change_table, report, write_tables


def publish(study: Study, run_dir: Path, folder: Path) -> tuple[str, list[Path], list[str]]:
    """Write the whole report into `run_dir`; the table of changes of every set, the paths, and what a user should know.

    Relative paths in the configuration start in `folder`. Without matplotlib there are no pictures, and a note.
    """
    rows, cells = rows_of(study), cells_of(study)
    paths, notes = write_tables(study, rows, cells, run_dir), list(study.notes)
    pictures: dict[str, Path] = {}
    try:
        pictures = draw_all(study, rows, cells, run_dir)
    except ValueError as error:
        notes.append(str(error))
    text = page(study, rows, cells, pictures, _players(study, folder))
    tables = [
        f"{name}:\n\n{change_table(study, [row for row in rows if row.set_name == name])}" for name in study.recordings
    ]
    printed = "\n\n".join(tables) or report(study, rows, cells)
    return printed, [*paths, *pictures.values(), write_page(text, run_dir)], notes


def _players(study: Study, folder: Path) -> list[Player]:
    """Sounds of the first recording in which somebody speaks."""
    config = study.config
    if not config.players:
        return []
    for name, given in config.sets.items():
        for recording in read_set(name, parse_source(name, given), folder).recordings:
            if recording.reference:
                conditions = [Condition(), *(Condition(parse(words.split())) for words in config.players)]
                return players_of(recording, conditions, config.player_s, config.seed)
    return []
