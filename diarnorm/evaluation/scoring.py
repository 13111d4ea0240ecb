"""Diarization error rate and its companions, computed by pyannote.metrics, with every convention stated.

Collars follow NIST: `collar_s` seconds on *each* side of every boundary of the reference are not scored.
pyannote's `collar` is the total width, twice that.
"""

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING

from diarnorm.evaluation.causes import find_causes
from diarnorm.evaluation.scores import Components, FileScore, ScoreResult
from diarnorm.rttm import legal_name, read_rttm, read_uem
from diarnorm.timebase import frames_to_seconds, seconds_to_frames
from diarnorm.turns import Turn, merge_turns

if TYPE_CHECKING:
    from pyannote.core import Annotation, Timeline

ROUNDED_S = 1e-3
"""Times in RTTM and UEM files have no more decimals: what is after an end by no more is not after it."""
Recordings = Mapping[str, Sequence[Turn]]
Regions = Mapping[str, Sequence[tuple[float, float]]]


def score(
    reference: Recordings,
    hypothesis: Recordings,
    uem: Regions | None = None,
    *,
    collar_s: float = 0.0,
    skip_overlap: bool = False,
    durations_s: Mapping[str, float] | None = None,
) -> ScoreResult:
    """Score turns per recording against a reference.

    The region of a recording is that of `uem`, up to its end in `durations_s`; without a UEM, all of its length;
    without that, the union of the extents of reference and hypothesis, so that false alarms outside the reference
    count. Recordings in both `uem` and `hypothesis` but not in `reference` have an empty reference; a
    recording without a hypothesis is missed entirely. `collar_s` seconds on each side of the reference's
    boundaries, and with `skip_overlap` all time in which the reference has two or more speakers, are left
    out.

    Errors: ValueError for a negative collar and when no recording is left to be scored.
    """
    if not (collar_s >= 0 and isfinite(collar_s)):
        raise ValueError(f"collar_s must be seconds on each side, 0 or more, got {collar_s}")
    warnings: list[str] = []
    uris = _scored_uris(reference, hypothesis, uem, warnings)
    missing = tuple(uri for uri in uris if uri not in hypothesis)
    warnings += [f"{uri}: no hypothesis; all of its speech counts as missed" for uri in missing]
    lengths = durations_s if durations_s is not None else {}
    files: list[FileScore] = []
    for uri in uris:
        ref, hyp = reference.get(uri, ()), hypothesis.get(uri, ())
        region = scored_region(ref, hyp, uem[uri] if uem is not None else None, lengths.get(uri))
        if uem is not None and uri in lengths and goes_on(uem[uri], lengths[uri]):
            warnings.append(region_cut(uri, lengths[uri]))
        if uem is None and uri in lengths and any(turn.end > lengths[uri] + ROUNDED_S for turn in (*ref, *hyp)):
            warnings.append(f"{uri}: turns after the end of the file ({lengths[uri]:.3f} s) are not scored")
        files.append(score_recording(uri, ref, hyp, region, collar_s, skip_overlap))
    words = "UEM" if uem is not None else "each file from 0 to its end"
    if uem is None and not all(uri in lengths for uri in uris):
        words = extents_in_words(some_known=bool(lengths))
        warnings.append(f"{NO_UEM}: {words}")
    return ScoreResult(tuple(files), collar_s, skip_overlap, words, missing, tuple(warnings))


def score_files(
    reference: str | Path,
    hypothesis: str | Path,
    uem: str | Path | None = None,
    *,
    collar_s: float = 0.0,
    skip_overlap: bool = False,
    durations_s: Mapping[str, float] | None = None,
) -> ScoreResult:
    """`score` of files: RTTM files or folders of them, and a UEM file.

    An RTTM file without any turn stands for a silent recording with the name of the file.

    Errors: as `score` and `read_recordings`.
    """
    notes: list[str] = []
    of_hypotheses: list[str] = []
    references, hypotheses = read_recordings(reference, notes), read_recordings(hypothesis, of_hypotheses)
    notes = [*(f"reference: {note}" for note in notes), *(f"hypothesis: {note}" for note in of_hypotheses)]
    regions = None if uem is None else read_uem(uem)
    result = score(
        references, hypotheses, regions, collar_s=collar_s, skip_overlap=skip_overlap, durations_s=durations_s
    )
    return replace(result, warnings=(*notes, *result.warnings))


def score_recording(
    uri: str,
    ref: Sequence[Turn],
    hyp: Sequence[Turn],
    region: Sequence[tuple[float, float]],
    collar_s: float,
    skip_overlap: bool,
) -> FileScore:
    """Scores of one recording; what lies outside `region`, (start, end) in seconds, is not scored."""
    from pyannote.core import Segment, Timeline
    from pyannote.metrics.diarization import DiarizationErrorRate, JaccardErrorRate

    uem = Timeline([Segment(start, end) for start, end in region]).support()
    metric = DiarizationErrorRate(collar=2 * collar_s, skip_overlap=skip_overlap)
    truth, found = _annotation(ref), _annotation(hyp)
    scored = metric.extrude(uem, truth, collar=2 * collar_s, skip_overlap=skip_overlap)
    speaker_of = {str(label): str(name) for label, name in metric.optimal_mapping(truth, found, scored).items()}

    def components(turns: "Annotation") -> Components:
        detail = metric.compute_components(truth, turns, uem=uem)
        return Components(detail["missed detection"], detail["false alarm"], detail["confusion"], detail["total"])

    return FileScore(
        uri=uri,
        errors=components(found),
        merged=components(_annotation([Turn(start, end, "merged") for start, end in merge_turns(hyp)])),
        grid=components(_annotation(_on_grid(ref))),
        jaccard_errors=JaccardErrorRate().compute_components(truth, found, uem=uem)["speaker error"],
        num_reference_speakers=_num_speakers(truth, uem),
        num_hypothesis_speakers=_num_speakers(found, uem),
        scored_s=float(scored.duration()),
        causes=find_causes(ref, hyp, [(span.start, span.end) for span in scored], speaker_of),
    )


def _annotation(turns: Iterable[Turn]) -> "Annotation":
    """Turns for pyannote, those of one speaker joined where they overlap or touch."""
    from pyannote.core import Annotation, Segment

    by_speaker: dict[str, list[Turn]] = {}
    for turn in turns:
        by_speaker.setdefault(turn.speaker, []).append(turn)
    annotation = Annotation()
    for speaker, own in by_speaker.items():
        for start, end in merge_turns(own):
            annotation[Segment(start, end), speaker] = speaker
    return annotation


def _num_speakers(annotation: "Annotation", uem: "Timeline") -> int:
    return len(annotation.crop(uem, mode="intersection").labels())


def _on_grid(turns: Iterable[Turn]) -> list[Turn]:
    """Turns with edges moved to the nearest frame edge; those that vanish are left out."""
    frames = ((seconds_to_frames(t.start), seconds_to_frames(t.end), t.speaker) for t in turns)
    return [Turn(frames_to_seconds(a), frames_to_seconds(b), speaker) for a, b, speaker in frames if b > a]


def scored_region(
    ref: Sequence[Turn],
    hyp: Sequence[Turn],
    region: Sequence[tuple[float, float]] | None,
    duration_s: float | None,
) -> Sequence[tuple[float, float]]:
    """What is scored of one recording: the region given, up to its end where that is known, else all of it, else the
    extent of both together."""
    if region is not None:
        return region if duration_s is None else up_to(region, duration_s)
    if duration_s is not None:
        return [(0.0, duration_s)]
    turns = (*ref, *hyp)
    return [(min(turn.start for turn in turns), max(turn.end for turn in turns))] if turns else []


NO_UEM = "no UEM given; scored region"
"""How the warning begins where neither a UEM nor lengths say what is scored."""


def extents_in_words(*, some_known: bool) -> str:
    """What is scored without a UEM where lengths are not known, or only those of some recordings."""
    known = ", or the whole file where its length is known" if some_known else ""
    return f"union of the extents of reference and hypothesis{known}"


def goes_on(region: Iterable[tuple[float, float]], duration_s: float) -> bool:
    """Whether a region goes on after the end of its recording, by more than times in files are rounded."""
    return any(end > duration_s + ROUNDED_S for _, end in region)


def region_cut(uri: str, duration_s: float) -> str:
    """What a user should know of a region that goes on after the end of its recording."""
    return f"{uri}: the region goes on after the end ({duration_s:.3f} s) and is cut there"


def up_to(region: Sequence[tuple[float, float]], duration_s: float) -> tuple[tuple[float, float], ...]:
    """What of a region lies before the end of its recording.

    >>> up_to([(0.0, 2.0), (4.0, 9.0), (12.0, 15.0)], 5.0)
    ((0.0, 2.0), (4.0, 5.0))
    """
    if not goes_on(region, duration_s):
        return tuple(region)
    return tuple((start, min(end, duration_s)) for start, end in region if start < duration_s)


def _scored_uris(reference: Recordings, hypothesis: Recordings, uem: Regions | None, warnings: list[str]) -> list[str]:
    """Recordings to score, in the order of the reference; what is left out goes to `warnings`."""
    uris = list(reference)
    if uem is not None:
        warnings += [f"{uri}: not in the UEM, not scored" for uri in uris if uri not in uem]
        uris = [uri for uri in uris if uri in uem]
        silent = [uri for uri in uem if uri not in reference and uri in hypothesis]
        warnings += [f"{uri}: in the UEM but not in the reference, taken as silent" for uri in silent]
        uris += silent
    absent = [uri for uri in reference if uri not in hypothesis]
    for uri in hypothesis:
        if uri not in reference and uri not in uris:
            close = difflib.get_close_matches(uri, absent, n=1)
            hint = f"; is it {close[0]!r} of the reference?" if close else ""
            warnings.append(f"{uri}: hypothesis without a reference, not scored{hint}")
    if not uris:
        names = ", ".join(list(reference)[:3]) if reference else "no recording"
        raise ValueError(
            f"nothing to score: the reference holds {names}"
            + ("" if uem is None else f" and the UEM {', '.join(list(uem)[:3]) if uem else 'no recording'}")
        )
    return uris


def read_recordings(path: str | Path, notes: list[str]) -> dict[str, list[Turn]]:
    """Turns per recording of one RTTM file or of all `*.rttm` in a folder.

    Errors: ValueError for a folder without such files, or with two about one recording; as `read_rttm`; OSError.
    """
    path = Path(path)
    paths = sorted(path.glob("*.rttm")) if path.is_dir() else [path]
    if not paths:
        raise ValueError(f"{path}: the folder has no *.rttm files")
    return joined((file, read_rttm(file, notes) or {legal_name(file.stem): []}) for file in paths)


def joined(files: Iterable[tuple[Path, Mapping[str, list[Turn]]]]) -> dict[str, list[Turn]]:
    """Turns per recording of several files, of which each recording has one.

    Errors: ValueError for two files about one recording.
    """
    recordings: dict[str, list[Turn]] = {}
    source: dict[str, Path] = {}
    for path, own in files:
        for uri in own:
            if uri in source:
                raise ValueError(f"{path} and {source[uri].name} are both about {uri}: remove one")
            source[uri] = path
        recordings |= own
    return recordings
