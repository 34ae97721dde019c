from __future__ import annotations

import json
import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
import ray.data

from epida_ray.core.errors import RequestError, RunError, TransientError
from epida_ray.core.labels import label_set
from epida_ray.core.progress import Reporter
from epida_ray.core.sample import Candidates, Rejected, fold_space
from epida_ray.data.plan import Columns, plan_inputs
from epida_ray.data.storage import Storage
from epida_ray.method.prepare import check_files, train_judge
from epida_ray.method.requests import AugmentRequest
from epida_ray.method.results import AugmentResult
from epida_ray.method.schema import kept_schema
from epida_ray.runs.manifest import Done
from epida_ray.runs.run import Run, interruptible
from epida_ray.stream.augment import augment as run_augment
from tests.stream.resources import wait_for_all_cpus

pytestmark = pytest.mark.usefixtures("local_ray")

VERBS = ["order", "send back", "pay for", "return", "open", "describe", "repair", "buy"]
THINGS = ["the blue kettle", "my new phone", "a broken lamp", "two wooden chairs", "this heavy parcel"]


def corpus(path: Path, rows: int = 240, **changes: list) -> Path:
    """Two classes that a small model can tell apart."""
    texts = [
        f"{'Please help me' if i % 2 else 'I would like'} to {VERBS[i % 8]} {THINGS[i % 5]} number {i} before Friday!"
        for i in range(rows)
    ]
    columns = {"text": texts, "label": ["help" if i % 2 else "wish" for i in range(rows)]} | changes
    pq.write_table(pa.table(columns), path)
    return path


def augment(request: AugmentRequest) -> AugmentResult:
    """With one actor of each kind, unless the test says otherwise: they start faster."""
    few = {name: getattr(request, name) or 1 for name in ("generator_actors", "scorer_actors")}
    return run_augment(request.model_copy(update=few))


class Slow:
    """Takes two seconds for each sample."""

    def generate(self, samples, n, seeds):  # type: ignore[no-untyped-def]
        made = []
        for sample in samples:
            time.sleep(2)
            made.append(Candidates([f"{sample.text} {i}" for i in range(n)], ["slow"] * n))
        return made


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A classifier trained once by a first run, for the runs that are not about training."""
    folder = tmp_path_factory.mktemp("model")
    augment(AugmentRequest(input=str(corpus(folder / "in.parquet", 64)), output=str(folder / "run")))
    return str(folder / "run" / "model")


def rows_of(output: Path | str, folder: str = "augmented") -> pa.Table:
    return pq.read_table(Path(output) / folder)


def digest(output: Path | str) -> str:
    """Over the sorted rows of augmented/."""
    rows = sorted(json.dumps(row, sort_keys=True) for row in rows_of(output).to_pylist())
    return sha256("\n".join(rows).encode()).hexdigest()


def test_every_kept_row_says_where_it_came_from(tmp_path: Path, model: str) -> None:
    path = corpus(tmp_path / "in.parquet")
    result = augment(AugmentRequest(input=str(path), output=str(tmp_path / "run"), classifier=model, candidates=True))
    table = rows_of(result.output)
    assert table.schema.remove_metadata() == kept_schema(pa.string())
    source = pq.read_table(path).to_pylist()
    for row in table.to_pylist():
        number = int(row["sample_id"].removeprefix("in.parquet:"))
        assert (row["source_text"], row["label"]) == (source[number]["text"], source[number]["label"])
        assert fold_space(row["text"]) != fold_space(row["source_text"])
        assert 0 <= row["s_div"] <= 1 and 0 <= row["s_qua"] <= 1 and row["s_tot"] == row["s_div"] + row["s_qua"]
        assert row["operation"] in ("synonym", "insert", "swap", "delete") and row["run_id"] == result.manifest.run_id
    counts = table.group_by("sample_id").aggregate([("rank", "list"), ("text", "count_distinct")]).to_pylist()
    assert len(counts) == 240
    assert all(row["rank_list"] == [1, 2, 3] and row["text_count_distinct"] == 3 for row in counts)

    candidates = rows_of(result.output, "candidates")
    assert candidates.num_rows == result.manifest.done.candidates == 240 * 9
    assert pc.sum(candidates["kept"]).as_py() == table.num_rows == result.kept
    best = candidates.filter(pc.equal(candidates["sample_id"], "in.parquet:7")).to_pylist()
    assert {r["text"] for r in best if r["kept"]} == {r["text"] for r in sorted(best, key=lambda r: -r["s_tot"])[:3]}
    assert sum(result.manifest.nodes.values()) == result.manifest.shards == 4


def test_the_same_bytes_with_one_and_with_two_actors_of_each_kind(tmp_path: Path, model: str) -> None:
    path = corpus(tmp_path / "in.parquet", 400)
    outputs = []
    for actors in (1, 2):
        output = str(tmp_path / f"run{actors}")
        augment(
            AugmentRequest(
                input=str(path), output=output, classifier=model, generator_actors=actors, scorer_actors=actors, seed=3
            )
        )
        outputs.append(output)
    one, two = (sorted((Path(o) / "augmented").iterdir()) for o in outputs)
    assert [p.name for p in one] == [p.name for p in two]
    assert [p.read_bytes() for p in one] == [p.read_bytes() for p in two]
    augment(AugmentRequest(input=str(path), output=str(tmp_path / "other"), classifier=model, seed=4))
    assert digest(tmp_path / "other") != digest(outputs[0])


def test_a_finished_run_says_so_and_other_options_are_refused_by_name(tmp_path: Path, model: str) -> None:
    path = corpus(tmp_path / "in.parquet", 64)
    request = AugmentRequest(input=str(path), output=str(tmp_path / "run"), classifier=model)
    first = augment(request).manifest
    assert augment(request.model_copy(update={"scorer_actors": 1})).manifest == first
    with pytest.raises(RequestError, match=r"-m was 3, now 2; --seed was 0, now 1"):
        augment(request.model_copy(update={"m": 2, "seed": 1}))
    corpus(path, 80)
    with pytest.raises(RequestError, match="the input is different"):
        augment(request)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "file").touch()
    with pytest.raises(RequestError, match="not empty and holds no run"):
        augment(request.model_copy(update={"output": str(tmp_path / "other")}))


def test_deleted_shards_come_back_the_same(tmp_path: Path, model: str) -> None:
    """What resuming rests on: a shard's bytes depend on nothing but the request."""
    path = corpus(tmp_path / "in.parquet", 300)
    request = AugmentRequest(input=str(path), output=str(tmp_path / "run"), classifier=model)
    augment(request)
    files = {p.name: p.read_bytes() for p in (tmp_path / "run" / "augmented").iterdir()}
    manifest = json.loads((tmp_path / "run" / "manifest.json").read_text())
    done = manifest["done"]
    manifest["status"] = "running"
    (tmp_path / "run" / "manifest.json").write_text(json.dumps(manifest))
    for name in list(files)[1:3]:
        (tmp_path / "run" / "augmented" / name).unlink()
    assert augment(request).manifest.done.model_dump() == done
    assert {p.name: p.read_bytes() for p in (tmp_path / "run" / "augmented").iterdir()} == files


def test_bad_rows_are_set_aside_with_their_reasons_and_the_run_goes_on(tmp_path: Path, model: str) -> None:
    odd = {
        3: (None, "null"),
        5: ("", "empty"),
        7: ("x" * 1_000_000, "1,000,000 characters"),
        9: ("?!...", None),
        11: ("hello", None),
        13: ("hello hello hello", None),
        15: ("🙂🙂🙂", None),
        17: ("Привет, как дела сегодня", None),
        19: ("今天天气很好", None),
        21: ("nul \x00 byte in here", None),
        23: ("a good text with a bad label", "is not one of"),
    }
    texts = pq.read_table(corpus(tmp_path / "in.parquet"))["text"].to_pylist()
    labels = ["help" if i % 2 else "wish" for i in range(240)]
    for i, (text, _) in odd.items():
        texts[i] = text
    labels[23] = "nonsense"
    corpus(tmp_path / "in.parquet", 240, text=texts, label=labels)
    result = augment(AugmentRequest(input=str(tmp_path / "in.parquet"), output=str(tmp_path / "run"), classifier=model))
    rejected = {r["sample_id"]: r for r in rows_of(result.output, "rejected").to_pylist()}
    kept = set(rows_of(result.output)["sample_id"].to_pylist())
    assert kept | set(rejected) == {f"in.parquet:{i}" for i in range(240)} and not kept & set(rejected)
    for i, (_, reason) in odd.items():
        if reason is not None:
            assert reason in rejected[f"in.parquet:{i}"]["reason"]
    assert all(len(r["text"]) <= 200 for r in rejected.values())
    assert result.manifest.done.rejected == len(rejected)


def test_rows_of_the_file_to_train_on_that_cannot_be_used_are_in_rejected(tmp_path: Path) -> None:
    labels = ["help" if i % 2 else "wish" for i in range(60)]
    labels[5] = "nonsense"
    path = corpus(tmp_path / "train.parquet", 60, label=labels, text=[None, *["Please open my parcel"] * 59])
    request = AugmentRequest(
        input=str(path), train=str(path), output=str(tmp_path / "run"), classifier="linear", labels=("help", "wish")
    )
    plan = plan_inputs(str(path), Columns())
    train_judge(request, {"input": plan, "train": plan}, Storage(request.output), Reporter(quiet=True))
    rejected = {r["sample_id"]: r["reason"] for r in rows_of(request.output, "rejected/train.parquet").to_pylist()}
    assert rejected["train.parquet:0"] == "the text is null"
    assert "'nonsense' is not one of" in rejected["train.parquet:5"] and len(rejected) == 2


def test_a_run_interrupted_before_its_plan_claims_no_progress(tmp_path: Path) -> None:
    run = Run(str(tmp_path / "run"))
    run.open("augment", {}, {})
    with pytest.raises(RunError, match="interrupted; what is done is kept"), interruptible(run):
        raise KeyboardInterrupt
    assert run.manifest.status == "interrupted" and run.manifest.done == Done()


def test_a_request_that_is_refused_late_leaves_the_directory_free(tmp_path: Path) -> None:
    run = Run(str(tmp_path / "run"))
    run.open("augment", {"k": 3}, {})
    run.save(status="running")
    with pytest.raises(RequestError, match="no Ray"), run, interruptible(run):
        raise RequestError("no Ray at that address")
    again = Run(str(tmp_path / "run"))
    assert not again.open("augment", {"k": 4}, {})
    again.save(status="running", done=Done(shards=1))
    with pytest.raises(RequestError, match="too long"), again, interruptible(again):
        raise RequestError("too long")
    with pytest.raises(RequestError, match="holds a run with other options"):
        Run(str(tmp_path / "run")).open("augment", {"k": 5}, {})


def test_too_many_rejected_rows_fail_clearly_and_a_larger_budget_goes_on(tmp_path: Path, model: str) -> None:
    texts = [f"Please help me to send parcel {i}" if i % 2 else " " for i in range(200)]
    path = corpus(tmp_path / "in.parquet", 200, text=texts)
    request = AugmentRequest(input=str(path), output=str(tmp_path / "run"), classifier=model)
    with pytest.raises(RunError, match=r"of 200 rows were rejected, more than --max-rejected 0.2"):
        augment(request)
    result = augment(request.model_copy(update={"max_rejected": 0.5}))
    assert result.manifest.done.rejected == 100 and result.manifest.status == "finished"


@pytest.mark.parametrize(
    ("labels", "kind"),
    [([i % 2 for i in range(64)], pa.int64()), ([i % 2 == 0 for i in range(64)], pa.bool_())],
)
def test_labels_keep_their_type(tmp_path: Path, labels: list, kind: pa.DataType) -> None:
    path = corpus(tmp_path / "in.parquet", 64, label=labels)
    result = augment(AugmentRequest(input=str(path), output=str(tmp_path / "run")))
    assert rows_of(result.output).schema.field("label").type == kind


def test_labels_of_two_types_become_strings(tmp_path: Path) -> None:
    rows = pq.read_table(corpus(tmp_path / "in.parquet", 1100))["text"].to_pylist()
    labels = [i % 2 if i < 1050 else "other" for i in range(1100)]
    lines = (json.dumps({"text": text, "label": label}) for text, label in zip(rows, labels, strict=True))
    (tmp_path / "in.jsonl").write_text("\n".join(lines))
    result = augment(
        AugmentRequest(input=str(tmp_path / "in.jsonl"), output=str(tmp_path / "run"), classifier="linear")
    )
    assert set(rows_of(result.output)["label"].to_pylist()) == {"0", "1", "other"}


def test_the_order_of_labels_is_that_of_numbers_or_else_of_text_and_no_other() -> None:
    assert label_set(["10", "9", "-1", "1", "01", "001", "0001"]) == ("-1", "0001", "001", "01", "1", "9", "10")
    assert label_set(["10", "9", "--5"]) == ("--5", "10", "9")
    assert label_set(["10", "9", "²"]) == ("10", "9", "²")


def test_empty_files_are_no_loss_and_do_not_fail_a_run(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    corpus(tmp_path / "in" / "good.parquet", 64)
    (tmp_path / "in" / "empty.csv").touch()
    check_files(plan_inputs(str(tmp_path / "in"), Columns()), 0.2)


def test_a_truncated_file_among_good_ones(tmp_path: Path, model: str) -> None:
    (tmp_path / "in").mkdir()
    data = corpus(tmp_path / "in" / "good.parquet", 64).read_bytes()
    (tmp_path / "in" / "cut.parquet").write_bytes(data[:500])
    request = AugmentRequest(input=str(tmp_path / "in"), output=str(tmp_path / "run"), classifier=model)
    with pytest.raises(RunError, match="1 of 2 files cannot be read, more than --max-rejected 0.2"):
        augment(request)
    result = augment(request.model_copy(update={"max_rejected": 0.5}))
    (row,) = rows_of(result.output, "rejected").to_pylist()
    assert row["sample_id"] == "cut.parquet" and "cannot be read" in row["reason"] and result.kept == 64 * 3


def test_wrong_requests_are_refused_before_anything_starts(tmp_path: Path, model: str) -> None:
    path = corpus(tmp_path / "in.parquet", 64)

    def refused(message: str, **changes: object) -> None:
        values = {"input": str(path), "output": str(tmp_path / "run"), "classifier": model} | changes
        with pytest.raises(RequestError, match=message) as caught:
            augment(AugmentRequest(**values))  # type: ignore[arg-type]
        assert "\n" not in str(caught.value)

    refused("no such file", input=str(tmp_path / "nowhere.csv"))
    refused("no column 'body'", text_column="body")
    refused("there is no generator 'magic'", generator="magic")
    refused("neither a directory with a saved model nor one of", classifier=str(tmp_path / "nothing"))
    refused("does not take these arguments", generator_args={"colour": 1})
    refused("has the labels help, wish", labels=("a", "b"))
    one_class = corpus(tmp_path / "one.parquet", 64, label=["x"] * 64)
    refused("one class only", input=str(one_class), classifier="cnn")
    late = tmp_path / "late.csv"  # too late for the rows that are looked at to detect the encoding
    rows = [f"a plain text number {i},a\n" for i in range(2000)] + [f"schöne Grüße {i},b\n" for i in range(300)]
    late.write_bytes(b"text,label\n" + "".join(rows).encode("latin-1"))
    other = corpus(tmp_path / "other.parquet", 64, label=["order" if i % 2 else "complaint" for i in range(64)])
    refused(
        "64 of 64 rows of INPUT have labels that are not in --train or --labels: the label '(help|wish)' is not one of "
        "complaint, order", train=str(other), classifier="linear",
    )  # fmt: skip
    refused("INPUT have labels that are not in --train or --labels", labels=("help", "plea"), classifier="linear")
    refused("300 of 2,300 rows cannot be used.*use --encoding.*one class only", input=str(late), classifier="cnn")
    refused("need .* CPUs and this Ray has 2; --generator-actors 2 --scorer-actors 2", generator_actors=50)


def test_originals_shortfalls_and_protected_words(tmp_path: Path, model: str) -> None:
    texts = ["ok"] * 4 + [f"Please ship the Acme Rocket {i} to my house today" for i in range(60)]
    path = corpus(tmp_path / "in.parquet", 64, text=texts)
    result = augment(
        AugmentRequest(
            input=str(path),
            output=str(tmp_path / "run"),
            classifier=model,
            with_originals=True,
            protect=("acme rocket",),
        )
    )
    table = rows_of(result.output)
    originals = table.filter(pc.equal(table["generator"], "original")).to_pylist()
    made = table.filter(pc.not_equal(table["generator"], "original")).to_pylist()
    assert [r["text"] for r in originals] == texts and all(r["rank"] == 0 for r in originals)
    assert {r["text"] for r in made}.isdisjoint({"ok"}), "some originals have no rewrite"
    assert all("Acme Rocket" in r["text"] for r in made if "Acme" in r["source_text"])
    short = result.manifest.done.short
    assert short == (rows_of(result.output, "short").num_rows if short else 0)


def test_the_callers_settings_of_ray_data_lose_no_shard(tmp_path: Path, model: str) -> None:
    """With the caller's own max_errored_blocks, a run was finished without the shards that had failed."""
    path = corpus(tmp_path / "in.parquet", 128)
    context = ray.data.DataContext.get_current()
    before, context.max_errored_blocks = context.max_errored_blocks, 100
    request = AugmentRequest(
        input=str(path), output=str(tmp_path / "run"), classifier=model, generator="tests.stream.test_augment:Trips"
    )
    try:
        with pytest.raises(RunError, match=r"tripped.*of 2 shards are kept.*run the same command again") as caught:
            augment(request)
    finally:
        context.max_errored_blocks = before
    assert json.loads((tmp_path / "run" / "manifest.json").read_text())["status"] == "failed"
    wait_for_all_cpus()  # although the error, which notebooks keep too, is still here
    assert caught.value.__cause__ is not None


class Refuses:
    """A generator that finds out with its first sample that it lacks something."""

    def generate(self, samples, n, seeds):  # type: ignore[no-untyped-def]
        raise RequestError("the tagger is not installed; pip install tagger")


def test_a_wrong_request_that_an_actor_notices_is_a_wrong_request(tmp_path: Path, model: str) -> None:
    request = AugmentRequest(
        input=str(corpus(tmp_path / "in.parquet", 64)), output=str(tmp_path / "run"), classifier=model,
        generator="tests.stream.test_augment:Refuses",
    )  # fmt: skip
    with pytest.raises(RequestError, match="^the tagger is not installed; pip install tagger$"):
        augment(request)
    wait_for_all_cpus()
    assert augment(request.model_copy(update={"generator": "eda"})).kept


class RefusesLater:
    """A generator whose second shard is refused, after the first one is done."""

    def generate(self, samples, n, seeds):  # type: ignore[no-untyped-def]
        if any(s.id == "in.parquet:100" for s in samples):
            time.sleep(5)
            raise RequestError("the budget is spent")
        return [Candidates([f"{s.text} {i}" for i in range(n)], ["mark"] * n) for s in samples]


def test_a_request_that_turns_out_wrong_in_the_middle_keeps_what_is_done(tmp_path: Path, model: str) -> None:
    request = AugmentRequest(
        input=str(corpus(tmp_path / "in.parquet", 128)), output=str(tmp_path / "run"), classifier=model,
        generator="tests.stream.test_augment:RefusesLater",
    )  # fmt: skip
    with pytest.raises(RunError, match=r"^the budget is spent. 1 of 2 shards are kept.*run the same command again"):
        augment(request)
    assert json.loads((tmp_path / "run" / "manifest.json").read_text())["status"] == "failed"
    with pytest.raises(RequestError, match="holds a run with other options"):
        augment(request.model_copy(update={"generator": "eda"}))


class Mine:
    def __call__(self, block):  # type: ignore[no-untyped-def]
        time.sleep(0.2)
        return block


def test_other_executions_of_the_same_process_go_on(tmp_path: Path, model: str) -> None:
    """The end of a run stops its own pools, neither those of the caller nor those of a run in another thread."""
    pool = ray.data.ActorPoolStrategy(size=1)
    mine = ray.data.range(100, override_num_blocks=50).map_batches(Mine, compute=pool, num_cpus=0.1)
    rows = iter(mine.iter_batches(batch_size=1, prefetch_batches=0))
    next(rows)
    slow = AugmentRequest(
        input=str(corpus(tmp_path / "slow.parquet", 6)), output=str(tmp_path / "slow"), classifier=model,
        generator="tests.stream.test_augment:Slow",
    )  # fmt: skip
    quick = AugmentRequest(
        input=str(corpus(tmp_path / "in.parquet", 64)), output=str(tmp_path / "quick"), classifier=model
    )
    with ThreadPoolExecutor(1) as other:
        first = other.submit(augment, slow)
        assert augment(quick).kept
        assert not first.done(), "this test needs a slower run"
        assert first.result(timeout=120).kept
    assert len(list(rows)) == 99
    wait_for_all_cpus()


class Trips:
    """A generator whose second shard ends the run."""

    def generate(self, samples, n, seeds):  # type: ignore[no-untyped-def]
        if any(s.id == "in.parquet:100" for s in samples):
            raise TransientError("tripped")
        return [Candidates([f"{s.text} {i}" for i in range(n)], ["mark"] * n) for s in samples]


def test_a_damaged_or_missing_shard_is_made_again_even_of_a_finished_run(tmp_path: Path, model: str) -> None:
    path = corpus(tmp_path / "in.parquet", 128)
    request = AugmentRequest(input=str(path), output=str(tmp_path / "run"), classifier=model)
    augment(request)
    folder = tmp_path / "run" / "augmented"
    whole = {p.name: p.read_bytes() for p in folder.iterdir()}
    first, second = sorted(folder.iterdir())
    first.write_bytes(whole[first.name][:100])
    second.unlink()
    stranger = folder / second.name.replace(second.name[-20:-8], "0" * 12)
    stranger.write_bytes(whole[second.name])
    result = augment(request)
    assert {p.name: p.read_bytes() for p in folder.iterdir()} == whole
    assert result.manifest.status == "finished" and result.manifest.done.shards == 2


def test_damage_beside_a_shard_is_made_again(tmp_path: Path, model: str) -> None:
    path = corpus(tmp_path / "in.parquet", 128, text=["hi", *(f"send back the lamp number {i}" for i in range(127))])
    request = AugmentRequest(
        input=str(path), output=str(tmp_path / "run"), classifier=model, candidates=True, max_rejected=0.5,
        generator="tests.stream.test_augment:NoGreetings",
    )  # fmt: skip
    augment(request)
    files = [
        p for kind in ("augmented", "rejected", "short", "candidates") for p in (tmp_path / "run" / kind).iterdir()
    ]
    whole = {p: p.read_bytes() for p in files}
    assert {p.parent.name for p in whole} == {"augmented", "rejected", "short", "candidates"}
    for damage in (lambda p: p.write_bytes(whole[p][: len(whole[p]) // 2]), Path.unlink):
        for p in whole:
            if p.parent.name != "augmented":
                damage(p)
        assert augment(request).manifest.status == "finished"
        assert {p: p.read_bytes() for p in whole} == whole


class NoGreetings:
    """Rejects one text and has too few rewrites of another."""

    def generate(self, samples, n, seeds):  # type: ignore[no-untyped-def]
        made = []
        for sample in samples:
            count = 2 if sample.text.endswith(" 9") else n
            made.append(Candidates([f"{sample.text} {i}" for i in range(count)], ["count"] * count))
        return [Rejected("a greeting") if s.text == "hi" else one for s, one in zip(samples, made, strict=True)]


def test_a_shard_may_take_longer_than_the_stall_timeout(tmp_path: Path, model: str) -> None:
    path = corpus(tmp_path / "in.parquet", 12)
    request = AugmentRequest(
        input=str(path), output=str(tmp_path / "run"), classifier=model, generator="tests.stream.test_augment:Slow",
        stall_timeout=20.0,
    )  # fmt: skip
    assert augment(request).manifest.done.kept == 36


class Deadly:
    """A generator that is killed by one text, as for lack of memory."""

    def generate(self, samples, n, seeds):  # type: ignore[no-untyped-def]
        if any("number 5 " in s.text for s in samples):
            os.kill(os.getpid(), signal.SIGKILL)
        return [Candidates([f"{s.text} {i}" for i in range(n)], ["mark"] * n) for s in samples]


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_row_that_kills_its_process_is_rejected(tmp_path: Path, model: str) -> None:
    path = corpus(tmp_path / "in.parquet", 8)
    request = AugmentRequest(
        input=str(path), output=str(tmp_path / "run"), classifier=model, generator="tests.stream.test_augment:Deadly"
    )
    result = augment(request)
    (row,) = rows_of(result.output, "rejected").to_pylist()
    assert (row["sample_id"], row["stage"]) == ("in.parquet:5", "generate") and "its process died" in row["reason"]
    assert result.manifest.done.kept == 21 and not list((tmp_path / "run" / "crashes" / "generate").iterdir())
