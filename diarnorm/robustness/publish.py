"""From a study to its report: tables, pictures, sounds, and the page with all of them."""

from pathlib import Path

from diarnorm.evaluation.figures import has_matplotlib
from diarnorm.evaluation.recordings import read_set
from diarnorm.evaluation.sources import parse_source
from diarnorm.robustness.conditions import find_players
from diarnorm.robustness.figures import draw_all, draw_for_page
from diarnorm.robustness.grid import cells_of, contrasts_of
from diarnorm.robustness.page import page, write_page
from diarnorm.robustness.players import Player, players_of
from diarnorm.robustness.study import Study
from diarnorm.robustness.summary import rows_of
from diarnorm.robustness.tables import change_table, report, write_tables


def publish(study: Study, run_dir: Path, folder: Path) -> tuple[str, list[Path], list[str]]:
    """Write the whole report into `run_dir`; the table of changes of every set, the paths, and what a user should know.

    Relative paths in the configuration start in `folder`. Without matplotlib there are no pictures, and a note.
    """
    rows = rows_of(study)
    cells, contrasts = cells_of(study, rows), contrasts_of(study)
    notes = list(study.notes)
    pictures: dict[str, Path] = {}
    panels: dict[str, dict[str, list[str]]] = {}
    if has_matplotlib():
        pictures = draw_all(study, rows, cells, run_dir)
        panels = {name: draw_for_page(study, rows, name) for name in study.recordings}
    else:
        notes.append("pictures need matplotlib: pip install 'diarnorm[plot]'")
    paths = write_tables(study, rows, cells, contrasts, run_dir, pictures)
    text = page(study, rows, cells, contrasts, panels, _players(study, folder))
    tables = [
        f"{name}:\n\n{change_table(study, [row for row in rows if row.set_name == name])}" for name in study.recordings
    ]
    printed = "\n\n".join(tables) or report(study, rows, cells, contrasts)
    return printed, [*paths, *pictures.values(), write_page(text, run_dir)], notes


def _players(study: Study, folder: Path) -> list[Player]:
    """Sounds of the first recording in which somebody speaks."""
    config = study.config
    conditions = find_players(config)
    if not conditions:
        return []
    for name, given in config.sets.items():
        for recording in read_set(name, parse_source(name, given), folder).recordings:
            if recording.reference:
                return players_of(recording, conditions, config.player_s, config.seed)
    return []
