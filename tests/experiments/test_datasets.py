import gzip
import json
import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.feather as feather
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from epida_ray.core.errors import RequestError
from epida_ray.experiments.datasets import (
    clean,
    from_hub,
    load_dataset,
    load_directory,
    load_files,
    order_stratified,
    subset,
)

labels_lists = st.lists(st.integers(0, 4), min_size=1, max_size=300).map(lambda x: np.array(x, np.int64))


@settings(max_examples=60, deadline=None)
@given(labels_lists, st.integers(0, 5), st.integers(1, 300))
def test_every_beginning_of_the_order_is_stratified(labels, seed, n):
    order = order_stratified(labels, seed)
    assert sorted(order.tolist()) == list(range(len(labels)))
    n = min(n, len(labels))
    share = np.bincount(labels, minlength=5) * n / len(labels)
    assert np.abs(np.bincount(labels[order[:n]], minlength=5) - share).max() < 5


def test_subsets_are_nested_seeded_and_sized():
    labels = np.repeat(np.arange(6), [86, 1162, 1250, 1223, 835, 896])
    one, ten = subset(labels, "1%", 3), subset(labels, "10%", 3)
    assert (len(one), len(ten)) == (55, 545)
    assert set(one) <= set(ten)
    assert len(np.unique(labels[one])) == 6
    assert subset(labels, "1%", 3).tolist() == one.tolist() != subset(labels, "1%", 4).tolist()
    assert len(subset(labels, 60, 0)) == 60 and set(subset(labels, "60", 0)) <= set(subset(labels, 120, 0))
    assert np.bincount(labels[subset(labels, "5 per class", 0)]).tolist() == [5] * 6


@pytest.mark.parametrize("size", ["0%", "101%", "x", "0", "9999", "0 per class", "%"])
def test_a_wrong_size_is_refused(size):
    with pytest.raises(RequestError, match="the size of a subset is"):
        subset(np.zeros(10, np.int64), size, 0)


def test_the_papers_cleaning():
    assert clean("I can't wait 4 the #weekend!! see https://t.co/x1 @bob's place…") == "wait see bob's place"
    assert clean("!!! 123") == ""


def write_csv(path: Path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("text,label\n" + "".join(f"{text},{label}\n" for text, label in rows))
    return path


def test_the_users_own_files(tmp_path):
    write_csv(tmp_path / "mine" / "train.csv", [("good", "b"), ("bad", "a"), ("fine", "b")])
    write_csv(tmp_path / "mine" / "test.csv", [("well", "b")])
    data = load_directory("mine", tmp_path)
    assert data.labels == ("a", "b") and data.train.y.tolist() == [1, 0, 1] and data.dev is None
    assert data.train.ids == ["train.csv:0", "train.csv:1", "train.csv:2"]
    again = load_files("mine", {"train": tmp_path / "mine" / "train.csv", "test": tmp_path / "mine" / "test.csv"})
    assert again.digest() == data.digest()
    write_csv(tmp_path / "mine" / "test.csv", [("well", "a")])
    assert load_directory("mine", tmp_path).digest() != data.digest()


def test_files_may_have_any_format_that_is_read_elsewhere(tmp_path):
    folder = tmp_path / "mine"
    rows = [("good", "b"), ("bad", "a"), ("fine", "b")]
    write_csv(folder / "train.csv", rows)
    (folder / "train.csv.gz").write_bytes(gzip.compress((folder / "train.csv").read_bytes()))
    objects = [{"text": text, "label": label} for text, label in rows]
    (folder / "test.json").write_text(json.dumps(objects))
    feather.write_feather(pa.Table.from_pylist(objects), folder / "dev.arrow")
    with pytest.raises(RequestError, match=r"has both train.csv and train.csv.gz; keep one"):
        load_directory("mine", tmp_path)
    (folder / "train.csv").unlink()
    data = load_directory("mine", tmp_path)
    for split in (data.train, data.dev, data.test):
        assert split.texts == ["good", "bad", "fine"] and split.y.tolist() == [1, 0, 1]
    (folder / "test.json").rename(folder / "test.doc")
    with pytest.raises(RequestError, match=r"no train and test file; each may be a .parquet"):
        load_directory("mine", tmp_path)


def test_a_wrong_data_set_is_refused_with_the_reason(tmp_path):
    write_csv(tmp_path / "one" / "train.csv", [("x", "a"), ("y", "a")])
    write_csv(tmp_path / "one" / "test.csv", [("x", "a")])
    with pytest.raises(RequestError, match="at least two classes are required"):
        load_directory("one", tmp_path)
    write_csv(tmp_path / "new" / "train.csv", [("x", "a"), ("y", "b")])
    write_csv(tmp_path / "new" / "test.csv", [("x", "c")])
    with pytest.raises(RequestError, match="label 'c'"):
        load_directory("new", tmp_path)
    with pytest.raises(RequestError, match="there are new, one"):
        load_directory("none", tmp_path)


def test_numeric_labels_are_in_numeric_order(tmp_path):
    """As in a training run, so that class numbers are the same."""
    rows = [(f"text {i}", i) for i in (10, 9, 2)]
    files = {split: write_csv(tmp_path / f"{split}.csv", rows) for split in ("train", "test")}
    assert load_files("mine", files).labels == ("2", "9", "10")


def test_a_hub_data_set():
    datasets = pytest.importorskip("datasets", reason="pip install datasets")
    features = datasets.Features({"text": datasets.Value("string"), "label": datasets.ClassLabel(names=["no", "yes"])})
    rows = {"text": ["a", "b"], "label": [0, 1]}
    splits = {key: datasets.Dataset.from_dict(rows, features) for key in ("train", "validation", "test")}
    data = from_hub("mine", splits)
    assert data.labels == ("no", "yes") and len(data.dev) == 2 and data.test.ids == ["test:0", "test:1"]
    with pytest.raises(RequestError, match="no column 'sentence'"):
        from_hub("mine", splits, text_column="sentence")
    withheld = datasets.Dataset.from_dict({"text": ["a", "b"], "label": [-1, -1]}, features=splits["test"].features)
    with pytest.raises(RequestError, match="test split has rows without a label"):
        from_hub("mine", {**splits, "test": withheld})
    empty = datasets.Dataset.from_dict({"text": ["a", None], "label": [0, 1]}, features=splits["test"].features)
    with pytest.raises(RequestError, match="test split has rows without a text"):
        from_hub("mine", {**splits, "test": empty})


def test_columns_of_other_names(tmp_path):
    (tmp_path / "mine").mkdir()
    for split in ("train", "test"):
        (tmp_path / "mine" / f"{split}.csv").write_text("body,queue\na,x\nb,y\n")
    assert load_dataset("mine", tmp_path, "body", "queue").labels == ("x", "y")
    with pytest.raises(RequestError, match="no column 'text'"):
        load_dataset("mine", tmp_path)


def test_the_notes_name_rejected_rows_and_texts_in_two_splits(tmp_path):
    def write(split, texts):
        path = tmp_path / f"{split}.csv"
        path.write_text("text,label\n" + "".join(f"{t},{i % 2}\n" for i, t in enumerate(texts)))
        return path

    files = {"train": write("train", "abcdefghij"), "test": write("test", ["", "a", "x", "y", "z", "q"])}
    data = load_files("mine", files)
    assert data.notes == (
        "mine: 1 of the 6 rows of test.csv are rejected: the text is empty.",
        "mine: 1 of the 5 test texts are also training texts.",
    )
    files["test"] = write("test", ["", "", "x", "y"])
    with pytest.raises(RequestError, match="2 of the 4 rows of test.csv are rejected"):
        load_files("mine", files)


@pytest.mark.skipif("EPIDA_DATA" not in os.environ, reason="EPIDA_DATA names no directory with the real data sets")
def test_the_real_data_sets():
    trec = load_directory("trec", os.environ["EPIDA_DATA"])
    assert trec.labels == ("ABBR", "DESC", "ENTY", "HUM", "LOC", "NUM")
    assert (len(trec.train), len(trec.test)) == (5452, 500)
    assert len(load_directory("sst1", os.environ["EPIDA_DATA"]).dev) == 1101
