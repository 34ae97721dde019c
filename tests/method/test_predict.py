import csv
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from epida_ray.classify.cnn import CNN
from epida_ray.core.errors import RequestError
from epida_ray.method.predict import Predicted, predict

TEXTS = ["where is my parcel", "", '=1+1, or "two"', None, "Grüße an alle\nund mehr"]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> CNN:
    folder = tmp_path_factory.mktemp("model")
    classifier = CNN(("bug", "billing", "other"), vectors="hashed:16", channels=4, seed=3)
    classifier.save(folder)
    classifier.folder = str(folder)
    return classifier


def expected(model: CNN) -> list[str | None]:
    return [model.labels[int(model.predict_proba([t])[0].argmax())] if t else None for t in TEXTS]


def write_csv(path: Path, delimiter: str) -> None:
    with path.open("w", newline="", encoding="utf-8-sig") as file:
        writer = csv.writer(file, delimiter=delimiter)
        writer.writerow(["id", "body", "note"])
        writer.writerows([i, "" if t is None else t, "kept"] for i, t in enumerate(TEXTS))


@pytest.mark.parametrize(("name", "delimiter"), [("in.csv", ","), ("in.tsv", "\t")])
def test_csv_keeps_its_columns_and_gets_two_more(model, tmp_path, name, delimiter):
    source, target = tmp_path / name, tmp_path / "new" / name
    write_csv(source, delimiter)
    assert predict(model.folder, str(source), str(target), "body") == Predicted(5, 2)
    with target.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file, delimiter=delimiter))
    assert list(rows[0]) == ["id", "body", "note", "predicted", "confidence"]
    assert [r["body"] for r in rows] == [t or "" for t in TEXTS] and {r["note"] for r in rows} == {"kept"}
    assert [r["predicted"] or None for r in rows] == expected(model)
    assert 1 / 3 <= float(rows[0]["confidence"]) <= 1 and rows[1]["confidence"] == ""


def test_parquet_keeps_its_types(model, tmp_path):
    table = pa.table({"id": pa.array(range(5), pa.int16()), "text": TEXTS, "when": pa.array([1.5] * 5)})
    pq.write_table(table, tmp_path / "in.parquet")
    predict(model.folder, str(tmp_path / "in.parquet"), str(tmp_path / "out.parquet"))
    found = pq.read_table(tmp_path / "out.parquet")
    assert found.select(["id", "text", "when"]).equals(table)
    assert found["predicted"].to_pylist() == expected(model)


def test_a_line_that_is_no_object_stays(model, tmp_path):
    lines = [json.dumps({"text": t, "more": {"a": 1}}) for t in TEXTS] + ["no json", "[1]"]
    (tmp_path / "in.jsonl").write_text("\n".join(lines) + "\n")
    assert predict(model.folder, str(tmp_path / "in.jsonl"), str(tmp_path / "out.jsonl")) == Predicted(7, 4)
    found = (tmp_path / "out.jsonl").read_text().splitlines()
    assert found[-2:] == ["no json", "[1]"]
    assert [json.loads(line)["predicted"] for line in found[:5]] == expected(model)
    assert json.loads(found[0])["more"] == {"a": 1}


def test_bytes_of_another_encoding_come_out_as_they_went_in(model, tmp_path):
    (tmp_path / "in.csv").write_bytes(b"text,x\na b,\xe9\nshort\n")
    predict(model.folder, str(tmp_path / "in.csv"), str(tmp_path / "out.csv"))
    assert b"a b,\xe9," in (tmp_path / "out.csv").read_bytes()


@pytest.mark.parametrize(
    ("file", "output", "column", "message"),
    [
        ("in.csv", "out.jsonl", "text", "must end as"),
        ("in.xlsx", "out.xlsx", "text", "is not a .parquet"),
        ("none.csv", "out.csv", "text", "there is no file"),
        ("in.csv", "in.csv", "body", "exists already"),
        ("in.csv", "out.csv", "text", "no column 'text'; there are id, body, note; use --text-column"),
        ("done.csv", "out.csv", "text", "a column 'predicted' already"),
    ],
)
def test_a_wrong_request_leaves_nothing(model, tmp_path, file, output, column, message):
    write_csv(tmp_path / "in.csv", ",")
    (tmp_path / "done.csv").write_text("text,predicted\na,b\n")
    before = sorted(p.name for p in tmp_path.iterdir())
    with pytest.raises(RequestError, match=message):
        predict(model.folder, str(tmp_path / file), str(tmp_path / output), column)
    assert sorted(p.name for p in tmp_path.iterdir()) == before
    with pytest.raises(RequestError, match="there is no directory"):
        predict(str(tmp_path / "no"), str(tmp_path / "in.csv"), str(tmp_path / "out.csv"), "body")
