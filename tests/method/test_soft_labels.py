"""Candidates with soft labels, from the generator to what is written and learned."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from epida_ray.classify import create
from epida_ray.classify.examples import make_examples
from epida_ray.core.sample import Sample
from epida_ray.generate.corpus import bind_samples
from epida_ray.method import stages
from epida_ray.method.output import Origin, candidate_rows, kept_rows, original_rows
from epida_ray.method.round import kept_labels, kept_of_rows, kept_texts, one_round
from epida_ray.method.schema import SOFT_LABEL, SOFT_LABELS, candidate_schema, check, kept_schema
from epida_ray.method.stages import RoundOptions, block_of
from tests.method.test_memory import LABELS, NAMES, TEXTS

IDS = [str(i) for i in range(20)]
Y = np.array([LABELS.index(n) for n in NAMES])
ORIGIN = Origin(LABELS, "string", "span-mix", 0, 0, "run")


def made(generator: str = "span-mix", **arguments: object) -> tuple[RoundOptions, object]:
    options = RoundOptions(LABELS, generator, dict(arguments), m=2, k=2, select="rem", normalize=False)
    made = options.make_generator()
    bind_samples(made, [Sample(f"o{i}", t, n) for i, (t, n) in enumerate(zip(TEXTS, NAMES, strict=True))])
    return options, made


@pytest.fixture(scope="module")
def judge():  # type: ignore[no-untyped-def]
    classifier = create("linear", LABELS)
    classifier.fit(TEXTS, Y, np.ones(len(TEXTS), np.float32), 0)
    return classifier


def test_rem_judges_against_the_soft_label_and_rows_carry_it(judge) -> None:  # type: ignore[no-untyped-def]
    options, generator = made()
    block = block_of(IDS, TEXTS[:20], Y[:20])
    generated = check(stages.generate(block, generator, options, 1), pa.schema([SOFT_LABELS]))
    assert stages.reject(generated, [3], "generate", "why")["soft_labels"][3].as_py() == []
    done = check(stages.select(stages.score(generated, judge), options.make_selector(), options, 1),
                 pa.schema([SOFT_LABELS]))  # fmt: skip
    rows = candidate_rows(done, ORIGIN)
    assert tuple(rows.column_names) == (*candidate_schema(pa.string()).names, SOFT_LABEL)
    soft = np.array(rows["soft_label"].to_pylist())
    assert ((soft > 0) & (soft < 0.5)).any(), "some are mixed"
    assert [LABELS[c] for c in soft.argmax(axis=1)] == rows["label"].to_pylist()
    p = judge.predict_proba(rows["text"].to_pylist())
    np.testing.assert_allclose(rows["s_div"].to_numpy(), -(soft * np.log(p)).sum(axis=1), rtol=1e-5)

    kept = kept_rows(done, ORIGIN)
    originals = original_rows(done, ORIGIN)
    assert tuple(kept.column_names) == (*kept_schema(pa.string()).names, SOFT_LABEL)
    assert {tuple(row) for row in originals["soft_label"].to_pylist()} == {(1.0, 0.0), (0.0, 1.0)}
    assert len(pa.concat_tables([originals, kept])) == len(originals) + len(kept)

    learned = kept_of_rows(kept, IDS)
    assert learned.texts == kept_texts(done) and learned.soft is not None
    for ours, theirs in zip(learned.soft, kept_labels(done) or [], strict=True):
        np.testing.assert_array_equal(ours, theirs)
    examples = make_examples(TEXTS[:20], Y[:20], 2, learned)
    assert set(map(tuple, learned.soft[0].tolist())) < set(map(tuple, examples.y.tolist()))


def test_a_teacher_labels_what_was_mixed(judge) -> None:  # type: ignore[no-untyped-def]
    options, generator = made()
    done = one_round(block_of(IDS, TEXTS[:20], Y[:20]), generator, judge, options.make_selector(), options, 1, judge)
    kept = kept_rows(done, ORIGIN)
    np.testing.assert_allclose(
        np.array(kept["soft_label"].to_pylist()), judge.predict_proba(kept["text"].to_pylist()), atol=1e-6
    )


def test_candidates_without_a_soft_label_have_the_label_of_their_sample(judge) -> None:  # type: ignore[no-untyped-def]
    options, generator = made("mix", **{"span-mix": 1, "eda": 1})
    done = one_round(block_of(IDS, TEXTS[:20], Y[:20]), generator, judge, options.make_selector(), options, 1)
    for row in candidate_rows(done, ORIGIN).to_pylist():
        if row["operation"].startswith("eda/"):
            assert row["soft_label"] == [float(row["label"] == label) for label in LABELS]


def test_unlabelled_texts_are_judged_by_what_the_classifier_sees_in_them(judge) -> None:  # type: ignore[no-untyped-def]
    options, generator = made("mix", **{"span-mix": 1, "eda": 1})
    block = block_of(IDS, TEXTS[:20], np.full(20, -1))
    done = one_round(block, generator, judge, options.make_selector(), options, 1)
    assert {o for row in done["operations"].to_pylist() for o in row} <= {f"eda/{o}" for o in
            ("synonym", "insert", "swap", "delete")}  # fmt: skip
    assert all(len(texts) == 2 for texts in kept_texts(done))
