"""Under what conditions a study trained, in words: sizes that its figures are about."""

from dataclasses import replace

from diarnorm.claims.cells import StudyConfig
from diarnorm.claims.evidence import Evidence
from diarnorm.claims.finetuning import FinetuneConfig
from diarnorm.resources import cache_dir
from diarnorm.simulation.synthetic import SYNTHETIC


def with_conditions(evidence: Evidence, config: StudyConfig) -> Evidence:
    """The evidence, which says first how its runs were trained."""
    return replace(evidence, notes=(in_words(config), *evidence.notes))


def in_words(config: StudyConfig) -> str:
    """Model, data and schedule of a study's runs."""
    train, stage = config.train, config.data.stages[0]
    made_up = config.data.speech in (SYNTHETIC, str(cache_dir() / SYNTHETIC))
    voices = "voices that the program makes" if made_up else "speakers of a corpus"
    warmup = f"{train.warmup_steps} of warm-up" if train.warmup_steps else "without warm-up"
    after = "then at the highest rate to the end" if train.decay_from >= 1 else "then down to the end"
    return (
        f"{_model(config)}; {train.num_steps} steps of {train.optimizer}, {warmup}, {after}; batches of "
        f"{stage.batch_size} conversations of {stage.crop_s:g} s with up to {stage.max_speakers} speakers, {voices}; "
        f"seeds {', '.join(map(str, config.grid.seeds))}."
    )


def _model(config: StudyConfig) -> str:
    if isinstance(config, FinetuneConfig):
        return f"Models that start from {config.pretrained}"
    depths = " or ".join(map(str, config.grid.depths))
    return f"Models with D = {config.model.encoder.dim} and {depths} blocks"
