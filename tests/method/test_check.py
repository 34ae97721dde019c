"""`epida check` finds faults that were planted, and says nothing where there are none."""

import csv
import json

import numpy as np
import pytest
from typer.testing import CliRunner

from epida_ray.cli.main import app
from epida_ray.core.errors import RequestError
from epida_ray.data.storage import Storage
from epida_ray.method import near_duplicates as near_duplicates_module
from epida_ray.method.check import check, check_rows, write
from epida_ray.method.folds import stratified_folds
from epida_ray.method.near_duplicates import near_duplicates
from epida_ray.method.prepare import Row

FRUIT = ("apple", "pear", "plum", "cherry", "melon", "grape", "fig", "lemon")
TOOLS = ("hammer", "saw", "drill", "pliers", "wrench", "chisel", "file", "clamp")


def corpus(n=80, seed=0):
    random = np.random.default_rng(seed)
    words = [" ".join(random.permutation(FRUIT if i % 2 else TOOLS)[:4]) for i in range(n)]
    return [
        Row(f"r{i}", f"{w} row {random.integers(10**6)}", "fruit" if i % 2 else "tool") for i, w in enumerate(words)
    ]


def found(train, test=(), **options):
    return {f.name: f for f in check_rows(train, list(test), classifier="linear", **options)}


def test_nothing_is_wrong_with_clean_rows():
    assert found(corpus(), corpus(40, seed=1)) == {}


def test_planted_faults():
    rows = corpus()
    rows[3] = rows[3]._replace(label="tool")  # a fruit
    rows += [Row("copy", rows[0].text.upper(), "tool"), Row("both", rows[1].text, "tool"), Row("odd", "x y", "Fruit ")]
    rows += [Row("bad", "cafÃ© au lait is good", "fruit"), Row("html", "fish &amp; chips", "fruit")]
    got = found(rows)
    assert got["duplicates"].count == 2
    assert [r["labels"] for r in got["two-labels"].rows] == [["fruit", "tool"]]
    assert got["label-spellings"].rows == [{"labels": ["Fruit ", "fruit"]}]
    assert got["small-classes"].level == "problem" and got["small-classes"].rows[0]["label"] == "Fruit "
    assert [r["id"] for r in got["mojibake"].rows] == ["bad"]
    assert [r["id"] for r in got["entities"].rows] == ["html"]
    assert "r3" in [r["id"] for r in got["denied-labels"].rows[:3]]


def test_a_classifier_that_is_trained_step_by_step_judges_labels_too():
    rows = corpus()
    rows[3] = rows[3]._replace(label="tool")  # a fruit
    (denied,) = (f for f in check_rows(rows, [], classifier="cnn") if f.name == "denied-labels")
    assert [row["id"] for row in denied.rows] == ["r3"]


def even(texts):
    return np.full((len(texts), 2), 0.5)


def test_a_function_that_cannot_learn_is_refused_as_the_judge():
    with pytest.raises(RequestError, match="cannot be trained"):
        check_rows(corpus(), [], classifier=f"{__name__}:even")


def test_leaks_and_drift():
    train, test = corpus(), corpus(60, seed=1)
    leaked = [row._replace(id=f"t{row.id}") for row in train[:20]]
    near = train[30]._replace(id="near", text=train[30].text + "!!! a")
    got = found(train, [*test, *leaked, near])
    assert {r["other_id"] for r in got["leaked"].rows} == {row.id for row in train[:20]}
    assert [(r["id"], r["other_id"]) for r in got["nearly-leaked"].rows] == [("near", "r30")]
    assert "label-drift" not in got
    fruit = [row for row in corpus(400, seed=2) if row.label == "fruit"]
    got = found(train, [*fruit, Row("z", "the moon", "space")])
    assert got["label-drift"].rows[0]["label"] in ("fruit", "tool")
    assert [r["label"] for r in got["unknown-labels"].rows] == ["space"]
    assert [r["label"] for r in got["untested-labels"].rows] == ["tool"]


def test_many_texts_of_one_template_are_compared_with_the_first_only(monkeypatch):
    compared = []
    plain = near_duplicates_module._jaccard
    monkeypatch.setattr(near_duplicates_module, "_jaccard", lambda a, b: compared.append(1) or plain(a, b))
    template = "thank you for your order, we have sent it today and it will be with you by the evening of day "
    pairs = near_duplicates([f"{template}{i}" for i in range(300)])
    assert [(p.a, p.b) for p in pairs] == [(0, i) for i in range(1, 300)]
    assert len(compared) == 299


def test_what_an_earlier_check_has_written_is_not_read(tmp_path):
    rows = corpus(40)
    text = "text,label\n" + "".join(f"{row.text},{row.label}\n" for row in [*rows, rows[0]])
    (tmp_path / "train.csv").write_text(text)
    output = tmp_path / "checked"
    counts = []
    for _ in range(2):
        got = check(str(tmp_path), classifier="linear", exclude=str(output))
        write(got, Storage(str(output)))
        counts.append(got.train)
    assert counts == [41, 41] and (output / "duplicates.csv").exists()
    words = ["check", str(tmp_path), "--output", str(output), "--classifier", "linear", "--json"]
    result = CliRunner().invoke(app, words)
    assert json.loads(result.stdout)["train"] == 41


def test_near_duplicates_are_those_of_all_pairs():
    random = np.random.default_rng(0)
    texts = []
    for _ in range(60):
        words = [f"w{i}" for i in random.integers(0, 400, 12)]
        texts.append(" ".join(words))
        if random.random() < 0.5:
            words[int(random.integers(12))] = "changed"
            texts.append(" ".join(words))

    def jaccard(a, b):
        x, y = ({t[i : i + 5] for i in range(len(t) - 4)} for t in (a, b))
        return len(x & y) / len(x | y)

    expected = {j for j in range(len(texts)) for i in range(j) if jaccard(texts[i], texts[j]) >= 0.8}
    assert expected and {pair.b for pair in near_duplicates(texts)} == expected
    across = {j for j, b in enumerate(texts[:40]) if any(jaccard(a, b) >= 0.8 for a in texts[40:])}
    assert {pair.b for pair in near_duplicates(texts[40:], texts[:40])} == across


def test_texts_without_letters_are_near_duplicates_only_of_their_like():
    hearts, suns = "\u2764\ufe0f", "\u2600\ufe0f"  # the second character is a part of both emojis
    texts = [
        "😀",
        "😡",
        "👍 👍",
        "!!!",
        "?",
        "...",
        "12",
        "34",
        "1 2 3",
        "555-0199",
        "555-0100",
        hearts,
        suns,
        "²",
        "٣",
    ]
    assert near_duplicates(texts) == [] == near_duplicates(texts[::2], texts[1::2])
    same = near_duplicates([*texts, " 😀 ", f" {hearts}", "12.", "555 0199"])
    assert [texts[pair.a] for pair in same] == ["😀", hearts, "12", "555-0199"]
    assert [pair.b for pair in near_duplicates(["Good!", "good 👍", "👍"])] == [1], "marks do not count beside letters"


def test_folds_are_stratified_and_equal_texts_stay_together():
    rows = corpus(50)
    texts = [r.text for r in rows] + [r.text for r in rows[:10]]
    y = np.array([int(r.label == "fruit") for r in rows] + [int(r.label == "fruit") for r in rows[:10]])
    fold = stratified_folds(texts, y, 5, 0)
    assert (fold[50:] == fold[:10]).all()
    assert all(sorted(np.bincount(fold[:50][y[:50] == c])) == [5] * 5 for c in (0, 1))
    assert (fold == stratified_folds(texts, y, 5, 0)).all() and (fold != stratified_folds(texts, y, 5, 1)).any()


def test_files(tmp_path):
    rows = corpus(20)
    path = tmp_path / "train.csv"
    path.write_text("text,label\n" + "".join(f"{r.text},{r.label}\n" for r in [*rows, rows[0]]) + ",fruit\n")
    got = check(str(path), classifier="linear")
    assert got.train == 21 and got.classes == {"fruit": 10, "tool": 11}
    assert {f.name for f in got.findings} >= {"duplicates", "unusable"}
    write(got, Storage(str(tmp_path / "out")))
    assert json.loads((tmp_path / "out" / "check.json").read_text())["train"] == 21
    assert len(list(csv.DictReader((tmp_path / "out" / "duplicates.csv").open()))) == 1
    with pytest.raises(RequestError, match="no column 'nothing'"):
        check(str(path), text_column="nothing")


@pytest.fixture(scope="module")
def trec(data_dir):
    from epida_ray.experiments.datasets import load_dataset

    data = load_dataset("trec", data_dir)

    def rows(split):
        return [Row(i, t, data.labels[c]) for i, t, c in zip(split.ids, split.texts, split.y, strict=True)]

    return rows(data.train), rows(data.test), data.labels


@pytest.mark.slow
def test_trec(trec):
    """The first 50 suspicious rows are mostly planted ones, and every leaked row is found."""
    train, test, labels = trec
    random = np.random.default_rng(0)
    flipped = set(random.choice(len(train), round(0.05 * len(train)), replace=False).tolist())
    wrong = [
        row._replace(label=random.choice([n for n in labels if n != row.label])) if i in flipped else row
        for i, row in enumerate(train)
    ]
    leaked = [row._replace(id=f"leaked:{i}") for i, row in enumerate(test[:20])]
    got = {f.name: f for f in check_rows([*wrong, *leaked], test)}
    ids = {wrong[i].id for i in flipped}
    first = [row["id"] in ids for row in got["denied-labels"].rows[:50]]
    assert sum(first) / 50 >= 0.6
    shared = {row["id"] for row in got["leaked"].rows}
    assert {row.id for row in test[:20]} <= shared
    texts = {row.text for row in train}
    assert sum(row.text in texts for row in test) == 10
    assert {row.id for row in test if row.text in texts} <= shared
