"""What is wrong with labelled rows is said before anything is trained."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from epida_ray.classify import create
from epida_ray.core.errors import RequestError
from epida_ray.core.progress import Reporter
from epida_ray.data.plan import Columns, plan_inputs
from epida_ray.data.storage import Storage
from epida_ray.data.writer import open_writer
from epida_ray.method import checks
from epida_ray.runs.manifest import read_manifest
from tests.classify import tiny


class Listens(Reporter):
    def __init__(self) -> None:
        super().__init__(quiet=True)
        self.warnings: list[str] = []
        self.lines: list[str] = []

    def warn(self, message: str) -> None:
        self.warnings.append(message)

    def say(self, message: str) -> None:
        self.lines.append(message)


def test_labels_that_are_no_classes() -> None:
    with pytest.raises(RequestError, match="200 different numbers, such as 0.0: these are measurements, not classes"):
        names = [str(i / 8) for i in range(200)]
        checks.check_classes(names, names, "price")
    with pytest.raises(RequestError, match="200 different values in 200 rows, such as .id 0.: these are not classes"):
        names = [f"id {i}" for i in range(200)]
        checks.check_classes(names, names, "name")
    with pytest.raises(RequestError, match="multi-label data"):
        checks.check_classes(["a", '["a", "b"]'], ["a", '["a", "b"]'], "label")
    with pytest.raises(RequestError, match=r"one class only \(a\)"):
        checks.check_classes(["a"], ["a", "a"], "label")
    joined = ["sport", "politics", "sport,politics"]
    with pytest.raises(RequestError, match=r"'sport,politics', which join classes .* multi-label data, .* --labels"):
        checks.check_classes(joined, joined, "label")
    checks.check_classes(joined, joined, "label", named=True)
    checks.check_classes(["billing", "billing|refund"], ["billing", "billing|refund"], "label")
    measured = [f"{10 + i / 100:.2f}" for i in range(400)]
    ratings = [f"{1 + i / 10:.1f}" for i in range(41)]
    for names in (measured, ratings):
        with pytest.raises(RequestError, match=f"{len(names)} different numbers, such as .* measurements, not classes"):
            checks.check_classes(names, names * 5, "score")
        checks.check_classes(names, names * 5, "score", named=True)
    checks.check_classes(ratings[:10], ratings[:10], "score")
    whole = [f"{i}.0" for i in range(20)]
    checks.check_classes(whole, whole * 3, "score")
    for names in (["x,y", "y,z", "x,z", "x,y,z"], ["a|b", "b|a", "b|b"]):
        with pytest.raises(RequestError, match=r"which combine \d parts: these are multi-label data.*--labels"):
            checks.check_combinations(names, "label")
    checks.check_combinations(["rock; pop", "jazz; soul", "sport", "sport,politics", "politics;art"], "label")
    checks.check_classes([str(i) for i in range(50)], [str(i) for i in range(50)] * 3, "label")


@pytest.mark.parametrize(
    ("labels", "looks"),
    [
        (["a", "b", "a|b", "b|a"], True),
        (["x,y", "y,z", "x,z", "x,y,z"], True),
        (["black, or white", "red"], False),
        (["yes", "no"], False),
        (["rock; pop", "jazz; soul"], False),
        (["sport", "sport,politics", "politics;art"], True),
    ],
)
def test_several_classes_in_one_label(labels: list[str], looks: bool) -> None:
    assert (checks.multi_label_hint(labels) is not None) is looks


def test_the_same_texts_in_two_files_and_long_texts() -> None:
    heard = Listens()
    checks.warn_of_overlap("eval", ["A  b", "c"], ["a b", "d"], heard)
    checks.warn_of_overlap("dev", ["e"], ["a b"], heard)
    classifier = create("linear", ("a", "b"), max_words=3)
    long = checks.long_texts(classifier, ["one two three", "one two three four"])
    checks.warn_of_long_texts(classifier, long, heard, trained=False)
    assert [line.partition(";")[0] for line in heard.warnings] == [
        "1 of 2 texts of --eval are in TRAIN too: the score on them is too high",
        "1 text has more than 3 words, of which the classifier reads the first 3 (--classifier-arg max_words=N)",
    ]


@pytest.mark.parametrize("name", ["encoder", "transformer"])
def test_texts_of_more_tokens_than_the_classifier_reads(tmp_path: Path, name: str) -> None:
    tiny.transformer("bert", tmp_path / "network", ("a", "b"))
    classifier = create(f"{name}:{tmp_path / 'network'}", ("a", "b"), max_length=8)
    # 6 words and the two tokens around them are 8; the second is long in characters only
    texts = ["a plum , please a plum", "wrench wrench wrench", "a plum , please a plum ,", "i want a pear " * 9]
    assert checks.long_texts(classifier, texts) == 2
    heard = Listens()
    checks.warn_of_long_texts(classifier, 2, heard, trained=False)
    checks.warn_of_long_texts(classifier, 1, heard)
    assert heard.warnings == [
        "2 texts have more than 8 tokens, of which the classifier reads the first 8 (--classifier-arg max_length=N)",
        "1 text has more than 8 tokens, of which the classifier reads the first 8 (a model trained with "
        "--classifier-arg max_length=N can read more)",
    ]


@pytest.mark.parametrize("name", ["pool.csv", "pool.jsonl", "pool.parquet"])
def test_a_pool_with_labels_and_in_another_script(tmp_path: Path, name: str) -> None:
    rows = [{"text": "где моя посылка", "topic": "x"}] * 3
    with open_writer(str(tmp_path / name)) as writer:
        if name == "pool.jsonl":
            writer.objects(rows)
        else:
            writer.table(pa.Table.from_pylist(rows))
    plan = plan_inputs(str(tmp_path / name), Columns(label=None))
    heard = Listens()
    checks.say_of_unread_labels(plan, "label", heard)
    assert not heard.lines
    checks.say_of_unread_labels(plan, "topic", heard)
    assert heard.lines == ["column 'topic' of --unlabelled is not read: the texts are used without labels"]
    pool = [row["text"] for row in rows]
    checks.warn_of_other_script(["where is my parcel", "мой"], ["a text", "another"], heard)
    checks.warn_of_other_script(["123"], pool, heard)
    assert not heard.warnings
    checks.warn_of_other_script(["where is my parcel"], pool, heard)
    assert "most texts of --unlabelled are in Cyrillic script, those of TRAIN in Latin" in heard.warnings[0]


def test_a_judge_of_other_classes(tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text("text,label\n" + "a text,ask\n" * 9 + "a text,tell\n")
    plan = plan_inputs(str(tmp_path / "in.csv"), Columns())
    checks.check_judge(("ask", "order"), plan, 0.2)
    with pytest.raises(RequestError, match="does not fit INPUT: the label 'ask' is not one of x, y"):
        checks.check_judge(("x", "y"), plan, 0.2)


def test_the_parent_of_runs_names_them(tmp_path: Path) -> None:
    (tmp_path / "first").mkdir()
    (tmp_path / "first" / "manifest.json").write_text("{}")
    with pytest.raises(RequestError, match=r"it has no manifest.json; there are runs in .*/first$"):
        read_manifest(Storage(str(tmp_path)))
