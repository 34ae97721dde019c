import csv
import json
import logging
from pathlib import Path

import boto3
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from moto.server import ThreadedMotoServer
from python_calamine import CalamineWorkbook

from epida_ray.classify.cnn import CNN
from epida_ray.core.errors import RequestError, RunError
from epida_ray.core.progress import Reporter
from epida_ray.data.plan import Columns, plan_inputs
from epida_ray.data.reader import ShardReader
from epida_ray.data.writer import open_writer
from epida_ray.method.predict import Predicted, predict, predict_texts

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


def test_a_file_is_replaced_when_that_is_asked_for_and_stays_when_it_fails(model, tmp_path):
    write_csv(tmp_path / "in.csv", ",")
    predict(model.folder, str(tmp_path / "in.csv"), str(tmp_path / "out.csv"), "body")
    expected = (tmp_path / "out.csv").read_bytes()
    (tmp_path / "out.csv").write_text("old")
    with pytest.raises(RequestError, match="already; rename it"):
        (tmp_path / "rows.jsonl").write_text('{"body": "a text", "predicted": 1}\n')
        (tmp_path / "out.jsonl").write_text("old")
        predict(model.folder, str(tmp_path / "rows.jsonl"), str(tmp_path / "out.jsonl"), "body", overwrite=True)
    assert (tmp_path / "out.jsonl").read_text() == "old"
    predict(model.folder, str(tmp_path / "in.csv"), str(tmp_path / "out.csv"), "body", overwrite=True)
    assert (tmp_path / "out.csv").read_bytes() == expected
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(RequestError, match="is a folder"):
        predict(model.folder, str(tmp_path / "in.csv"), str(tmp_path / "folder.csv"), "body", overwrite=True)


@pytest.mark.parametrize(
    ("file", "output", "column", "message"),
    [
        ("in.csv", "out.jsonl", "text", "must end as"),
        ("in.xls", "out.xls", "text", "is not a .parquet.* save it as .xlsx"),
        ("none.csv", "out.csv", "text", "there is no file"),
        ("in.csv", "in.csv", "body", "exists already"),
        ("in.csv", "out.csv", "text", "no column 'text'; it has 'id', 'body', 'note'; use --text-column"),
        ("semicolons.csv", "out.csv", "text", "no column 'text'; it has 'id', 'body', 'note'; use --text-column"),
        ("done.csv", "out.csv", "text", "a column 'predicted' already"),
    ],
)
def test_a_wrong_request_leaves_nothing(model, tmp_path, file, output, column, message):
    write_csv(tmp_path / "in.csv", ",")
    write_csv(tmp_path / "semicolons.csv", ";")
    (tmp_path / "done.csv").write_text("text,predicted\na,b\n")
    before = sorted(p.name for p in tmp_path.iterdir())
    with pytest.raises(RequestError, match=message):
        predict(model.folder, str(tmp_path / file), str(tmp_path / output), column)
    assert sorted(p.name for p in tmp_path.iterdir()) == before
    with pytest.raises(RequestError, match="there is no directory"):
        predict(str(tmp_path / "no"), str(tmp_path / "in.csv"), str(tmp_path / "out.csv"), "body")


def rows_of(path: Path, **options: object) -> list[dict]:
    """What any reader of such a file finds, by the name of its columns."""
    if path.suffix == ".csv":
        with path.open(newline="", encoding=str(options.get("encoding", "utf-8"))) as file:
            return list(csv.DictReader(file, delimiter=str(options.get("delimiter", ","))))
    return pq.read_table(path).to_pylist()


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_a_byte_order_mark_is_written_once(model, tmp_path, encoding):
    (tmp_path / "in.csv").write_bytes(("text,x\n" + "a parcel,é\n" * 9_000).encode(encoding))
    assert predict(model.folder, str(tmp_path / "in.csv"), str(tmp_path / "out.csv"), encoding=encoding).rows == 9_000
    text = (tmp_path / "out.csv").read_bytes().decode(encoding)
    assert (
        "\ufeff" not in text
        and text.count("\n") == 9_001
        and text.startswith("text,x,predicted,confidence\na parcel,é,")
    )


def test_the_encoding_and_the_delimiter_stay_and_are_said(model, tmp_path, capsys):
    lines = "".join(f"Où est le colis n° {i}?;très\n" for i in range(200))
    (tmp_path / "in.csv").write_bytes(("text;x\n" + lines).encode("windows-1252"))
    predict(model.folder, str(tmp_path / "in.csv"), str(tmp_path / "out.csv"), reporter=Reporter())
    said = capsys.readouterr().err
    assert "read as windows-1252" in said and "separated by ';'" in said
    rows = rows_of(tmp_path / "out.csv", encoding="windows-1252", delimiter=";")
    assert [r["text"] for r in rows] == [f"Où est le colis n° {i}?" for i in range(200)] and {r["x"] for r in rows} == {
        "très"
    }
    predict(model.folder, str(tmp_path / "in.csv"), str(tmp_path / "out.tsv"))
    assert (tmp_path / "out.tsv").read_bytes().startswith(b"text\tx\tpredicted\tconfidence\n")


def test_a_class_that_the_encoding_lacks_is_refused(tmp_path):
    CNN(("日本", "other"), vectors="hashed:16", channels=4).save(tmp_path / "model")
    (tmp_path / "in.csv").write_bytes("text\ncafé\n".encode("cp1252"))
    with pytest.raises(RequestError, match="the class '日本' cannot be written in cp1252"):
        predict(str(tmp_path / "model"), str(tmp_path / "in.csv"), str(tmp_path / "out.csv"), encoding="cp1252")


def test_carriage_returns_and_extra_and_missing_fields_stay_in_their_columns(model, tmp_path, capsys):
    (tmp_path / "in.csv").write_bytes(b'text,x\n"a\rb",1\n"c\r\nd",2\na parcel, late,3,4\nshort\n')
    assert predict(model.folder, str(tmp_path / "in.csv"), str(tmp_path / "out.csv"), reporter=Reporter()) == Predicted(
        4, 2
    )
    assert "1 row has no prediction: 4 fields where the header has 2" in capsys.readouterr().err
    rows = rows_of(tmp_path / "out.csv")
    assert [r["text"] for r in rows] == ["a\rb", "c\r\nd", "a parcel", "short"]
    assert [r["x"] for r in rows] == ["1", "2", " late", ""]
    assert [bool(r["predicted"]) for r in rows] == [True, True, False, False] and rows[2][None] == ["3", "4"]


def test_columns_of_these_names_are_never_overwritten(model, tmp_path):
    (tmp_path / "in.jsonl").write_text('{"text": "a"}\n' * 100 + '{"text": "b", "confidence": 1}\n')
    (tmp_path / "in.json").write_text('[{"text": "a", "predicted": "mine"}]')
    pq.write_table(pa.table({"text": ["a"], "confidence": ["high"]}), tmp_path / "in.parquet")
    for name in ("in.jsonl", "in.json", "in.parquet"):
        with pytest.raises(RequestError, match="already; rename it"):
            predict(model.folder, str(tmp_path / name), str(tmp_path / name.replace("in", "out")))
    assert not list(tmp_path.glob("out*"))


@pytest.mark.parametrize("name", ["in.jsonl", "in.json"])
def test_a_lone_surrogate_costs_its_row_only(model, tmp_path, name):
    rows = [{"text": "a parcel"}, {"text": "broken \ud800 text"}, {"text": "ok", "x": "\udfff"}, {"text": "é"}]
    lines = [json.dumps(row) for row in rows]
    content = "[" + ",".join(lines) + "]" if name == "in.json" else "\n".join(lines)
    (tmp_path / name).write_text(content)
    out = tmp_path / name.replace("in", "out")
    assert predict(model.folder, str(tmp_path / name), str(out)) == Predicted(4, 1)
    text = out.read_text(encoding="utf-8")
    found = json.loads(text) if name == "in.json" else [json.loads(line) for line in text.splitlines()]
    assert [{k: v for k, v in row.items() if k in ("text", "x")} for row in found] == rows
    assert [bool(row["predicted"]) for row in found] == [True, False, True, True]


@pytest.mark.parametrize("name", ["in.parquet", "in.arrow", "in.csv"])
def test_a_file_without_rows_stays_a_valid_one(model, tmp_path, name):
    with open_writer(str(tmp_path / name)) as writer:
        writer.table(pa.table({"text": pa.array([], pa.string()), "x": pa.array([], pa.int16())}))
    out = tmp_path / name.replace("in", "out")
    assert predict(model.folder, str(tmp_path / name), str(out)) == Predicted(0, 0)
    if name == "in.csv":
        assert out.read_text() == "text,x,predicted,confidence\n"
        return
    found = pq.read_table(out) if name == "in.parquet" else pa.ipc.open_file(str(out)).read_all()
    assert found.num_rows == 0 and found.schema.names == ["text", "x", "predicted", "confidence"]
    assert found.schema.field("x").type == pa.int16()
    with pytest.raises(RequestError, match="no column 'body'"):
        predict(model.folder, str(tmp_path / name), str(tmp_path / "again" / name), "body")


SHAPES = [
    ("in.xlsx", "out.xlsx"), ("in.xlsx", "out.csv"), ("in.csv.gz", "out.csv.zst"), ("in.jsonl.bz2", "out.jsonl"),
    ("in.json", "out.json.gz"), ("in.arrow", "out.feather"), ("in.feather", "out.parquet"), ("in.parquet", "out.arrow"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "other"), SHAPES)
def test_rows_of_every_format_come_back_with_their_predictions(model, tmp_path, name, other):
    texts = [f"where is parcel {i}\nand 007" for i in range(300)]
    table = pa.table(
        {"text": texts, "number": pa.array(range(300), pa.int64()), "code": [f"{i:05}" for i in range(300)]}
    )
    with open_writer(str(tmp_path / name)) as writer:
        writer.table(table)
    assert predict(model.folder, str(tmp_path / name), str(tmp_path / other)) == Predicted(300, 0)
    columns = {
        c: Columns(text="text", label=None if c == "text" else c) for c in ("text", "number", "code", "predicted")
    }
    found = {}
    for column, used in columns.items():
        plan = plan_inputs(str(tmp_path / other), used)
        reader = ShardReader(plan)
        rows = [row for shard in plan.shards() for row in reader.read(shard).to_pylist()]
        found[column] = [row["text" if column == "text" else "label"] for row in rows]
    assert found["text"] == texts and found["code"] == [f"{i:05}" for i in range(300)]
    assert found["number"] == [str(i) for i in range(300)]
    p = model.predict_proba(texts).argmax(axis=1)
    assert found["predicted"] == [model.labels[i] for i in p]
    if other == "out.parquet":
        assert pq.read_schema(tmp_path / other).types[:3] == table.schema.types


def test_numbers_of_a_spreadsheet_stay_numbers(model, tmp_path):
    with open_writer(str(tmp_path / "in.xlsx")) as writer:
        writer.table(pa.table({"text": ["7", "b"], "n": [1.5, 2.0], "code": ["007", "x"]}))
    predict(model.folder, str(tmp_path / "in.xlsx"), str(tmp_path / "out.xlsx"))
    header, first, second = CalamineWorkbook.from_path(tmp_path / "out.xlsx").get_sheet_by_index(0).to_python()
    assert header == ["text", "n", "code", "predicted", "confidence"]
    assert first[:3] == ["7", 1.5, "007"] and second[:3] == ["b", 2.0, "x"] and isinstance(first[4], float)


def test_an_extension_type_is_refused_and_not_unpickled(model, tmp_path):
    class Pickled(pa.ExtensionType):
        def __init__(self):
            super().__init__(pa.binary(), "ray.data.test_pickled")

        def __arrow_ext_serialize__(self):
            return b""

        @classmethod
        def __arrow_ext_deserialize__(cls, storage, serialized):
            raise AssertionError("the code of the type ran")

    values = pa.ExtensionArray.from_storage(Pickled(), pa.array([b"x"]))
    pq.write_table(pa.table({"text": ["a"], "more": values}), tmp_path / "in.parquet")
    pa.register_extension_type(Pickled())
    try:
        with pytest.raises(RequestError, match="column 'more' has the type ray.data.test_pickled"):
            predict(model.folder, str(tmp_path / "in.parquet"), str(tmp_path / "out.parquet"))
    finally:
        pa.unregister_extension_type("ray.data.test_pickled")


def test_a_file_with_damaged_pages_is_an_error_and_leaves_nothing(model, tmp_path):
    table = pa.table({"text": [f"text number {i} of many" for i in range(500)]})
    pq.write_table(table, tmp_path / "in.parquet", use_dictionary=False)
    data = bytearray((tmp_path / "in.parquet").read_bytes())
    data[100:400] = b"\xff" * 300
    (tmp_path / "in.parquet").write_bytes(bytes(data))
    with pytest.raises(RunError, match="cannot read in.parquet to its end"):
        predict(model.folder, str(tmp_path / "in.parquet"), str(tmp_path / "out.parquet"))
    assert not list(tmp_path.glob("out*"))


@pytest.fixture
def bucket(monkeypatch):
    """The options of a URL that lead to an S3-compatible server."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    for name, value in {
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": "us-east-1",
    }.items():
        monkeypatch.setenv(name, value)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    host, port = server.get_host_and_port()
    boto3.client("s3", endpoint_url=f"http://{host}:{port}").create_bucket(Bucket="bucket")
    yield f"?endpoint_override={host}:{port}&scheme=http&region=us-east-1"
    server.stop()


@pytest.mark.parametrize("name", ["in.csv", "in.parquet", "in.jsonl.gz", "in.xlsx"])
def test_a_url_with_options(model, tmp_path, bucket, name):
    source, target = f"s3://bucket/folder/{name}{bucket}", f"s3://bucket/new/{name}{bucket}"
    with open_writer(source) as writer:
        writer.table(pa.table({"text": ["a parcel", "b"], "x": [1, 2]}))
    assert predict(model.folder, source, target) == Predicted(2, 0)
    plan = plan_inputs(target, Columns(label="predicted"))
    rows = ShardReader(plan).read(next(plan.shards())).to_pylist()
    assert [row["text"] for row in rows] == ["a parcel", "b"] and all(row["label"] in model.labels for row in rows)
    with pytest.raises(RequestError, match="exists already"):
        predict(model.folder, source, target)
    with pytest.raises(RequestError, match="keep credentials") as caught:
        predict(model.folder, f"{source}&secret_key=hunter2", target)
    assert "hunter2" not in str(caught.value)


def test_probabilities_of_every_class(model, tmp_path):
    write_csv(tmp_path / "in.csv", ",")
    predict(model.folder, str(tmp_path / "in.csv"), str(tmp_path / "out.csv"), "body", probabilities=True)
    with (tmp_path / "out.csv").open(newline="", encoding="utf-8-sig") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0])[3:] == ["predicted", "confidence", "p_bug", "p_billing", "p_other"]
    p = model.predict_proba([TEXTS[0]])[0]
    assert [float(rows[0][f"p_{label}"]) for label in model.labels] == [round(float(v), 4) for v in p]
    assert rows[1]["p_bug"] == ""
    pq.write_table(pa.table({"text": TEXTS}), tmp_path / "in.parquet")
    predict(model.folder, str(tmp_path / "in.parquet"), str(tmp_path / "out.parquet"), probabilities=True)
    table = pq.read_table(tmp_path / "out.parquet")
    assert table["p_bug"].type == pa.float32() and table["p_bug"].to_pylist()[1] is None
    with pytest.raises(RequestError, match="there is a column 'confidence' already"):
        predict(model.folder, str(tmp_path / "out.parquet"), str(tmp_path / "again.parquet"))


def test_texts_without_a_file(model):
    found = list(predict_texts(model.folder, iter([*["where is my parcel"] * 70, "", "two"]), probabilities=True))
    assert len(found) == 72 and found[0] == found[69]
    assert found[0]["predicted"] == expected(model)[0] and found[70]["predicted"] is None
    assert list(found[0]["probabilities"]) == list(model.labels)
    assert max(found[0]["probabilities"].values()) == found[0]["confidence"]
    with pytest.raises(RequestError, match="there is no directory"):
        list(predict_texts("nowhere", ["a"]))
