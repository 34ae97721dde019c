from __future__ import annotations

import csv
import functools
import http.server
import io
import json
import os
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from epida_ray.core.errors import RequestError
from epida_ray.data import discovery, scan
from epida_ray.data.plan import Columns, plan_inputs, rows_per_shard
from epida_ray.data.reader import ShardReader
from epida_ray.data.storage import Storage
from epida_ray.data.writer import open_writer


def read_all(location: Path | str, columns: Columns | None = None, encoding: str = "utf-8") -> list[dict]:
    plan = plan_inputs(str(location), columns or Columns(), encoding)
    reader = ShardReader(plan)
    return [row for shard in plan.shards() for row in reader.read(shard).to_pylist()]


def write_csv(path: Path, rows: list[tuple[str, str]], delimiter: str = ",") -> Path:
    out = io.StringIO(newline="")
    writer = csv.writer(out, delimiter=delimiter)
    writer.writerow(["text", "label"])
    writer.writerows(rows)
    path.write_bytes(out.getvalue().encode())
    return path


FIELD = st.text(st.sampled_from('ab"",\n\r é\t漢'), max_size=12)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(texts=st.lists(FIELD, min_size=1, max_size=200), chunk=st.integers(1, 40))
def test_csv_rows_are_those_of_the_csv_module_wherever_it_is_cut(tmp_path: Path, texts: list[str], chunk: int) -> None:
    path = write_csv(tmp_path / "a.csv", [(f"x{text}", "l") for text in texts])
    before, scan.CHUNK = scan.CHUNK, chunk
    try:
        rows = read_all(path)
    finally:
        scan.CHUNK = before
    expected = [row[0] for row in csv.reader(io.StringIO(path.read_bytes().decode(), newline=""))][1:]
    assert [row["text"] for row in rows] == expected
    assert [row["sample_id"] for row in rows] == [f"a.csv:{i}" for i in range(len(expected))]


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(lines=st.lists(st.text(st.sampled_from('ab",\r \t'), max_size=6), max_size=80), chunk=st.integers(1, 40))
def test_csv_that_no_writer_made_has_the_rows_of_the_csv_module(tmp_path: Path, lines: list[str], chunk: int) -> None:
    text = "text,label\n" + "\n".join(lines) + "\nlast,l\n"
    (tmp_path / "a.csv").write_bytes(text.encode())
    expected = [row for row in csv.reader(io.StringIO(text, newline="")) if row][1:]
    before, scan.CHUNK = scan.CHUNK, chunk
    try:
        rows = read_all(tmp_path / "a.csv")
    except RequestError as error:
        assert "never closed" in str(error)
        return
    finally:
        scan.CHUNK = before
    assert len(rows) == len(expected) and not any("cannot read" in (r["reason"] or "") for r in rows)
    assert [(r["text"], r["label"]) for r in rows if r["reason"] is None] == [
        tuple(row) for row in expected if len(row) == 2 and row[0].strip() and row[1]
    ]


def test_csv_keeps_literal_quotes_skips_blank_lines_and_a_byte_order_mark(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes('\ufeff\r\n\ntext,label\n5"" disk,a\n\n\r\n"with ""quotes"", and\na line",b\nlast,c'.encode())
    assert [(r["text"], r["label"]) for r in read_all(path)] == [
        ('5"" disk', "a"),
        ('with "quotes", and\na line', "b"),
        ("last", "c"),
    ]


def test_many_csv_rows_in_many_shards(tmp_path: Path) -> None:
    rows = [(f'row {i} "q", {"x" * (i % 50)}\nnext', str(i % 3)) for i in range(5000)]
    got = read_all(write_csv(tmp_path / "a.tsv", rows, "\t"))
    assert [(r["text"], r["label"]) for r in got] == rows


def test_a_row_with_the_wrong_number_of_fields_is_rejected(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("text,label\none,a\ntwo,b,extra\nthree\n")
    assert [r["reason"] for r in read_all(path)] == [
        None,
        "3 fields where the header has 2",
        "1 fields where the header has 2",
    ]


def test_damaged_rows_are_rejected_and_a_file_of_another_encoding_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "in.csv"
    path.write_bytes(b"text,label\ncaf\xe9,a\n" + b"plain,b\n" * 99)
    first, *others = read_all(path)
    assert "--encoding" in first["reason"] and not any(r["reason"] for r in others)
    path.write_bytes(b"text,label\n" + "très bon café crème,a\nplain,b\n".encode("latin-1") * 10)
    with pytest.raises(RequestError, match="10 of 20 rows of in.csv are not UTF-8; try --encoding windows-1252"):
        plan_inputs(str(path), Columns(), "utf-8")
    for encoding in ("latin-1", "auto"):
        assert [r["text"] for r in read_all(path, encoding=encoding)[:2]] == ["très bon café crème", "plain"]
    assert plan_inputs(str(path), Columns(), "auto").notes == ("in.csv: read as windows-1252, since it is not UTF-8",)


def test_jsonl_odd_rows_each_get_their_reason(tmp_path: Path) -> None:
    lines = [
        json.dumps({"text": "fine", "label": 1}),
        '{"text": "lone \\ud800 surrogate", "label": 1}',
        "not json",
        "[1, 2]",
        json.dumps({"text": None, "label": 1}),
        json.dumps({"text": "", "label": 1}),
        json.dumps({"text": " \t", "label": 1}),
        json.dumps({"text": 7, "label": 1}),
        json.dumps({"text": "no label", "label": None}),
        json.dumps({"text": "nul \x00 byte", "label": 2}),
        json.dumps({"text": "x" * 1_000_000, "label": 2}),
    ]
    path = tmp_path / "a.jsonl"
    path.write_text("\n".join(lines))
    reasons = [r["reason"] for r in read_all(path)]
    assert reasons[0] is None and reasons[9] is None
    expected = [
        "",
        "Unicode",
        "not JSON",
        "not a JSON object",
        "null",
        "empty",
        "empty",
        "int",
        "label is missing",
        "",
        "1,000,000",
    ]
    assert all(part in (reason or "") for part, reason in zip(expected, reasons, strict=True))
    assert plan_inputs(str(path), Columns()).label_type == "int64"


BAD_LINES = ["[" * 5000, "not json", "", " \t ", " \xa0", '{"text": "no label"}', "\ufeff", "[1]"]


@pytest.mark.parametrize("bad", BAD_LINES)
@pytest.mark.parametrize("where", [0, 1, 64, 130])
@pytest.mark.parametrize("encoding", ["utf-8", "latin-1"])
def test_a_bad_line_of_jsonl_costs_no_other_row(tmp_path: Path, bad: str, where: int, encoding: str) -> None:
    good = [json.dumps({"text": f"très {i}", "label": "a"}, ensure_ascii=False) for i in range(200)]
    lines = [*good[:where], bad, *good[where:]]
    (tmp_path / "a.jsonl").write_bytes("\n".join(lines).encode(encoding, "replace"))
    rows = read_all(tmp_path / "a.jsonl", encoding=encoding)
    assert [r["text"] for r in rows if r["reason"] is None] == [f"très {i}" for i in range(200)]
    assert len(rows) - 200 <= 1 and (len(rows) == 201 or not bad.strip(" \t\ufeff"))


def test_jsonl_without_an_object_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text("nothing\nhere\n")
    with pytest.raises(RequestError, match="none of the first lines is a JSON object"):
        plan_inputs(str(tmp_path / "a.jsonl"), Columns())


@pytest.mark.parametrize("opening", ["[", '{"a":'])
def test_nesting_that_is_just_too_deep_costs_no_other_row(tmp_path: Path, opening: str) -> None:
    closing = {"[": "]", '{"a":': "}"}[opening]
    nested = [f"{opening * n}1{closing * n}" for n in range(850, 1000)]
    lines = ['{"text": "t", "label": "x"}', *(f'{{"text": {n}, "label": {n}}}' for n in nested)]
    lines += [f'{{"text": "t", "label": {n}}}' for n in nested]
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    rows = read_all(tmp_path / "a.jsonl")
    assert rows[0]["reason"] is None and not any("cannot read" in (r["reason"] or "") for r in rows)


def invalid_strings(values: list[bytes | None]) -> pa.Array:
    made = pa.array(values, pa.binary())
    return pa.Array.from_buffers(pa.string(), len(made), made.buffers())


@pytest.mark.parametrize("make", [pa.array, invalid_strings, lambda v: pa.array(v).dictionary_encode()])
@pytest.mark.parametrize("column", ["text", "label", "id"])
def test_a_value_of_parquet_that_is_not_unicode_costs_no_other_row(tmp_path: Path, make, column: str) -> None:
    table = {"text": [f"text {i}" for i in range(64)], "label": ["a"] * 64, "id": [str(i) for i in range(64)]}
    values = [v.encode() for v in table[column]]
    values[7] += b"\xff"
    pq.write_table(pa.table(table | {column: make(values)}), tmp_path / "a.parquet")
    rows = read_all(tmp_path / "a.parquet", Columns(id="id"))
    assert [i for i, r in enumerate(rows) if r["reason"]] == [7]
    assert rows[7]["reason"].startswith(f"the {column} is not valid Unicode")


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_a_label_that_is_no_finite_number_is_missing(tmp_path: Path, bad: float) -> None:
    labels = [1.0, bad, 2.5, 1e300, None]
    pq.write_table(pa.table({"text": ["t"] * 5, "label": labels}), tmp_path / "a.parquet")
    lines = (json.dumps({"text": "t", "label": label}) for label in labels)
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    for name in ("a.parquet", "a.jsonl"):
        rows = read_all(tmp_path / name)
        assert [r["label"] for r in rows] == ["1", None, "2.5", str(int(1e300)), None]
        assert [r["reason"] for r in rows] == [None, "the label is missing", None, None, "the label is missing"]


@pytest.mark.parametrize(
    ("labels", "expected", "kind"),
    [
        (pa.array([3, 1, None]), ["3", "1", None], "int64"),
        (pa.array([True, False, None]), ["true", "false", None], "bool"),
        (pa.array(["a", "", "b"]), ["a", None, "b"], "string"),
        (pa.array([1.0, 2.0, None]), ["1", "2", None], "string"),
        (pa.array(["x", "y", "x"]).dictionary_encode(), ["x", "y", "x"], "string"),
    ],
)
def test_labels_of_any_type(tmp_path: Path, labels: pa.Array, expected: list, kind: str) -> None:
    pq.write_table(pa.table({"text": ["a", "b", "c"], "label": labels}), tmp_path / "a.parquet")
    assert [r["label"] for r in read_all(tmp_path / "a.parquet")] == expected
    assert plan_inputs(str(tmp_path / "a.parquet"), Columns()).label_type == kind


def test_shards_cross_row_groups_and_ids_are_relative_to_the_input(tmp_path: Path) -> None:
    texts = [f"text {i}" for i in range(1000)]
    table = pa.table({"text": texts, "label": ["x"] * 1000})
    (tmp_path / "in" / "deep").mkdir(parents=True)
    pq.write_table(table, tmp_path / "in" / "deep" / "a.parquet", row_group_size=37)
    pq.write_table(table.slice(0, 5), tmp_path / "in" / "b.parquet")
    (tmp_path / "in" / "_SUCCESS").touch()
    rows = read_all(tmp_path / "in")
    assert [r["text"] for r in rows] == texts[:5] + texts
    assert rows[0]["sample_id"] == "b.parquet:0" and rows[-1]["sample_id"] == "deep/a.parquet:999"
    assert read_all(tmp_path / "in" / "*" / "*.parquet")[0]["sample_id"] == "deep/a.parquet:0"


def test_the_plan_is_the_same_wherever_the_corpus_is(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        write_csv(tmp_path / name / "a.csv", [("t", "l")] * 10)
    one, two = (plan_inputs(str(tmp_path / n), Columns()) for n in ("one", "two"))
    assert one.identity() == two.identity() and list(one.shards()) == list(two.shards())
    write_csv(tmp_path / "two" / "a.csv", [("u", "l")] * 10)
    assert plan_inputs(str(tmp_path / "two"), Columns()).identity() != one.identity()


def test_a_change_in_the_middle_of_a_file_makes_it_another_input(tmp_path: Path) -> None:
    rows = [(f"text {i}", "a") for i in range(50_000)]
    one = plan_inputs(str(write_csv(tmp_path / "a.csv", rows)), Columns()).identity()
    rows[25_000] = ("text 25000", "b")
    two = plan_inputs(str(write_csv(tmp_path / "a.csv", rows)), Columns()).identity()
    assert one != two and one[0][:2] == two[0][:2]


def test_a_change_that_only_a_long_footer_tells_makes_parquet_another_input(tmp_path: Path) -> None:
    labels = ["a"] * 3_000
    identities = []
    for label in ("a", "b"):
        labels[1_500] = label
        table = pa.table({"text": ["t" * 100] * 3_000, "label": labels})
        pq.write_table(table, tmp_path / "a.parquet", row_group_size=1, use_dictionary=False, compression="none")
        identities.append(plan_inputs(str(tmp_path / "a.parquet"), Columns()).identity())
    assert identities[0] != identities[1] and identities[0][0][:2] == identities[1][0][:2]


@pytest.mark.parametrize("location", ["", "*.csv", os.fsdecode(b"\xff.csv")])
def test_a_file_name_that_is_not_unicode_is_refused(tmp_path: Path, location: str) -> None:
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff.csv")).write_text("text,label\na,b\n")
    with pytest.raises(RequestError, match="not valid UTF-8; rename it") as caught:
        plan_inputs(str(tmp_path / location), Columns())
    str(caught.value).encode()


@pytest.mark.parametrize("encoding", ["foo", "base64", "rot13", ""])
def test_an_encoding_that_cannot_be_read_is_refused(tmp_path: Path, encoding: str) -> None:
    path = write_csv(tmp_path / "a.csv", [("t", "l")])
    with pytest.raises(RequestError, match="cannot read --encoding"):
        plan_inputs(str(path), Columns(), encoding)
    for known in ("utf-8-sig", "cp1252", "gb18030", "shift_jis"):
        assert read_all(path, encoding=known)[0]["text"] == "t"


@pytest.fixture
def web(tmp_path: Path) -> Iterator[str]:
    """A server, without ranges, of the folder `web`."""
    (tmp_path / "web").mkdir()
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(tmp_path / "web"))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_files_behind_a_web_server(tmp_path: Path, web: str) -> None:
    rows = [(f"text {i}", "a") for i in range(200)]
    (tmp_path / "web" / "a b").mkdir()
    write_csv(tmp_path / "web" / "in.csv", rows)
    write_csv(tmp_path / "web" / "a b" / "in.csv", rows)
    for location in (f"{web}/in.csv", f"{web}/a%20b/in.csv", f"simplecache::{web}/in.csv"):
        got = read_all(location)
        assert [(r["text"], r["label"]) for r in got] == rows and got[0]["sample_id"] == "in.csv:0"
    with pytest.raises(RequestError, match="no such file"):
        plan_inputs(f"{web}/none.csv", Columns())


def test_files_of_fsspec_filesystems(tmp_path: Path) -> None:
    data = b"text,label\none,a\ntwo,b\n"
    memory = fsspec.filesystem("memory")
    memory.pipe({f"/epida-in/{name}": data for name in ("x.csv", "deep/a b.csv")} | {"/epida-top.csv": data})
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("deep/x.csv", data)
        archive.writestr("x.csv", data)
    for location, first in {
        "memory://epida-in/x.csv": "x.csv:0",
        "memory://epida-in": "deep/a b.csv:0",
        "memory:///epida-in/*/*.csv": "deep/a b.csv:0",
        "memory://epida-top.csv": "epida-top.csv:0",
        f"zip://deep/x.csv::{tmp_path}/a.zip": "x.csv:0",
        f"zip://x.csv::{tmp_path}/a.zip": "x.csv:0",
        f"zip://*.csv::{tmp_path}/a.zip": "x.csv:0",
    }.items():
        rows = read_all(location)
        assert rows[0]["sample_id"] == first and [r["text"] for r in rows[:2]] == ["one", "two"]


@pytest.mark.parametrize(("path", "folder"), [("/x.csv", "/"), ("/a/x.csv", "/a"), ("x.csv", ""), ("a/x.csv", "a")])
def test_a_file_at_the_top_is_in_the_root_and_not_in_the_working_directory(path: str, folder: str) -> None:
    assert discovery.parent(path) == folder


def test_a_pattern_is_matched_folder_by_folder_and_a_file_of_that_name_comes_first(tmp_path: Path) -> None:
    for name in ("a.csv", "x[1].csv", "x1.csv", "sub/b.csv", "sub/deep/c.csv"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        write_csv(tmp_path / name, [("t", "l")])
    for pattern, names in {
        "*.csv": ["a.csv", "x1.csv", "x[1].csv"],
        "*/*.csv": ["sub/b.csv"],
        "**/*.csv": ["a.csv", "sub/b.csv", "sub/deep/c.csv", "x1.csv", "x[1].csv"],
        "sub/**": ["b.csv", "deep/c.csv"],
        "x[1].csv": ["x[1].csv"],
        "[x]1.csv": ["x1.csv"],
    }.items():
        assert [f.path for f in plan_inputs(str(tmp_path / pattern), Columns()).files] == names


def test_a_truncated_parquet_among_good_ones_is_listed_as_unreadable(tmp_path: Path) -> None:
    table = pa.table({"text": ["a"] * 50, "label": ["x"] * 50})
    pq.write_table(table, tmp_path / "good.parquet")
    data = (tmp_path / "good.parquet").read_bytes()
    (tmp_path / "bad.parquet").write_bytes(data[: len(data) // 2])
    (tmp_path / "empty.csv").touch()
    plan = plan_inputs(str(tmp_path), Columns())
    assert {f.path: bool(f.error) for f in plan.files} == {
        "bad.parquet": True,
        "empty.csv": True,
        "good.parquet": False,
    }
    assert plan.rows == 50


def test_damaged_pages_reject_the_rows_of_the_shard(tmp_path: Path) -> None:
    table = pa.table({"text": [f"text number {i} of many" for i in range(500)], "label": ["x"] * 500})
    path = tmp_path / "a.parquet"
    pq.write_table(table, path, use_dictionary=False, compression="zstd")
    data = bytearray(path.read_bytes())
    data[100:400] = b"\xff" * 300
    path.write_bytes(bytes(data))
    rows = read_all(path)
    assert len(rows) == 500 and all("cannot read a.parquet" in r["reason"] for r in rows)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda p: p / "missing.csv", "no such file"),
        (lambda p: p / "*.csv", "no file matches"),
        (lambda p: (p / "e.csv").touch() or p / "e.csv", "empty"),
        (lambda p: (p / "h.csv").write_text("text,label\n") and p / "h.csv", "no rows"),
        (lambda p: (p / "c.csv").write_text("a,b\n1,2\n") and p / "c.csv", "no column 'text'"),
        (lambda p: (p / "t.txt").write_text("x") and p / "t.txt", "not a .parquet"),
        (lambda p: (p / "q.csv").write_text('text,label\n"never closed,a\n') and p / "q.csv", "never closed"),
        (lambda p: (p / "d.parquet").write_text("nope") and p / "d.parquet", "cannot be read as parquet"),
    ],
)
def test_wrong_requests_are_refused_with_a_clear_line(tmp_path: Path, make, message: str) -> None:
    with pytest.raises(RequestError, match=message) as caught:
        plan_inputs(str(make(tmp_path)), Columns())
    assert "\n" not in str(caught.value)


def test_duplicate_ids_are_refused_within_and_across_shards(tmp_path: Path) -> None:
    ids = [str(i) for i in range(300)]
    for duplicate in (1, 299):
        ids_ = list(ids)
        ids_[duplicate] = "0"
        pq.write_table(pa.table({"text": ["t"] * 300, "label": ["x"] * 300, "id": ids_}), tmp_path / "a.parquet")
        with pytest.raises(RequestError, match="ids must be unique"):
            plan_inputs(str(tmp_path / "a.parquet"), Columns(id="id"))
    pq.write_table(pa.table({"text": ["t"] * 300, "label": ["x"] * 300, "id": ids}), tmp_path / "a.parquet")
    assert [r["sample_id"] for r in read_all(tmp_path / "a.parquet", Columns(id="id"))] == ids


def test_shard_names_are_plain_file_names(tmp_path: Path) -> None:
    folder = tmp_path / ("deep" * 30) / "..a b"
    folder.mkdir(parents=True)
    write_csv(folder / "ü%.csv", [("t", "l")])
    plan = plan_inputs(str(folder / "ü%.csv"), Columns())
    name = plan.shard_name(next(plan.shards()))
    assert "/" not in name and len(name.encode()) < 200


@pytest.mark.parametrize("name", ["_train.csv", ".train.csv"])
def test_readers_of_folders_do_not_skip_what_a_shard_is_called(tmp_path: Path, name: str) -> None:
    plan = plan_inputs(str(write_csv(tmp_path / name, [("t", "l")])), Columns())
    made = plan.file_name(next(plan.shards()), "0" * 32)
    storage = Storage(str(tmp_path / "out"))
    storage.write_table(made, pa.table({"text": ["t"]}))
    assert storage.names("") == {made} and pq.read_table(tmp_path / "out").num_rows == 1


@pytest.mark.parametrize("rows", [127, 128, 129, 2047, 2048, 2049, 2112, 2113, 4096, 4097, 4160])
@pytest.mark.parametrize("end", ["", "\n", "\n\n"])
def test_every_line_is_in_one_shard_however_the_rows_divide(tmp_path: Path, rows: int, end: str) -> None:
    for name, header, line in (
        ("in.csv", "text,label\n", "text {},a"),
        ("in.jsonl", "", '{{"text": "text {}", "label": "a"}}'),
    ):
        lines = "\n".join(line.format(i) for i in range(rows))
        (tmp_path / name).write_text(header + lines + end)
        plan = plan_inputs(str(tmp_path / name), Columns()).cut()
        shards = list(plan.shards())
        assert len(plan.files[0].offsets) <= len(shards) + 2
        reader = ShardReader(plan)
        texts = [text for shard in shards for text in reader.read(shard)["text"].to_pylist()]
        assert texts == [f"text {i}" for i in range(rows)]


@pytest.mark.parametrize(
    ("rows", "size"), [(1, 64), (1_000, 64), (20_000, 1_024), (10**6, 16_384), (6 * 10**7, 16_384), (10**9, 65_536)]
)
def test_shards_are_neither_too_few_nor_too_many(rows: int, size: int) -> None:
    assert rows_per_shard(rows) == size


@pytest.mark.parametrize("name", ["in.parquet", "in.csv.gz"])
def test_shards_are_cut_by_what_texts_are_and_not_by_what_they_are_packed_to(tmp_path: Path, name: str) -> None:
    rows = [{"text": f"{i} {'very ' * 4000}long", "label": "x"} for i in range(4000)]
    with open_writer(str(tmp_path / name)) as writer:
        writer.table(pa.Table.from_pylist(rows))
    assert (tmp_path / name).stat().st_size < 2_000_000
    plan = plan_inputs(str(tmp_path / name), Columns()).model_copy(update={"shard_rows": 16_384})
    assert plan.cut(10, 2).shard_rows == 1024


@pytest.mark.parametrize("name", ["in.csv", "in.parquet"])
def test_shards_are_cut_by_texts_and_classes_too(tmp_path: Path, name: str) -> None:
    rows = [{"text": f"text {i}", "label": "x"} for i in range(3000)]
    with open_writer(str(tmp_path / name)) as writer:
        writer.table(pa.Table.from_pylist(rows))
    plan = plan_inputs(str(tmp_path / name), Columns())
    assert plan.cut(10, 5).shard_rows == plan.shard_rows == 128
    few = plan.cut(10, 60_000)
    assert few.shard_rows == 64 and max(len(f.offsets) for f in few.files) <= 48
    large = plan.model_copy(update={"shard_rows": 16_384})
    assert large.cut(10, 5_000).shard_rows == 1024
    for cut in (plan, plan.cut(), few, large.cut(10, 5_000)):
        reader = ShardReader(cut)
        read = [text for shard in cut.shards() for text in reader.read(shard)["text"].to_pylist()]
        assert read == [row["text"] for row in rows]


def test_labels_that_are_lists_are_called_multi_label_data(tmp_path: Path) -> None:
    pq.write_table(pa.table({"text": ["a", "b"], "label": [["x"], ["x", "y"]]}), tmp_path / "in.parquet")
    with pytest.raises(RequestError, match="column 'label' holds lists: these are multi-label data"):
        plan_inputs(str(tmp_path / "in.parquet"), Columns())
