"""`diarnorm bench norm`: what a norm costs on this machine, as a ratio to LayerNorm and as a share of copy bandwidth.

`--encoder` compares the encoder's own layers instead, `norm=rms` with `norm=layer`, alone and in a streaming step.

Every contestant is timed against LayerNorm pair by pair in one process; the ratio is the median over the pairs, with
the 95 % interval of that median. GB/s count the least traffic there can be, and are compared with copying a large
buffer in the same process; tensors that fit in a cache go beyond 100 %. Where calls are short, what they cost is the
launch, not the traffic: the launch floor is the time of the smallest call, the crossover the size at which the traffic
takes as long.
"""

import csv
import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields, replace
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

from diarnorm.commands.arguments import Parser, at_least

if TYPE_CHECKING:
    import torch

    from diarnorm.bench.contestants import Contestant
    from diarnorm.bench.stopwatch import Comparison, Machine

DTYPES = ("float32", "bfloat16", "float16")
CPU_KERNELS = {"c++": ("c++",), "numba": ("numba",), "operators": ()}
"""Ways to restrict RMSNorm to on a CPU."""
TICKS = (0.1, 0.2, 0.3, 0.5, 0.7, 1, 1.5, 2, 3, 5, 7, 10, 20, 50, 100)
"""Ratios that the picture may name."""
STEP_FRAMES = 12
"""Frames of 80 ms in the streaming step that is timed."""


@dataclass(frozen=True)
class Row:
    """One contestant at one size."""

    device: str
    dtype: str
    mode: str
    dim: int
    rows: int
    name: str
    note: str
    time_us: float
    ratio: float
    """Time over LayerNorm's; below 1 is faster."""
    ratio_low: float
    ratio_high: float
    """95 % interval of the ratio; infinite below six rounds."""
    gb_per_s: float
    of_copy: float
    """Share of the copy bandwidth of this process."""

    @property
    def reach(self) -> tuple[float, float]:
        """How far the interval reaches below and above the ratio; nowhere where it is not known."""
        below, above = self.ratio - self.ratio_low, self.ratio_high - self.ratio
        return (below, above) if math.isfinite(below + above) else (0.0, 0.0)


def main(argv: Sequence[str]) -> int:
    """Run `diarnorm bench norm` with these arguments; the exit code."""
    options = make_parser().parse_args(argv)
    import torch

    from diarnorm.bench.stopwatch import find_device, measure_machine

    if options.gpu_check:
        from diarnorm.bench.gpucheck import gpu_check

        return gpu_check()
    from diarnorm.bench.contestants import encoder_contestants, make_contestants, obstacles
    from diarnorm.kernels import native

    torch.set_num_threads(options.threads)
    device, dtype = find_device(options.device), getattr(torch, options.dtype)
    if options.cpu_kernel is not None:
        native.restrict(*CPU_KERNELS[options.cpu_kernel])
    machine = measure_machine(device)
    if options.encoder:
        field, missing = encoder_contestants(device), {}
    else:
        field = make_contestants(device, dtype=dtype, backward=options.backward, compiled=not options.no_compile)
        missing = obstacles(device, dtype, backward=options.backward)
    calls = Calls(device, dtype, options.backward, options.rounds)
    rows = measure(field, calls, dims=options.dims, row_counts=options.rows, copy_gb_per_s=machine.copy_gb_per_s)
    print(table(rows, machine))
    for name, obstacle in missing.items():
        print(f"left out: {name} {obstacle}")
    if options.encoder:
        print(compare_steps(device, options.rounds))
    if options.csv is not None:
        write_csv(rows, options.csv)
    if options.png is not None:
        plot(rows, machine, options.png)
    return 0


@dataclass(frozen=True)
class Calls:
    """What is timed, at every size alike."""

    device: "torch.device"
    dtype: "torch.dtype"
    backward: bool = False
    rounds: int = 15


def measure(
    field: Sequence["Contestant"],
    calls: Calls,
    *,
    dims: Sequence[int],
    row_counts: Sequence[int],
    copy_gb_per_s: float,
) -> list[Row]:
    """Every contestant at every size, against the first."""
    from diarnorm.bench.contestants import forward_call, make_inputs, training_call
    from diarnorm.bench.stopwatch import compare

    make_call = training_call if calls.backward else forward_call
    results = []
    for dim, rows in product(dims, row_counts):
        inputs = make_inputs(rows, dim, calls.dtype, calls.device, gradients=calls.backward)
        baseline = make_call(field[0].bind, inputs)
        for contestant in field:
            found = compare(baseline, make_call(contestant.bind, inputs), calls.device, calls.rounds)
            results.append(_row(calls, contestant, rows, dim, found, copy_gb_per_s))
    return results


def _row(calls: Calls, contestant: "Contestant", rows: int, dim: int, found: "Comparison", copy_gb_per_s: float) -> Row:
    from diarnorm.bench.contestants import traffic_bytes

    gb_per_s = traffic_bytes(rows, dim, calls.dtype, backward=calls.backward) / found.other_s / 1e9
    return Row(
        device=calls.device.type,
        dtype=str(calls.dtype).removeprefix("torch."),
        mode="forward+backward" if calls.backward else "forward",
        dim=dim,
        rows=rows,
        name=contestant.name,
        note=contestant.note,
        time_us=found.other_s * 1e6,
        ratio=found.ratio,
        ratio_low=found.low,
        ratio_high=found.high,
        gb_per_s=gb_per_s,
        of_copy=gb_per_s / copy_gb_per_s,
    )


def compare_steps(device: "torch.device", rounds: int) -> str:
    """A streaming step of the whole model at batch 1, `norm=rms` and `norm=none` against `norm=layer`, as text."""
    from diarnorm.bench.graph import make_step
    from diarnorm.bench.stopwatch import compare, spoken_interval
    from diarnorm.model import ModelConfig
    from diarnorm.timebase import FRAME_MS

    config = ModelConfig()
    steps = {
        norm: make_step(replace(config, encoder=replace(config.encoder, norm=norm)), device, STEP_FRAMES)[0]
        for norm in ("layer", "rms", "none")
    }
    lines = [f"streaming step of {FRAME_MS * STEP_FRAMES} ms, whole model, batch 1; time over norm=layer:"]
    for norm in ("rms", "none"):
        found = compare(steps["layer"], steps[norm], device, rounds)
        lines.append(
            f"  norm={norm:5} {found.other_s * 1e3:8.2f} ms {found.ratio:7.3f} {spoken_interval(found.low, found.high)}"
        )
    return "\n".join(lines)


def crossovers(rows: Iterable[Row], machine: "Machine") -> dict[str, tuple[float, float]]:
    """Per contestant the launch floor in us, its time at the smallest size, and the crossover in bytes: the traffic
    that copying moves in that time. Calls below it are paid for the launch."""
    smallest: dict[str, Row] = {}
    for row in rows:
        known = smallest.get(row.name)
        if known is None or (row.rows * row.dim) < (known.rows * known.dim):
            smallest[row.name] = row
    return {name: (row.time_us, row.time_us * 1e-6 * machine.copy_gb_per_s * 1e9) for name, row in smallest.items()}


def table(rows: Sequence[Row], machine: "Machine") -> str:
    """The figures as text: per size a line per contestant, then floors and crossovers."""
    from diarnorm.bench.stopwatch import spoken_interval

    first = rows[0]
    lines = [
        f"{machine.device}, {first.dtype}, {first.mode}: copy {machine.copy_gb_per_s:.1f} GB/s, "
        f"smallest call {machine.floor_us:.2f} us; time over {first.name} with 95 % interval of the median",
        f"{'dim':>5} {'rows':>7}  {'norm':16} {'us':>10} {'ratio':>7} {'interval':>15} {'GB/s':>8} {'of copy':>8}",
    ]
    for row in rows:
        interval = spoken_interval(row.ratio_low, row.ratio_high)
        lines.append(
            f"{row.dim:5} {row.rows:7}  {row.name:16} {row.time_us:10.2f} {row.ratio:7.3f} {interval:>15} "
            f"{row.gb_per_s:8.2f} {100 * row.of_copy:6.1f} %"
        )
    notes = {row.name: row.note for row in rows}
    lines.append("launch floor, and crossover (the traffic that copying moves in that time):")
    for name, (floor_us, crossover) in crossovers(rows, machine).items():
        lines.append(f"  {name:16} {floor_us:8.2f} us {crossover / 1e3:12.1f} kB   {notes[name]}")
    return "\n".join(lines)


def write_csv(rows: Sequence[Row], path: Path) -> None:
    """All figures, a line per contestant and size."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, [field.name for field in fields(Row)], lineterminator="\n")
        writer.writeheader()
        writer.writerows(asdict(row) for row in rows)


def plot(rows: Sequence[Row], machine: "Machine", path: Path) -> None:
    """Ratio to LayerNorm and share of copy bandwidth over the traffic per call, as a picture.

    Raises ValueError without matplotlib.
    """
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError as error:
        raise ValueError("--png needs matplotlib: pip install 'diarnorm[plot]', or use --csv") from error
    first = rows[0]
    figure = Figure(figsize=(9, 7), layout="constrained")
    over, share = figure.subplots(2, 1, sharex=True)
    for name in dict.fromkeys(row.name for row in rows):
        own = sorted((row for row in rows if row.name == name), key=lambda row: row.rows * row.dim)
        kilobytes = [row.gb_per_s * row.time_us for row in own]
        share.plot(kilobytes, [100 * row.of_copy for row in own], marker=".", label=name)
        if name != first.name:
            reach = [*zip(*(row.reach for row in own), strict=True)]
            color = share.lines[-1].get_color()
            over.errorbar(kilobytes, [row.ratio for row in own], reach, marker=".", capsize=2, color=color)
    over.axhline(1.0, color=share.lines[0].get_color())
    share.axhline(100.0, color="black", linewidth=0.8, linestyle="dotted")
    over.set(ylabel=f"time over {first.name}", yscale="log")
    share.set(ylabel="% of copy bandwidth", ylim=0, xlabel="least traffic per call, kB", xscale="log")
    ratios = [row.ratio for row in rows]
    over.set_yticks([tick for tick in TICKS if min(ratios) / 1.5 < tick < max(ratios) * 1.5])
    for axis in (over.yaxis, share.xaxis):
        axis.set_major_formatter(lambda value, position: f"{value:g}")
        axis.set_minor_formatter(lambda value, position: "")
    for axes in (over, share):
        axes.grid(alpha=0.3)
    figure.legend(*share.get_legend_handles_labels(), loc="outside right center", frameon=False)
    figure.suptitle(f"{machine.device}, {first.dtype}, {first.mode}")
    figure.savefig(path, dpi=120)


def make_parser() -> Parser:
    """Options of `diarnorm bench norm`."""
    parser = Parser("bench norm", "Time RMSNorm in every form against LayerNorm.")
    numbers = at_least(1)
    parser.add_argument("--dims", metavar="D", type=numbers, nargs="+", default=[80, 256, 512], help="feature counts")
    parser.add_argument("--rows", metavar="N", type=numbers, nargs="+", default=[1, 16, 1000], help="frames per call")
    parser.add_argument("--dtype", choices=DTYPES, default="float32", help="dtype of x and weight")
    parser.add_argument("--backward", action="store_true", help="time forward and backward together")
    parser.add_argument("--device", metavar="NAME", help="cpu or cuda (default: cuda where there is one)")
    parser.add_argument("--threads", metavar="N", type=numbers, default=1, help="CPU threads")
    parser.add_argument(
        "--rounds", metavar="N", type=numbers, default=15, help="pairs per ratio, 6 or more for an interval"
    )
    parser.add_argument(
        "--encoder", action="store_true", help="norm=rms and norm=layer of the encoder, alone and in a streaming step"
    )
    parser.add_argument(
        "--cpu-kernel", choices=CPU_KERNELS, help="what RMSNorm runs on on a CPU (default: the fastest)"
    )
    parser.add_argument("--no-compile", action="store_true", help="leave out torch.compile, which takes a while")
    parser.add_argument("--csv", metavar="PATH", type=Path, help="write the figures")
    parser.add_argument("--png", metavar="PATH", type=Path, help="write a picture; needs matplotlib")
    parser.add_argument("--gpu-check", action="store_true", help="check the kernels on this NVIDIA GPU in 4 minutes")
    parser.add_debug()
    return parser
