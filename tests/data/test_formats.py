"""Every format: what is written is read again, row by row, and every row is in exactly one shard."""

from __future__ import annotations

import bz2
import codecs
import csv
import gzip
import io
import json
import random
import re
from pathlib import Path

import datasets
import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import epida_ray
from epida_ray.core.errors import RequestError, RunError
from epida_ray.data.plan import Columns, plan_inputs
from epida_ray.data.reader import ShardReader
from epida_ray.data.writer import csv_table, csv_text, open_writer

SUFFIXES = [
    *(f".{kind}{packed}" for kind in ("csv", "tsv", "jsonl", "json") for packed in ("", ".gz", ".bz2", ".zst")),
    ".parquet", ".arrow", ".feather", ".xlsx",
]  # fmt: skip
ODD = [
    "a\rb",
    "a\r\nb",
    "a\nb",
    '"',
    '""',
    "a,b;c\td|e",
    "=1+1",
    "'",
    "\ufeff",
    "é😀",
    "\x01",
    "_x0001_",
    "007",
    "7",
    "\\",
]


def read(location: object, columns: Columns | None = None, **options: object) -> list[dict]:
    plan = plan_inputs(str(location), columns or Columns(), **options)  # type: ignore[arg-type]
    reader = ShardReader(plan)
    return [row for shard in plan.shards() for row in reader.read(shard).to_pylist()]


def texts_of(rows: list[dict]) -> list[tuple[str, str]]:
    assert not [r["reason"] for r in rows if r["reason"]]
    return [(r["text"], r["label"]) for r in rows]


def write(path: Path, rows: list[tuple[str, str]], parts: int = 1) -> None:
    size = -(-len(rows) // parts)
    with open_writer(str(path)) as writer:
        for start in range(0, len(rows), size):
            some = rows[start : start + size]
            writer.table(pa.table({"text": [t for t, _ in some], "label": [label for _, label in some]}))


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_what_is_written_is_read_again_and_every_row_is_in_one_shard(tmp_path: Path, suffix: str) -> None:
    rng = random.Random(suffix)
    rows = [(rng.choice(ODD) + f" text {i} " + rng.choice(ODD), rng.choice("ab")) for i in range(1000)]
    path = tmp_path / f"in{suffix}"
    write(path, rows, parts=3)
    plan = plan_inputs(str(path), Columns())
    shards = list(plan.shards())
    assert [i for s in shards for i in range(s.start, s.stop)] == list(range(1000)) and len(shards) > 10
    reader = ShardReader(plan)
    order = rng.sample(shards, len(shards))  # a shard is read alone, in any order
    found = {shard: reader.read(shard).to_pylist() for shard in order}
    assert texts_of([row for shard in shards for row in found[shard]]) == rows


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    rows=st.lists(
        st.tuples(st.text(min_size=1, max_size=20).filter(lambda t: not t.isspace()), st.sampled_from("ab")), min_size=1
    ),
    suffix=st.sampled_from([".csv", ".tsv", ".jsonl", ".json.gz", ".parquet", ".arrow"]),
)
def test_any_unicode_comes_back(tmp_path_factory, rows, suffix) -> None:
    path = tmp_path_factory.mktemp("fuzz") / f"in{suffix}"
    write(path, rows)
    assert texts_of(read(path)) == rows


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_a_table_as_csv_comes_back_field_by_field(delimiter: str, end: str) -> None:
    odd = ("a\rb", "\r", "a\r\nb", "a\nb", '"', '""', 'say "a\r"', ",;\t", "", " a ")
    rows = [[one, "x", f"{one} and {one}"] for one in odd]
    text = csv_text(rows, delimiter, end)
    assert list(csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)) == rows
    named = [dict(zip("abc", row, strict=True)) for row in rows]
    assert list(csv.DictReader(io.StringIO(csv_table("abc", named), newline=""))) == named
    assert csv_table(("a", "b"), [{"a": 1.5, "c": "not asked for"}]) == "a,b\n1.5,\n"


def test_only_data_makes_csv_by_hand() -> None:
    package = Path(epida_ray.__file__).parent
    found = {f.parent.name for f in package.rglob("*.py") if re.search(r"csv\.(writer|DictWriter)\(", f.read_text())}
    assert found == {"data"}


def test_the_same_rows_give_the_same_bytes(tmp_path: Path) -> None:
    for suffix in SUFFIXES:
        for name in ("one", "two"):
            write(tmp_path / f"{name}{suffix}", [("a", "b"), ("c", "d")])
        assert (tmp_path / f"one{suffix}").read_bytes() == (tmp_path / f"two{suffix}").read_bytes(), suffix


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_nothing_is_left_of_a_block_that_fails(tmp_path: Path, suffix: str) -> None:
    with pytest.raises(ValueError, match="stop"), open_writer(str(tmp_path / f"out{suffix}")) as writer:
        writer.table(pa.table({"text": ["a"], "label": ["b"]}))
        raise ValueError("stop")
    assert list(tmp_path.iterdir()) == []


def test_values_of_all_types_are_written_to_cells_and_objects(tmp_path: Path) -> None:
    table = pa.table(
        {
            "float": pa.array([0.1, None], pa.float32()),
            "whole": pa.array([1, None], pa.int64()),
            "list": pa.array([["a", "b"], None]),
            "class": pa.array(["x", "y"]).dictionary_encode(),
            "true": [True, False],
        }
    )
    for name in ("out.csv", "out.xlsx", "out.jsonl", "out.json"):
        with open_writer(str(tmp_path / name)) as writer:
            writer.table(table)
    with (tmp_path / "out.csv").open(newline="") as file:
        assert list(csv.reader(file))[1:] == [["0.1", "1", '["a", "b"]', "x", "true"], ["", "", "", "y", "false"]]
    found = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert found[0] == {"float": 0.1, "whole": 1, "list": ["a", "b"], "class": "x", "true": True}
    assert json.loads((tmp_path / "out.json").read_text()) == found
    row = read(tmp_path / "out.xlsx", Columns(text="float", label="true", id="whole"))[0]
    assert (row["text"], row["label"], row["sample_id"]) == ("0.1", "true", "1")


def test_a_json_array_without_rows_is_an_array(tmp_path: Path) -> None:
    with open_writer(str(tmp_path / "out.json")):
        pass
    assert json.loads((tmp_path / "out.json").read_text()) == []


def test_a_text_that_no_cell_holds_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"row 1 has a text of 40,000 characters.*\.csv or \.parquet"):
        write(tmp_path / "out.xlsx", [("x" * 40_000, "a")])
    assert list(tmp_path.iterdir()) == []


def test_a_format_that_is_not_known_is_told_how_to_convert_it(tmp_path: Path) -> None:
    for name, advice in {
        "a.xls": "save it as .xlsx",
        "a.pkl": "pandas.read_pickle",
        "a.zip": "unpack it",
        "a.parquet.gz": "Parquet is compressed inside",
        "a.doc": "convert it to one of those",
    }.items():
        (tmp_path / name).write_bytes(b"x")
        with pytest.raises(RequestError, match=advice):
            plan_inputs(str(tmp_path / name), Columns())


@pytest.mark.parametrize(("delimiter", "name"), [(";", "in.csv"), ("\t", "in.csv"), ("|", "in.csv"), (",", "in.tsv")])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "windows-1252"])
def test_the_dialect_is_detected_and_said(tmp_path: Path, delimiter: str, name: str, encoding: str) -> None:
    out = io.StringIO(newline="")
    writer = csv.writer(out, delimiter=delimiter)
    writer.writerow(["id", "text", "label"])
    writer.writerows([i, f"Café, crème; brûlée | {i}", "très"] for i in range(200))
    (tmp_path / name).write_bytes(out.getvalue().encode(encoding))
    plan = plan_inputs(str(tmp_path / name), Columns())
    said = " ".join(plan.remarks())
    assert repr(delimiter) in said
    assert ("UTF-16" in said) == (encoding == "utf-16") and ("windows-1252" in said) == (encoding == "windows-1252")
    rows = texts_of(read(tmp_path / name))
    assert rows == [(f"Café, crème; brûlée | {i}", "très") for i in range(200)]
    assert texts_of(read(tmp_path / name, delimiter=delimiter)) == rows


def test_windows_1252_in_the_header_alone_is_detected_and_said(tmp_path: Path) -> None:
    path = tmp_path / "in.csv"
    columns = Columns(text="Rückmeldung", label="Kategorie")
    for rows in ("gut;a\nschlecht;b\n" * 5, "schön;a\n" + "gut;b\n" * 99):
        path.write_bytes(("Rückmeldung;Kategorie\n" + rows).encode("windows-1252"))
        plan = plan_inputs(str(path), columns)
        assert "in.csv: read as windows-1252, since it is not UTF-8" in plan.notes
        first = next(iter(plan.shards()))
        assert ShardReader(plan).read(first)["text"].to_pylist()[0] == rows[: rows.index(";")]
    path.write_bytes("Текст;Метка\ngood;a\n".encode("windows-1251"))
    with pytest.raises(RequestError, match="the header of in.csv is not UTF-8; "):
        plan_inputs(str(path), Columns(text="Текст", label="Метка"))


@pytest.mark.parametrize("encoding", ["auto", "windows-1252"])
def test_a_json_array_in_windows_1252(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "in.json"
    rows = [{"text": f"Café, crème brûlée {i}", "label": "très"} for i in range(9)]
    path.write_bytes(json.dumps(rows, ensure_ascii=False).encode("windows-1252"))
    plan = plan_inputs(str(path), Columns(), encoding)
    assert plan.notes == (("in.json: read as windows-1252, since it is not UTF-8",) if encoding == "auto" else ())
    texts = [text for shard in plan.shards() for text in ShardReader(plan).read(shard)["text"].to_pylist()]
    assert texts == [row["text"] for row in rows]
    with pytest.raises(RequestError, match="the text of in.json is not UTF-8; try --encoding windows-1252"):
        plan_inputs(str(path), Columns(), "utf-8")


def test_a_delimiter_may_be_named(tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text("text~label\na;b~x\n")
    assert texts_of(read(tmp_path / "in.csv", delimiter="~")) == [("a;b", "x")]
    (tmp_path / "tab.csv").write_text("text\tlabel\na,b\tx\n")
    for tab in ("tab", r"\t", "\t"):
        assert texts_of(read(tmp_path / "tab.csv", delimiter=tab)) == [("a,b", "x")]
    for wrong in ("", ";;", '"', "\n", "é", "a"):
        with pytest.raises(RequestError, match="--delimiter"):
            read(tmp_path / "in.csv", delimiter=wrong)


def test_a_folder_of_hugging_face_datasets(tmp_path: Path) -> None:
    rows = [(f"text {i}", "ab"[i % 2]) for i in range(100)]
    data = datasets.Dataset.from_dict({"text": [t for t, _ in rows], "label": [label for _, label in rows]})
    data.save_to_disk(str(tmp_path / "one"), num_shards=3)
    assert texts_of(read(tmp_path / "one")) == rows
    datasets.DatasetDict({"train": data, "test": data}).save_to_disk(str(tmp_path / "two"))
    plan = plan_inputs(str(tmp_path / "two"), Columns())
    assert plan.rows == 200 and "all splits are read (test, train)" in plan.remarks()[0]
    plan = plan_inputs(str(tmp_path / "two" / "train"), Columns())
    assert plan.rows == 100 and plan.remarks() == []


@pytest.mark.parametrize(
    "kind", [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string())]
)
@pytest.mark.parametrize("stream", [False, True])
def test_arrow_of_other_programs(tmp_path: Path, kind: pa.DataType, stream: bool) -> None:
    table = pa.table({"text": pa.array(["a", "é"], pa.string()).cast(kind), "label": ["x", "y"]})
    with (pa.ipc.new_stream if stream else pa.ipc.new_file)(str(tmp_path / "in.arrow"), table.schema) as writer:
        writer.write_table(table)
    assert texts_of(read(tmp_path / "in.arrow")) == [("a", "x"), ("é", "y")]


def test_feather_of_version_1_is_told_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "in.feather").write_bytes(b"FEA1" + b"\0" * 60 + b"FEA1")
    with pytest.raises(RequestError, match="version 1; write it anew"):
        plan_inputs(str(tmp_path / "in.feather"), Columns())


def test_damaged_files_are_unreadable_and_cost_no_other_file(tmp_path: Path) -> None:
    rows = [(f"text {i}", "ab"[i % 2]) for i in range(500)]
    write(tmp_path / "good.csv", rows)
    for suffix in (".csv.gz", ".csv.zst", ".csv.bz2", ".arrow", ".xlsx", ".json"):
        write(tmp_path / f"in{suffix}", rows)
        data = (tmp_path / f"in{suffix}").read_bytes()
        (tmp_path / f"in{suffix}").write_bytes(data[: len(data) // 2])
    plan = plan_inputs(str(tmp_path), Columns())
    assert plan.rows == 500 and sum(bool(f.error) for f in plan.files) == 6
    assert all(f.error.startswith("cannot be read as") for f in plan.files if f.error)


def test_compressed_files_of_other_programs(tmp_path: Path) -> None:
    data = b"text,label\n" + b"".join(b"text %d,a\n" % i for i in range(300))
    (tmp_path / "in.csv.gz").write_bytes(gzip.compress(data[:1000]) + gzip.compress(data[1000:]))
    (tmp_path / "in.csv.bz2").write_bytes(bz2.compress(data))
    for name in ("in.csv.gz", "in.csv.bz2"):
        assert texts_of(read(tmp_path / name)) == [(f"text {i}", "a") for i in range(300)]


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_every_format_on_an_object_store(suffix: str) -> None:
    location = f"memory://epida-formats/in{suffix}"
    rows = [(f"text {i}", "a") for i in range(100)]
    with open_writer(location) as writer:
        writer.table(pa.table({"text": [t for t, _ in rows], "label": [label for _, label in rows]}))
    try:
        assert texts_of(read(location)) == rows
    finally:
        fsspec.filesystem("memory").rm(f"/epida-formats/in{suffix}")


def test_json_with_a_byte_order_mark_and_json_lines_of_that_name(tmp_path: Path) -> None:
    rows = [{"text": "é", "label": 1}, {"text": "b", "label": 2}]
    array, lines = json.dumps(rows), "\n".join(map(json.dumps, rows))
    for content in (array, lines):
        for mark in (b"", codecs.BOM_UTF8):
            (tmp_path / "in.json").write_bytes(mark + content.encode())
            assert texts_of(read(tmp_path / "in.json")) == [("é", "1"), ("b", "2")]
    (tmp_path / "in.json").write_text(json.dumps([*rows, 5, {"text": "\ud800", "label": 1}]))
    assert [r["reason"] is None for r in read(tmp_path / "in.json")] == [True, True, False, False]


class Evil(pa.ExtensionType):
    """A type as Ray Data's: what reads it runs code."""

    ran: list[bytes] = []  # noqa: RUF012 - what ran, in any process

    def __init__(self, name: str = "ray.data.evil") -> None:
        super().__init__(pa.binary(), name)

    def __arrow_ext_serialize__(self) -> bytes:
        return b"\x80\x04pickle"

    @classmethod
    def __arrow_ext_deserialize__(cls, storage: pa.DataType, serialized: bytes) -> Evil:
        cls.ran.append(serialized)
        return cls()


@pytest.fixture
def evil():
    pa.register_extension_type(Evil())
    Evil.ran.clear()
    yield Evil()
    pa.unregister_extension_type("ray.data.evil")


@pytest.mark.parametrize("suffix", [".parquet", ".arrow"])
@pytest.mark.parametrize("column", ["text", "label", "other", "deep"])
def test_extension_types_run_no_code(tmp_path: Path, evil: Evil, suffix: str, column: str) -> None:
    plain = pa.array([b"a", b"b"])
    values: pa.Array = pa.ExtensionArray.from_storage(evil, plain)
    if column == "deep":
        values = pa.ListArray.from_arrays([0, 1, 2], values)
    table = pa.table({"text": ["a", "b"], "label": ["a", "b"]} | {column: values})
    path = tmp_path / f"in{suffix}"
    if suffix == ".parquet":
        pq.write_table(table, path)
    else:
        pa.feather.write_feather(table, path)
    Evil.ran.clear()
    if column in ("other", "deep"):
        assert texts_of(read(path)) == [("a", "a"), ("b", "b")]
    else:
        with pytest.raises(RequestError, match=f"column '{column}' has the type ray.data.evil"):
            read(path)
    assert Evil.ran == []


def test_types_of_arrow_itself_stay(tmp_path: Path) -> None:
    ids = pa.ExtensionArray.from_storage(pa.uuid(), pa.array([b"0" * 16], pa.binary(16)))
    table = pa.table({"text": ["a"], "label": ["b"], "id": ids})
    pq.write_table(table, tmp_path / "in.parquet")
    plan = plan_inputs(str(tmp_path / "in.parquet"), Columns())
    _, rows = ShardReader(plan, whole=True).read_whole(next(plan.shards()))
    assert rows.schema.field("id").type == pa.uuid() and rows.select(["text", "label"]).to_pylist() == [
        {"text": "a", "label": "b"}
    ]
    with pytest.raises(RequestError, match="column 'id' has the type arrow.uuid"):
        plan_inputs(str(tmp_path / "in.parquet"), Columns(id="id"))


def test_tables_of_ray_data_with_tensors_are_read(tmp_path: Path) -> None:
    tensors = pytest.importorskip("ray.data.extensions")
    vectors = tensors.ArrowTensorArray.from_numpy(np.zeros((2, 3)))
    pq.write_table(pa.table({"text": ["a", "b"], "label": ["x", "y"], "vector": vectors}), tmp_path / "in.parquet")
    assert texts_of(read(tmp_path / "in.parquet")) == [("a", "x"), ("b", "y")]


@pytest.mark.parametrize("name", ["out.jsonl", "out.json"])
def test_json_is_valid_whatever_the_values(tmp_path: Path, name: str) -> None:
    rows = [json.loads(line) for line in ('{"a": "\\udce9"}', '{"a": 1e400, "b": [-1e400, {"c": NaN}]}', '{"a": "é"}')]
    with open_writer(str(tmp_path / name)) as writer:
        writer.objects(rows)

    def refuse(word: str) -> None:
        pytest.fail(f"{word} is no JSON")

    text = (tmp_path / name).read_bytes().decode()
    lines = [text] if name == "out.json" else text.splitlines()
    got = [json.loads(line, parse_constant=refuse) for line in lines]
    expected = [rows[0], {"a": "Infinity", "b": ["-Infinity", {"c": None}]}, {"a": "é"}]
    assert got == ([expected] if name == "out.json" else expected) and "é" in text
