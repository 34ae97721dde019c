"""EPiDA in memory gives what `epida augment` writes, and blocks have the declared columns between the stages."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import epida_ray
from epida_ray.classify import create
from epida_ray.core.errors import RequestError, RunError
from epida_ray.method import stages
from epida_ray.method.output import Origin, candidate_rows, kept_rows, original_rows
from epida_ray.method.requests import AugmentRequest
from epida_ray.method.round import kept_texts, one_round
from epida_ray.method.schema import GENERATED, ROWS, SCORED, SELECTED, SOFT_LABEL, candidate_schema, check, kept_schema
from epida_ray.method.stages import RoundOptions, block_of
from epida_ray.method.trainer import fit

LABELS = ("ask", "order")
TEXTS = [
    f"{'Could you tell me about' if i % 2 else 'I would like to buy'} the {color} {thing} from shelf {i}"
    for i, (color, thing) in enumerate(
        [(c, t) for c in ("blue", "old", "small") for t in ("lamp", "chair", "phone")] * 9
    )
]
NAMES = [LABELS[i % 2 == 0] for i in range(len(TEXTS))]


@pytest.mark.usefixtures("local_ray")
@pytest.mark.parametrize(
    ("classifier", "generator"), [("linear", "eda"), ("cnn", "eda"), ("linear", "substructure"), ("linear", "span-mix")]
)
def test_in_memory_and_by_command_are_the_same_rows(tmp_path: Path, classifier: str, generator: str) -> None:
    from epida_ray.stream.augment import augment

    ids = [f"row-{i}" for i in range(len(TEXTS))]
    pq.write_table(pa.table({"name": ids, "text": TEXTS, "label": NAMES}), tmp_path / "in.parquet")
    request = AugmentRequest(
        input=str(tmp_path / "in.parquet"), output=str(tmp_path / "run"), id_column="name", classifier=classifier, m=2,
        seed=5, generator_actors=1, scorer_actors=1, generator=generator,
    )  # fmt: skip
    augment(request)
    written = pq.read_table(tmp_path / "run" / "augmented")
    found = epida_ray.augment_texts(TEXTS, NAMES, ids, classifier=classifier, generator=generator, m=2, seed=5)
    kept = kept_schema(pa.string())
    columns = (*kept.names, *([SOFT_LABEL] if generator == "span-mix" else ()))
    check(written, kept)
    assert tuple(found.column_names) == tuple(written.column_names) == columns and len(found) == 2 * len(TEXTS)
    for name in set(columns) - {"run_id"}:
        assert found[name].to_pylist() == written[name].to_pylist(), name
    judge = epida_ray.classify.load(tmp_path / "run" / "model")
    again = epida_ray.augment_texts(TEXTS, NAMES, ids, classifier=judge, generator=generator, m=2, seed=5)
    assert again.equals(found)


def test_bad_texts_are_left_out_with_a_warning_and_bad_requests_refused() -> None:
    judge = create("linear", LABELS)
    judge.fit(TEXTS, np.array([LABELS.index(n) for n in NAMES]), np.ones(len(TEXTS), np.float32), 0)
    with pytest.warns(UserWarning, match="1 of 3 texts were rejected; the first, 1: the text is empty"):
        found = epida_ray.augment_texts(["blue lamp here", "", "old chair there"], ["ask"] * 3, classifier=judge, m=1)
    assert found["sample_id"].to_pylist() == ["0", "2"]
    with pytest.raises(RequestError, match="same length"):
        epida_ray.augment_texts(["a"], ["ask", "order"])
    with pytest.raises(RequestError, match="no selector 'nonsense'"):
        epida_ray.augment_texts(TEXTS, NAMES, select="nonsense")
    with pytest.raises(RequestError, match="at least two classes"):
        epida_ray.augment_texts(TEXTS, ["ask"] * len(TEXTS))


def test_options_for_the_output_are_heeded_or_refused() -> None:
    judge = create("linear", LABELS)
    judge.fit(TEXTS, np.array([LABELS.index(n) for n in NAMES]), np.ones(len(TEXTS), np.float32), 0)
    plain = epida_ray.augment_texts(TEXTS[:4], NAMES[:4], classifier=judge, m=2)
    found = epida_ray.augment_texts(TEXTS[:4], NAMES[:4], classifier=judge, m=2, with_originals=True)
    rank = np.array(found["rank"].to_pylist())
    assert found.filter(pa.array(rank > 0)).equals(plain)
    assert found.filter(pa.array(rank == 0))["text"].to_pylist() == TEXTS[:4]
    with pytest.raises(RequestError, match="returns no candidates; leave out candidates"):
        epida_ray.augment_texts(TEXTS, NAMES, classifier=judge, candidates=True)
    some = ["blue lamp here", "", "old chair there"]
    with pytest.raises(RunError, match="1 of 3 texts were rejected, more than max_rejected 0.1 allows; the first, 1: "):
        epida_ray.augment_texts(some, ["ask"] * 3, classifier=judge, m=1, max_rejected=0.1)
    with pytest.warns(UserWarning, match="1 of 3 texts were rejected; the first, 1: the text is empty"):
        epida_ray.augment_texts(some, ["ask"] * 3, classifier=judge, m=1, max_rejected=0.5)


def test_blocks_have_the_declared_columns_at_every_seam() -> None:
    classifier = create("linear", LABELS)
    fit(classifier, TEXTS, NAMES)
    options = RoundOptions(LABELS, m=2, k=2)
    rows = pa.table({"sample_id": ["a", "b", "c"], "text": [TEXTS[0], TEXTS[1], ""], "label": ["ask", "else", None]})
    rows = rows.append_column("reason", pa.array([None, None, "the text is empty"], pa.string()))
    block = check(stages.read(rows, LABELS), ROWS)
    assert block["reason"].to_pylist()[0] is None and "'else' is not one of" in block["reason"].to_pylist()[1]
    block = check(stages.generate(block, options.make_generator(), options, 1), GENERATED)
    block = check(stages.score(block, classifier), SCORED)
    block = check(stages.select(block, options.make_selector(), options, 1), SELECTED)
    assert [sum(r > 0 for r in ranks) for ranks in block["rank"].to_pylist()] == [2, 0, 0]
    for labels, kind in ((LABELS, pa.string()), (("0", "1"), pa.int64())):
        origin = Origin(labels, str(kind), "eda", 1, 1, "run")
        for rows_of, schema in (
            (kept_rows, kept_schema),
            (original_rows, kept_schema),
            (candidate_rows, candidate_schema),
        ):
            written = check(rows_of(block, origin), schema(kind))
            assert written.num_rows and written.column_names == schema(kind).names
    for schema in (ROWS, GENERATED, SCORED, SELECTED):
        assert check(schema.empty_table(), schema).num_rows == 0
    with pytest.raises(ValueError, match="no column 'reason'"):
        check(ROWS.empty_table().drop_columns("reason"), ROWS)
    with pytest.raises(ValueError, match="column 'label' is string, not int32"):
        check(rows.append_column("stage", rows["reason"]), ROWS)


def test_a_round_depends_on_its_arguments_alone() -> None:
    classifier = create("linear", LABELS)
    fit(classifier, TEXTS, NAMES)
    options = RoundOptions(LABELS, m=2)
    y = np.array([LABELS.index(n) for n in NAMES])
    block = block_of([str(i) for i in range(20)], TEXTS[:20], y[:20])

    def kept(rows: pa.Table, round_: int) -> list[list[str]]:
        done = one_round(rows, options.make_generator(), classifier, options.make_selector(), options, round_)
        return kept_texts(done)

    whole = kept(block, 1)
    assert whole == kept(block, 1) and whole != kept(block, 2)
    assert whole[5:8] == kept(block.slice(5, 3), 1) and all(len(texts) == 2 for texts in whole)


def test_in_a_curriculum_a_rounds_rewrites_depend_on_the_round_alone() -> None:
    arguments = {"alpha": 0.6}
    options = RoundOptions(LABELS, generator="spelling", generator_args=arguments, curriculum=True, rounds=3)
    block = stages.block_of(["a", "b"], ["a long sentence about many apples and pears"] * 2, np.array([0, 1]))

    def candidates(generator, round_: int, options: RoundOptions = options) -> list[list[str]]:
        return stages.generate(block, generator, options, round_)["candidates"].to_pylist()

    one = options.make_generator()
    in_disorder = {round_: candidates(one, round_) for round_ in (3, 1, 2)}
    assert in_disorder == {round_: candidates(options.make_generator(), round_) for round_ in (1, 2, 3)}
    usual = RoundOptions(LABELS, generator="spelling", generator_args=arguments)
    full = candidates(usual.make_generator(), 3, usual)
    assert in_disorder[3] == full and in_disorder[1] != candidates(usual.make_generator(), 1, usual)
    with pytest.raises(RequestError, match="--curriculum: substructure has no strength"):
        RoundOptions(LABELS, generator="substructure", curriculum=True).make_generator()


class Picky:
    labels = ("a", "b")

    def __init__(self, error: Exception) -> None:
        self.error, self.calls = error, 0

    def predict_proba(self, texts):  # type: ignore[no-untyped-def]
        self.calls += 1
        if any("BOOM" in text for text in texts):
            raise self.error
        return np.full((len(texts), 2), 0.5, np.float32)


@pytest.mark.parametrize("only", [False, True])
def test_a_row_with_which_the_classifier_raises_costs_only_itself(only: bool) -> None:
    texts, labels = [f"some text with number {i} in it" for i in range(20)], ["a", "b"] * 10
    whole = Picky(ValueError())
    expected = epida_ray.augment_texts(texts, labels, generator="aeda", classifier=whole)
    assert whole.calls == 1
    bad = range(20) if only else (3, 11)
    for i in bad:
        texts[i] = "BOOM " + texts[i]
    said = rf"{len(bad)} of 20 texts were rejected; .*the classifier raised ValueError: no \\ud800"
    with pytest.warns(UserWarning, match=said):
        found = epida_ray.augment_texts(texts, labels, generator="aeda", classifier=Picky(ValueError("no \ud800")))
    assert found.equals(expected.filter(pa.array([int(i) not in bad for i in expected["sample_id"].to_pylist()])))
    with pytest.raises(MemoryError):
        epida_ray.augment_texts(texts, labels, generator="aeda", classifier=Picky(MemoryError()))


def test_a_row_with_which_only_the_student_raises_loses_its_teachers_view() -> None:
    block = block_of(["0", "1"], ["some text", "BOOM text"], np.array([0, 1]))
    options = RoundOptions(Picky.labels, "aeda", m=1, k=2)
    block = one_round(block, options.make_generator(), Picky(KeyError("x")), options.make_selector(), options, 0,
                      teacher=fit_nothing())  # fmt: skip
    assert block["stage"].to_pylist() == [None, "score"] and [len(t) for t in kept_texts(block)] == [1, 0]


def fit_nothing() -> Picky:
    teacher = Picky(ValueError())
    teacher.predict_proba = lambda texts: np.full((len(texts), 2), 0.5, np.float32)  # type: ignore[method-assign]
    return teacher
