"""Models times sets of recordings: every recording is diarized and scored by itself, in as many processes as asked for.

A job does the recordings of its shard and leaves `results/K-of-N.json`: the seconds of every recording, from which the
table is made. So one process, several, and jobs on several machines give the same table, to the last bit.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from diarnorm.evaluation.config import EvaluateConfig, parse_shard
from diarnorm.evaluation.hypotheses import Candidate, Hypothesis, Settings, diarize, find_candidates, given_turns
from diarnorm.evaluation.labels import LabelScore, label_score
from diarnorm.evaluation.pool import outcomes
from diarnorm.evaluation.progress import EvaluationProgress
from diarnorm.evaluation.recordings import Recording, RecordingSet, read_set
from diarnorm.evaluation.results import Heading, Result, Shard
from diarnorm.evaluation.scoring import score_recording, scored_region
from diarnorm.evaluation.sources import parse_source
from diarnorm.files import legal_folder, shared_folder
from diarnorm.turns import Turn, merge_turns


@dataclass(frozen=True)
class Scoring:
    """How hypotheses are scored."""

    collars_s: tuple[float, ...]
    skip_overlap: bool
    long_s: float
    pause_s: float


@dataclass(frozen=True)
class Task:
    """One model on one recording: all that a process needs to know."""

    candidate: Candidate
    set_name: str
    recording: Recording
    scoring: Scoring
    rttm: Path
    """Where the hypothesis of a model that runs is kept."""
    given: tuple[Turn, ...] | None
    """Turns that were read; None where the model has none."""


def evaluate(config: EvaluateConfig, run_dir: Path, folder: Path) -> Shard:
    """Do the recordings of the shard that the configuration asks for; relative paths in it start in `folder`.

    Raises:
        ValueError: a path or a value that does not fit, or a recording that cannot be read.
    """
    if not config.sets:
        raise ValueError("no recordings to evaluate on: give a folder of them as sets.NAME=FOLDER")
    shared = shared_folder(config.sets)
    if shared is not None:
        raise ValueError(f"two sets would both write to a folder {shared}: give one another name, sets.NAME=FOLDER")
    settings = Settings(device=config.device).changed_by(config)
    candidates = find_candidates(config.models, folder, settings)
    needs_audio = any(candidate.is_network for candidate in candidates)
    sources = {name: parse_source(name, given) for name, given in config.sets.items()}
    sets = [read_set(name, source, folder, needs_audio=needs_audio) for name, source in sources.items()]
    notes: dict[str, list[str]] = {each.name: list(each.notes) for each in sets}
    tasks = _tasks(config, candidates, sets, run_dir, notes)
    number, of = parse_shard(config.shard)
    own = [task for group in tasks[number::of] for task in group]
    results = run_tasks(own, config.workers)
    heading = Heading.of(config, candidates, sets, notes)
    return Shard(heading, number, of, tuple(results))


def _tasks(
    config: EvaluateConfig,
    candidates: Sequence[Candidate],
    sets: Sequence[RecordingSet],
    run_dir: Path,
    notes: dict[str, list[str]],
) -> list[list[Task]]:
    """Every model, for every recording of every set."""
    scoring = Scoring(config.collars_s, config.skip_overlap, config.long_s, config.pause_s)

    def tasks_of(each: RecordingSet) -> Iterator[list[Task]]:
        given = {one.name: _given(one, each, notes[each.name]) for one in candidates if not one.is_network}
        for recording in each.recordings:
            file = Path(legal_folder(each.name)) / f"{recording.name}.rttm"
            yield [
                Task(
                    one,
                    each.name,
                    recording,
                    scoring,
                    run_dir / "hypotheses" / legal_folder(one.name) / file,
                    given.get(one.name, {}).get(recording.name),
                )
                for one in candidates
            ]

    return [tasks for each in sets for tasks in tasks_of(each)]


def _given(candidate: Candidate, each: RecordingSet, notes: list[str]) -> dict[str, tuple[Turn, ...]]:
    """Turns of a folder of RTTM files; what is missing there, or too much, goes to `notes`."""
    odd: list[str] = []
    turns = given_turns(candidate, each.name, odd)
    notes += [f"{candidate.name}: {note}" for note in odd]
    names = {recording.name for recording in each.recordings}
    notes += [
        f"{name}: no hypothesis by {candidate.name}; all of its speech counts as missed"
        for name in sorted(names - turns.keys())
    ]
    notes += [
        f"{name}: hypothesis by {candidate.name} without a reference, not scored"
        for name in sorted(turns.keys() - names)
    ]
    return {name: tuple(found) for name, found in turns.items()}


def run_tasks(tasks: Sequence[Task], workers: int) -> list[Result]:
    """Do the tasks in `workers` processes, the longest first; results come in the order of the tasks.

    A recording that cannot be read does not keep the others from being done.

    Raises:
        ValueError: some recordings could not be done; the others are kept.
    """
    order = sorted(range(len(tasks)), key=lambda at: -(tasks[at].recording.duration_s or 0))
    results: dict[int, Result] = {}
    failed: list[ValueError] = []
    with_torch = any(task.candidate.is_network for task in tasks)
    with EvaluationProgress([task.recording.duration_s or 0.0 for task in tasks]) as progress:
        for at, outcome in outcomes(score_task, tasks, order, workers, with_torch=with_torch):
            if isinstance(outcome, ValueError):
                failed.append(outcome)
            elif isinstance(outcome, Exception):
                raise outcome
            else:
                results[at] = outcome
            progress.done(at)
    if failed:
        others = f"; {len(failed)} of {len(tasks)} failed, the others are kept" if len(tasks) > 1 else ""
        raise ValueError(f"{failed[0]}{others}") from failed[0]
    return [results[at] for at in range(len(tasks))]


def score_task(task: Task) -> Result:
    """Diarize a recording, unless its turns are there, and score it."""
    recording, scoring = task.recording, task.scoring
    hypothesis = Hypothesis(task.given or (), None, ())
    if task.candidate.is_network:
        assert recording.audio is not None
        hypothesis = diarize(task.candidate, recording.audio, task.rttm, recording.reference)
    turns = hypothesis.turns
    region = scored_region(recording.reference, turns, recording.region, recording.duration_s)
    return Result(
        set_name=task.set_name,
        recording=recording.name,
        model=task.candidate.name,
        duration_s=recording.duration_s,
        busy_s=hypothesis.busy_s,
        scores=tuple(
            score_recording(recording.name, recording.reference, turns, region, collar_s, scoring.skip_overlap)
            for collar_s in scoring.collars_s
        ),
        labels=_label_score(recording.reference, turns, region, scoring),
        missing=not task.candidate.is_network and task.given is None,
        notes=hypothesis.notes,
    )


def _label_score(
    reference: Sequence[Turn], turns: Sequence[Turn], region: Iterable[tuple[float, float]], scoring: Scoring
) -> LabelScore | None:
    """How steady the labels are in what is scored; None where that is not long."""
    spans = merge_turns(Turn(start, end, "") for start, end in region if end > start)
    scored_s = sum(end - start for start, end in spans)
    if scored_s < scoring.long_s:
        return None
    return label_score(clip(reference, spans), clip(turns, spans), scored_s, scoring.pause_s, whole=reference)


def clip(turns: Iterable[Turn], spans: Sequence[tuple[float, float]]) -> list[Turn]:
    """What of the turns lies in the spans, (start, end) in seconds.

    >>> clip([Turn(1.0, 5.0, "A")], [(0.0, 2.0), (4.5, 9.0)])
    [Turn(start=1.0, end=2.0, speaker='A'), Turn(start=4.5, end=5.0, speaker='A')]
    """
    return [
        Turn(max(turn.start, start), min(turn.end, end), turn.speaker)
        for turn in turns
        for start, end in spans
        if min(turn.end, end) > max(turn.start, start)
    ]
