"""Headers of model files: what the safetensors library reads, and one sentence for what is no model."""

import json
from pathlib import Path

import pytest
from safetensors import safe_open
from safetensors.numpy import save_file

from diarnorm.modelfile import check_norm, read_header
from tests.wavbytes import save


def test_header_is_what_the_library_reads(loudness_model: Path) -> None:
    header = read_header(loudness_model)
    with safe_open(str(loudness_model), framework="np") as file:
        shapes = {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118
        metadata = file.metadata()
    assert header.shapes == shapes
    assert header.facts == json.loads(metadata["diarnorm"])
    assert header.dtypes == ("F32",)
    assert 4 * header.num_values < header.num_bytes == loudness_model.stat().st_size


def test_a_file_that_is_no_model_is_refused_in_one_sentence(tmp_path: Path, loudness_model: Path) -> None:
    whole = loudness_model.read_bytes()
    save_file({}, tmp_path / "other.safetensors")
    cases = {
        tmp_path / "absent": "no such file",
        tmp_path: "cannot be read",
        save(tmp_path, b"", "empty"): "is no safetensors file",
        save(tmp_path, b"<html>" * 99, "page"): "is no safetensors file",
        save(tmp_path, b"\2\0\0\0\0\0\0\0[]", "list"): "is no safetensors file",
        save(tmp_path, whole[:-1], "cut"): f"is damaged: {len(whole) - 1} bytes, its header tells of {len(whole)}",
        tmp_path / "other.safetensors": "but not a diarnorm model",
        save(tmp_path, whole.replace(b'\\"format\\": 1', b'\\"format\\": 9'), "new"): "has format 9",
    }
    for path, message in cases.items():
        with pytest.raises(ValueError, match=message) as caught:
            read_header(path)
        assert str(path) in str(caught.value)
        assert "\n" not in str(caught.value)


def test_another_norm_is_refused_with_both_names() -> None:
    check_norm("x", {"norm": "rms"}, None)
    check_norm("x", {"norm": "rms"}, "rms")
    with pytest.raises(ValueError, match="trained with norm=rms, not norm=layer"):
        check_norm("x", {"norm": "rms"}, "layer")
