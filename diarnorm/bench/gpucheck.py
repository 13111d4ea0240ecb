"""`diarnorm bench norm --gpu-check`: are the kernels right and fast on this NVIDIA GPU? Under four minutes, and with
nothing but torch, Triton and this package.

Apart from the clock and the graph all of it runs on a CPU as well, which is how it is tested.
"""

import time

import torch

from diarnorm.bench.findings import tell
from diarnorm.bench.gpuresults import check_large_tensor, check_results
from diarnorm.bench.gpuspeed import check_bandwidth, check_host, check_shapes, check_step


def gpu_check() -> int:
    """Print every finding; 0 when all results are right, 1 when one is wrong (bars of speed do not count).

    Raises ValueError without an NVIDIA GPU.
    """
    if not torch.cuda.is_available():
        raise ValueError("--gpu-check needs an NVIDIA GPU, and torch finds none here: run it on a machine with one")
    device, begin = torch.device("cuda", torch.cuda.current_device()), time.monotonic()
    print(f"{torch.cuda.get_device_name(device)}, torch {torch.__version__}, built for CUDA {torch.version.cuda}")
    checks = (check_results, check_large_tensor, check_bandwidth, check_shapes, check_host, check_step)
    right = tell(finding for check in checks for finding in check(device))
    print(f"{time.monotonic() - begin:.0f} s")
    return 0 if right else 1
