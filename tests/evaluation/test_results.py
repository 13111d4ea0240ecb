"""What jobs leave behind: exact numbers, and merges that refuse what does not belong together."""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from diarnorm.evaluation.causes import Causes
from diarnorm.evaluation.labels import LabelScore
from diarnorm.evaluation.recordings import Recording, RecordingSet
from diarnorm.evaluation.results import (
    Heading,
    Result,
    Shard,
    find_shards,
    merge,
    read_shard,
    scored_sha256,
    shards_beside,
    write_shard,
)
from diarnorm.evaluation.scores import Components, FileScore
from diarnorm.turns import Turn

SETTINGS = {"collars_s": [0.0], "skip_overlap": False, "group_by": "none", "num_resamples": 100, "seed": 0}
NAMES = ["a", "b", "c"]
SET = {"recordings": NAMES, "region": "UEM", "notes": [], "sha256": "5"}
HEADING = Heading(SETTINGS, {"m": {"sha256": "0"}}, {"s": SET})


def result(name: str, error_s: float = 1 / 3, **changes: object) -> Result:
    errors = Components(error_s, math.pi, 1e-17, 10.1)
    score = FileScore(name, errors, errors + errors, Components(), 0.1, 2, 3, 10.0, Causes(1 / 3, miss_rest_s=0.1))
    labels = LabelScore(600.1, 3, 2, 1)
    return replace(Result("s", name, "m", 0.1, None, (score,), labels, False, ("odd",)), **changes)  # pyright: ignore


def shards(of: int = 3) -> list[Shard]:
    return [Shard(HEADING, at, of, tuple(result(name) for name in NAMES[at::of])) for at in range(of)]


def test_numbers_come_back_bit_for_bit(tmp_path: Path) -> None:
    for shard in shards():
        write_shard(shard, tmp_path)
    assert sorted(path.name for path in (tmp_path / "results").iterdir()) == [f"{at}-of-3.json" for at in range(3)]
    assert find_shards(tmp_path) == find_shards(tmp_path / "results") == shards()


def test_merged_results_are_in_order_whatever_came_first() -> None:
    whole = Shard(HEADING, 0, 1, tuple(map(result, NAMES)))
    assert merge(shards()[::-1]) == merge([whole]) == whole
    assert whole.is_whole
    assert not shards()[0].is_whole


def test_results_of_another_evaluation_make_room(tmp_path: Path) -> None:
    for shard in shards(2):
        write_shard(shard, tmp_path)
    assert len(shards_beside(shards(2)[0], tmp_path)) == 2
    assert write_shard(shards(2)[0], tmp_path) is None
    assert write_shard(shards(3)[1], tmp_path) == "2 shards, not 3"
    assert find_shards(tmp_path) == [shards(3)[1]]
    assert shards_beside(shards(2)[0], tmp_path) == []


def test_folders_of_several_machines(tmp_path: Path) -> None:
    for at, shard in enumerate(shards()):
        write_shard(shard, tmp_path / f"machine{at % 2}" / "run")
    assert merge(find_shards(tmp_path)).is_whole


def test_what_does_not_belong_together_is_refused(tmp_path: Path) -> None:
    a, b, c = shards()
    with pytest.raises(ValueError, match="1 of 3 shards are missing: run shard=1/3 first"):
        merge([a, c])
    with pytest.raises(ValueError, match="shard 0/3 is there twice"):
        merge([a, a, b, c])
    with pytest.raises(ValueError, match="is of another evaluation than 0/3: 2 shards, not 3"):
        merge([a, shards(2)[1]])
    other = replace(b, heading=replace(HEADING, settings={**SETTINGS, "seed": 1}))
    with pytest.raises(ValueError, match="settings differ in seed"):
        merge([a, other, c])
    other = replace(b, heading=replace(HEADING, models={"m": {"sha256": "1"}}))
    with pytest.raises(ValueError, match="models differ in m; give a folder with the results of one"):
        merge([a, other, c])
    other = replace(b, heading=replace(HEADING, sets={"s": {**SET, "sha256": "6"}}))
    with pytest.raises(ValueError, match="sets differ in s"):
        merge([a, other, c])


@pytest.mark.parametrize(
    "changes",
    [
        {"name": "b"},
        {"duration_s": 60.5},
        {"reference": (Turn(1.0, 2.001, "x"),)},
        {"reference": (Turn(1.0, 2.0, "y"),)},
        {"reference": ()},
        {"region": ((0.0, 5.0),)},
    ],
)
def test_a_set_is_another_when_what_is_scored_against_changes(changes: dict[str, Any]) -> None:
    one = Recording("a", Path("a.wav"), 60.0, (Turn(1.0, 2.0, "x"),), None)
    before = RecordingSet("s", (one,), "UEM", ())
    elsewhere = replace(before, name="t", recordings=(replace(one, audio=Path("elsewhere/a.wav")),))
    assert scored_sha256(before) == scored_sha256(elsewhere)
    assert scored_sha256(before) != scored_sha256(replace(before, recordings=(replace(one, **changes),)))


def test_files_that_hold_no_results(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="nosuch is no folder"):
        find_shards(tmp_path / "nosuch")
    with pytest.raises(ValueError, match="holds no results/K-of-N"):
        find_shards(tmp_path)
    path = tmp_path / "0-of-1.json"
    for text in ("", "[]", "{}", '{"format": 4}', '{"format": 4, "heading": {}, "results": []}'):
        path.write_text(text)
        with pytest.raises(ValueError, match="holds no results of an evaluation, or is damaged"):
            read_shard(path)
    path.write_text(json.dumps({"format": 9}))
    with pytest.raises(ValueError, match="has format 9, this version reads 4: evaluate again"):
        read_shard(path)


def test_results_of_another_version_make_room(tmp_path: Path) -> None:
    """An earlier version did not say where errors come from: its results are not merged, and go with the next job."""
    write_shard(shards()[0], tmp_path)
    path = tmp_path / "results" / "0-of-3.json"
    values = json.loads(path.read_text("utf-8"))
    for each in values["results"]:
        del each["scores"][0]["causes"]
    path.write_text(json.dumps({**values, "format": 2}))
    with pytest.raises(ValueError, match="has format 2, this version reads 4: evaluate again"):
        find_shards(tmp_path)
    assert shards_beside(shards()[1], tmp_path) == []
    assert write_shard(shards()[1], tmp_path) == "0-of-3.json is damaged, or of another version"
    assert find_shards(tmp_path) == [shards()[1]]


def test_results_that_do_not_say_what_they_were_scored_against_go_with_no_others(tmp_path: Path) -> None:
    for of in (1, 2):
        (shard, *_) = shards(of)
        write_shard(shard, tmp_path)
        path = tmp_path / "results" / f"0-of-{of}.json"
        path.write_text(json.dumps({**json.loads(path.read_text("utf-8")), "format": 3}))
        if of == 1:
            assert merge([read_shard(path)]).is_whole
            continue
        with pytest.raises(ValueError, match="has format 3, this version reads 4: evaluate again"):
            read_shard(path)
