"""`diarnorm bench train`: how fast this machine makes conversations, and how fast models with each norm learn.

On one CPU thread the figures are per second of that thread's own time, which other processes cannot lengthen by taking
the processor away; on a GPU per second of its clock. Models are trained in turns, one step each, on one batch: the
ratio is the median over the rounds, with the 95 % interval of that median.
"""

import json
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from diarnorm.commands.arguments import Parser, at_least, checked
from diarnorm.commands.simulatorfile import CONFIG_HELP, read_simulator
from diarnorm.modelfile import as_json
from diarnorm.resources import cache_dir
from diarnorm.simulation.synthetic import SYNTHETIC, speech_source

if TYPE_CHECKING:
    import torch

    from diarnorm.bench.stopwatch import Call
    from diarnorm.training.batches import SimulatedBatches

NORMS = ("rms", "layer", "batch", "none")
BASELINE = "layer"
WARM_UP = 2
"""Batches and steps that are not timed."""


@dataclass(frozen=True)
class Rate:
    """Seconds of audio per second, with the 95 % interval of the median over batches, infinite below six of them."""

    what: str
    audio_s_per_s: float
    low: float
    high: float


@dataclass(frozen=True)
class StepTime:
    """Training with one norm; the ratio is that of its time over the baseline's, below 1 is faster."""

    norm: str
    step_ms: float
    steps_per_s: float
    audio_s_per_s: float
    ratio: float
    low: float
    high: float


def main(argv: Sequence[str]) -> int:
    """Run `diarnorm bench train` with these arguments; the exit code."""
    parser = make_parser()
    options = parser.parse_args(argv)
    files = {"--noise": options.noise, "--config": options.config}
    files["--speech"] = None if options.speech == SYNTHETIC else options.speech
    for option, path in files.items():
        if path is not None and not Path(path).exists():
            parser.error(f"{option} {path} does not exist")
    import torch

    from diarnorm.bench.stopwatch import find_device

    torch.set_num_threads(options.threads)
    device = find_device(options.device)
    batches = _batches(options, device)
    rates = measure_simulator(batches, options.batches)
    steps = measure_steps(batches, list(dict.fromkeys(options.norms)), options.steps) if options.steps else []
    if options.json:
        figures = {"simulator": [asdict(rate) for rate in rates], "training": [asdict(step) for step in steps]}
        print(json.dumps(as_json(figures)))
    else:
        print(table(rates, steps, options.threads, device))
    return 0


def make_parser() -> Parser:
    """Options of `diarnorm bench train`."""
    parser = Parser("bench train", "Time the simulator, and training with each norm.")
    number = at_least(1)
    parser.add_argument("--steps", metavar="N", type=at_least(0), default=20, help="training steps of each norm")
    parser.add_argument(
        "--norms", metavar="NAME", nargs="+", choices=NORMS, default=["rms", "layer", "batch"], help="norms"
    )
    parser.add_argument("--batches", metavar="N", type=number, default=10, help="batches that the simulator makes")
    parser.add_argument("--batch", metavar="N", type=number, default=8, help="conversations in a batch")
    parser.add_argument(
        "--seconds", metavar="S", type=checked(float, _check_length), default=30.0, help="length of each, in seconds"
    )
    parser.add_argument(
        "--speech", metavar="PATH", default=SYNTHETIC, help="a manifest, or a folder with one folder for each speaker"
    )
    parser.add_argument("--split", metavar="NAME", help="speakers of this split only")
    parser.add_argument("--noise", metavar="DIR", help="noise recordings, one folder for each kind")
    parser.add_argument("--config", metavar="FILE", help=CONFIG_HELP)
    parser.add_argument("--cache-dir", metavar="DIR", help="decoded speech (default: ~/.cache/diarnorm)")
    parser.add_argument("--device", metavar="NAME", default="cpu", help="cpu, cuda, cuda:1")
    parser.add_argument("--threads", metavar="N", type=number, default=1, help="CPU threads")
    parser.add_argument("--json", action="store_true", help="one line of JSON instead of a table")
    parser.add_debug()
    return parser


def _check_length(value: float) -> None:
    if not 1 <= value <= 600:
        raise ValueError(f"{value:g} is out of range: give seconds from 1 to 600")


def _batches(options: Namespace, device: "torch.device") -> "SimulatedBatches":
    from diarnorm.simulation.planner import SimulatorConfig
    from diarnorm.simulation.speech import CLIPS, load_speech
    from diarnorm.training.batches import CurriculumStage, SimulatedBatches

    config = SimulatorConfig() if options.config is None else read_simulator(Path(options.config))
    cache = cache_dir() if options.cache_dir is None else Path(options.cache_dir)
    split = options.split or ("train" if options.speech == SYNTHETIC else None)
    speech = load_speech(speech_source(options.speech, cache), split=split, cache_dir=cache)
    clips = load_speech(options.noise, config=CLIPS, cache_dir=cache) if options.noise else None
    shares = config.speaker_probabilities
    stage = CurriculumStage(
        batch_size=options.batch, crop_s=options.seconds, max_speakers=len(shares), speaker_probabilities=shares
    )
    return SimulatedBatches(
        speech, seed=0, num_steps=10**6, stages=(stage,), simulator=config, clips=clips, device=device
    )


def measure_simulator(batches: "SimulatedBatches", num_batches: int) -> list[Rate]:
    """Audio made per second: plans and samples alone, then with features."""
    import torch

    from diarnorm.bench.stopwatch import sample
    from diarnorm.simulation.render import render
    from diarnorm.timebase import samples_to_seconds

    device = torch.device(batches.device)
    sizes: list[int] = []

    def simulate(step: int) -> None:
        mixture = render(batches.plans(step), batches.speech, clips=batches.clips, device=device)
        sizes.append(mixture.samples.numel())

    alone = [sample(lambda step=step: simulate(step), device, 1) for step in range(WARM_UP + num_batches)]
    whole = [sample(lambda step=step: batches[step], device, 1) for step in range(WARM_UP + num_batches)]
    audio_s = samples_to_seconds(sizes[0])
    names = ("simulator", "simulator and features")
    return [
        _rate(name, [audio_s / t for t in times[WARM_UP:]]) for name, times in zip(names, (alone, whole), strict=True)
    ]


def _rate(what: str, rates: Sequence[float]) -> Rate:
    from diarnorm.bench.stopwatch import interval_of

    return Rate(what, median(rates), *interval_of(rates))


def measure_steps(batches: "SimulatedBatches", norms: Sequence[str], num_steps: int) -> list[StepTime]:
    """Training steps (losses, gradients, optimiser) of a model with each norm, in turns on the same batch."""
    import torch

    from diarnorm.bench.stopwatch import interval_of, sample
    from diarnorm.timebase import frames_to_seconds

    device = torch.device(batches.device)
    item = batches[0]
    calls = {norm: _training_call(norm, item, batches.speech.num_classes, device) for norm in norms}
    times: dict[str, list[float]] = {norm: [] for norm in norms}
    for round_number in range(WARM_UP + num_steps):
        at = round_number % len(norms)
        for norm in (*norms[at:], *norms[:at]):
            elapsed_s = sample(calls[norm], device, 1)
            if round_number >= WARM_UP:
                times[norm].append(elapsed_s)
    baseline = times[BASELINE if BASELINE in norms else norms[0]]
    audio_s = item["activity"].shape[0] * frames_to_seconds(item["activity"].shape[1])
    out = []
    for norm in norms:
        step_s = median(times[norm])
        ratios = [own / other for own, other in zip(times[norm], baseline, strict=True)]
        figures = (1000 * step_s, 1 / step_s, audio_s / step_s, median(ratios), *interval_of(ratios))
        out.append(StepTime(norm, *figures))
    return out


def _training_call(norm: str, item: dict[str, "torch.Tensor"], num_classes: int, device: "torch.device") -> "Call":
    """One step of a model with this norm on a batch that stays the same."""
    import torch

    from diarnorm.conformer import EncoderConfig
    from diarnorm.model import Model, ModelConfig
    from diarnorm.training.batches import Batch
    from diarnorm.training.lossconfig import LossConfig
    from diarnorm.training.losses import training_losses
    from diarnorm.training.voices import SpeakerHeads

    torch.manual_seed(0)
    model = Model(ModelConfig(encoder=EncoderConfig(norm=norm))).to(device).train()
    heads = SpeakerHeads(model.config.memory.embedding_dim, num_classes).to(device)
    optimizer = torch.optim.AdamW([*model.parameters(), *heads.parameters()], 1e-4)
    batch = Batch(*(item[name].to(device) for name in Batch._fields))

    def step() -> None:
        generator = torch.Generator().manual_seed(0)
        losses = training_losses(model, heads, batch, LossConfig(), chunk=12, free_running=False, generator=generator)
        optimizer.zero_grad()
        torch.stack(list(losses.values())).sum().backward()
        optimizer.step()

    return step


def table(rates: Sequence[Rate], steps: Sequence[StepTime], threads: int, device: "torch.device") -> str:
    """The figures as text."""
    from diarnorm.bench.stopwatch import spoken_interval

    where = f"{threads} thread(s)" if device.type == "cpu" else str(device)
    lines = [f"seconds of audio per second on {where}, median over batches with its 95 % interval:"]
    lines += [f"  {r.what:24} {r.audio_s_per_s:9.0f}   {spoken_interval(r.low, r.high, digits=0)}" for r in rates]
    if steps:
        baseline = BASELINE if any(step.norm == BASELINE for step in steps) else steps[0].norm
        lines += [
            f"training steps, in turns; time over {baseline} with the 95 % interval of the median:",
            f"  {'norm':6} {'ms':>9} {'steps/s':>9} {'audio s/s':>10} {'ratio':>7} {'interval':>15}",
        ]
        for s in steps:
            interval = spoken_interval(s.low, s.high)
            figures = f"{s.step_ms:9.1f} {s.steps_per_s:9.2f} {s.audio_s_per_s:10.0f} {s.ratio:7.3f} {interval:>15}"
            lines.append(f"  {s.norm:6} {figures}")
    return "\n".join(lines)
