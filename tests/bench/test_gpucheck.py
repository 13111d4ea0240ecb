"""Without a GPU there is nothing to check."""

import pytest
import torch

from diarnorm.bench.gpucheck import gpu_check


@pytest.mark.skipif(torch.cuda.is_available(), reason="says what happens without a GPU")
def test_without_a_gpu_it_is_one_sentence() -> None:
    with pytest.raises(ValueError, match="needs an NVIDIA GPU, and torch finds none here") as caught:
        gpu_check()
    assert "\n" not in str(caught.value)


@pytest.mark.gpu
def test_the_check_itself(capsys: pytest.CaptureFixture[str]) -> None:
    assert gpu_check() == 0, capsys.readouterr().out
