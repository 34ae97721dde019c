import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from epida_ray.core.errors import RequestError
from epida_ray.select import SEAS, SELECTORS, RandomSelector, ScoredBatch, parse, pick, select

# The paper's example tables: s_div, s_qua, s_tot and the rows it ticks (m = 3; the first table has no ticks).
WATCHMAN = ([0.96, 0.05, 0.86], [0.03, 0.92, 0.15], [0.99, 0.97, 1.01], None)
SENTIMENT = (
    [0.10, 0.17, 0.00, 0.06, 0.24, 0.00, 0.03, 1.00, 0.00],
    [0.83, 0.70, 1.00, 0.98, 0.58, 0.98, 0.99, 0.00, 1.00],
    [0.93, 0.87, 1.00, 1.04, 0.82, 0.98, 1.02, 1.00, 1.00],
    {2, 3, 6},
)
IRONY = (
    [0.43, 0.21, 0.75, 0.39, 0.92, 0.56, 1.00, 0.87, 0.75],
    [0.48, 0.73, 0.18, 0.53, 0.07, 0.35, 0.00, 0.12, 0.18],
    [0.91, 0.94, 0.93, 0.92, 0.99, 0.91, 1.00, 0.99, 0.93],
    {4, 6, 7},
)


@pytest.mark.parametrize("table", [WATCHMAN, SENTIMENT, IRONY], ids=["watchman", "sentiment", "irony"])
def test_the_papers_tables(table):
    s_div, s_qua, s_tot, ticks = table
    offsets = np.array([0, len(s_div)])
    axes = [
        pick.normalise(np.array(axis), np.array([own]), offsets, True) for axis, own in ((s_div, 0.0), (s_qua, 1.0))
    ]
    total = SEAS()._total(np.array(s_div), np.array(s_qua))
    np.testing.assert_allclose(total, s_tot, atol=1e-12)
    if ticks is not None:
        np.testing.assert_array_equal(axes, [s_div, s_qua])
        kept, counts = pick.largest(total, offsets, np.array([True]), 3)
        assert set(kept) == ticks
        assert counts.tolist() == [3]


def softmax(x):
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def ragged(seed, sizes, classes):
    rng = np.random.default_rng(seed)
    return (
        [softmax(rng.normal(size=(n, classes)) * 2) for n in sizes],
        softmax(rng.normal(size=(len(sizes), classes)) * 2),
        rng.integers(classes, size=len(sizes)),
    )


def reference(p, o, y, m, combine):
    """One sample, written out; the first m in order of falling total."""
    pool = [*p, o]
    div = np.array([-np.log(x[y]) for x in pool])
    qua = []
    for x in pool:
        joint = (np.outer(x, o) + np.outer(o, x)) / 2
        rows = joint.sum(axis=0)
        qua.append(1 + (joint * np.log(joint / np.outer(rows, rows))).sum() + (x * np.log(x)).sum())
    div = (div - div.min()) / (div.max() - div.min())
    qua = (np.array(qua) - min(qua)) / (max(qua) - min(qua))
    total = {"add": div + qua, "multiply": div * qua, "weighted": 0.3 * div + 0.7 * qua}[combine][:-1]
    return div[:-1], qua[:-1], total, np.argsort(-total, kind="stable")[:m]


@pytest.mark.parametrize("combine", ["add", "multiply", "weighted"])
@pytest.mark.parametrize("classes", [2, 6, 50])
def test_selection_is_the_written_out_one(combine, classes):
    p, o, y = ragged(classes, [9, 1, 4, 30, 2], classes)
    got = select(p, o, y, m=3, combine=combine, alpha=0.3)
    for s, picks in enumerate(got.picks()):
        div, qua, total, best = reference(p[s], o[s], y[s], 3, combine)
        rows = slice(got.offsets[s], got.offsets[s + 1])
        np.testing.assert_allclose(got.s_div[rows], div, atol=1e-6)
        np.testing.assert_allclose(got.s_qua[rows], qua, atol=1e-6)
        np.testing.assert_allclose(got.s_tot[rows], total, atol=1e-6)
        assert picks.tolist() == best.tolist()
    assert got.rank.tolist() == [1, 2, 3, 1, 1, 2, 3, 1, 2, 3, 1, 2]
    assert got.counts.tolist() == [3, 1, 3, 3, 2]


@pytest.mark.parametrize("by", ["rem+cem", "rem-linear+cosine", "cem-agreement", "neg-entropy", "rem", "random"])
def test_a_batch_equals_its_samples_one_by_one(by):
    sizes = [0, 9, 3, 0, 1, 12]
    p, o, y = ragged(3, sizes, 6)
    seeds = np.arange(6, dtype=np.uint64) * np.uint64(7919)
    whole = select(p, o, y, m=3, by=by, seeds=seeds)
    alone = [select([p[s]], o[s : s + 1], y[s : s + 1], m=3, by=by, seeds=seeds[s : s + 1]) for s in range(6)]
    for name in ("s_div", "s_qua", "s_tot"):
        np.testing.assert_array_equal(getattr(whole, name), np.concatenate([getattr(a, name) for a in alone]))
    assert [x.tolist() for x in whole.picks()] == [a.picks()[0].tolist() for a in alone]
    assert whole.counts.tolist() == [min(3, n) for n in sizes]


def test_the_three_forms_of_input_agree():
    rng = np.random.default_rng(5)
    dense = softmax(rng.normal(size=(4, 9, 3)))
    o, y = softmax(rng.normal(size=(4, 3))), [0, 1, 2, 0]
    forms = [
        select(dense, o, y),
        select(list(dense), o, y),
        select(dense.reshape(-1, 3), o, y, offsets=[0, 9, 18, 27, 36]),
        select(dense.tolist(), o.tolist(), y),
    ]
    for form in forms[1:]:
        np.testing.assert_array_equal(form.kept, forms[0].kept)
        np.testing.assert_array_equal(form.s_tot, forms[0].s_tot)


def test_ties_go_to_the_earlier_candidate():
    p = np.tile([0.7, 0.3], (1, 9, 1))
    assert select(p, [[0.6, 0.4]], [0]).picks()[0].tolist() == [0, 1, 2]
    p[0, 5] = [0.1, 0.9]
    assert select(p, [[0.6, 0.4]], [0], by="rem").picks()[0].tolist() == [5, 0, 1]


def test_a_range_of_0_gives_0():
    got = select(np.tile([0.6, 0.4], (1, 4, 1)), [[0.6, 0.4]], [0])
    assert not got.s_div.any() and not got.s_qua.any() and not got.s_tot.any()
    assert got.picks()[0].tolist() == [0, 1, 2]


def test_the_original_stretches_the_range_unless_left_out():
    p = softmax(np.random.default_rng(8).normal(size=(9, 4)))
    flat = ScoredBatch(p, np.array([0, 9]), np.array([[0.01, 0.97, 0.01, 0.01]]), np.array([1]))
    pooled, apart = (SEAS(pool_original=pool).select(flat, 3) for pool in (True, False))
    assert pooled.s_div.min() > 0 and pooled.s_qua.max() < 1
    assert apart.s_div.min() == 0 and apart.s_qua.max() == 1


def test_without_normalisation_the_scores_are_raw():
    p, o, y = ragged(2, [5, 3], 3)
    got = select(p, o, y, normalize=False)
    np.testing.assert_allclose(got.s_div, -np.log(np.concatenate(p)[np.arange(8), np.repeat(y, [5, 3])]))


def test_one_score_alone_leaves_the_other_axis_at_0():
    p, o, y = ragged(2, [5, 3], 3)
    both = select(p, o, y)
    for name, mine, other in (("rem", "s_div", "s_qua"), ("cem", "s_qua", "s_div")):
        got = select(p, o, y, by=name, combine="multiply")
        np.testing.assert_array_equal(getattr(got, mine), getattr(both, mine))
        np.testing.assert_array_equal(got.s_tot, getattr(both, mine))
        assert not getattr(got, other).any()


def test_random_is_fixed_by_the_seed_and_fair():
    o, y = np.full((4000, 2), 0.5), np.zeros(4000, int)
    batch = ScoredBatch(np.full((36000, 2), 0.5), np.arange(4001) * 9, o, y, seeds=np.arange(4000, dtype=np.uint64))
    got = RandomSelector().select(batch, 3)
    assert got.counts.tolist() == [3] * 4000
    share = np.bincount(np.concatenate(got.picks()), minlength=9) / 4000
    np.testing.assert_allclose(share, 1 / 3, atol=0.03)
    assert got.s_tot.min() >= 0 and got.s_tot.max() < 1
    np.testing.assert_array_equal(RandomSelector().select(batch, 3).kept, got.kept)


def test_perplexity_takes_the_place_of_rem():
    p, o, y = ragged(4, [4, 2], 3)
    texts, original_texts = ["a", "bbbb", "cc", "ccc", "d", "dd"], ["aaaaa", "d"]
    batch = ScoredBatch(np.concatenate(p), np.array([0, 4, 6]), o, y, texts, original_texts)
    selector = parse("ppl", perplexity=lambda xs: np.array([float(len(x)) for x in xs]))
    got = selector.select(batch, 2)
    np.testing.assert_allclose(got.s_div, [0, 0.75, 0.25, 0.5, 0, 1])
    assert [x.tolist() for x in got.picks()] == [[1, 3], [1, 0]]
    broken = parse("ppl+cem", perplexity=lambda xs: np.array([np.inf if x == "cc" else 1.0 for x in xs]))
    assert broken.select(batch, 2).valid.tolist() == [False, True]


BAD_ROWS = [[np.nan, 0.5], [np.inf, 0.0], [-0.1, 1.1], [0.0, 0.0], [3.0, 4.0], [-np.inf, np.inf]]


@pytest.mark.parametrize("bad", BAD_ROWS)
@pytest.mark.parametrize("where", ["candidate", "original"])
def test_a_sample_without_probabilities_is_flagged_and_the_rest_is_unharmed(bad, where):
    p, o, y = ragged(6, [5, 5, 5], 2)
    clean = select(p, o, y)
    if where == "candidate":
        p[1][3] = bad
    else:
        o[1] = bad
    got = select(p, o, y)
    assert got.valid.tolist() == [True, False, True]
    assert got.counts.tolist() == [3, 0, 3]
    assert not got.s_tot[5:10].any()
    np.testing.assert_array_equal(got.kept, clean.kept[clean.kept // 5 != 1])


number = st.one_of(st.floats(0, 1, width=32), st.sampled_from([0.0, 1.0, 1e-30, np.nan, np.inf, -1.0]))


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_no_input_gives_a_number_that_is_not_finite(data):
    classes, sizes = data.draw(st.integers(1, 70)), data.draw(st.lists(st.integers(0, 6), max_size=4))
    n = sum(sizes)
    p = data.draw(hnp.arrays(np.float32, (n, classes), elements=number))
    o = data.draw(hnp.arrays(np.float32, (len(sizes), classes), elements=number))
    if data.draw(st.booleans()):
        with np.errstate(all="ignore"):
            p, o = p / p.sum(axis=1, keepdims=True), o / o.sum(axis=1, keepdims=True)
    y = data.draw(hnp.arrays(np.int64, len(sizes), elements=st.integers(0, classes - 1)))
    div = data.draw(st.sampled_from(["rem", "rem-linear"]))
    qua = data.draw(st.sampled_from(["cem", "cem-agreement", "neg-entropy", "cosine"]))
    selector = SEAS(
        div, qua, data.draw(st.sampled_from(["add", "multiply", "weighted"])), normalize=data.draw(st.booleans())
    )
    got = selector.select(ScoredBatch(p, np.cumsum([0, *sizes]), o, y), 3)
    for axis in (got.s_div, got.s_qua, got.s_tot):
        assert axis.shape == (n,) and np.isfinite(axis).all()
        if selector.normalize and selector.combine != "add":
            assert ((axis >= 0) & (axis <= 1)).all()
    assert got.counts.tolist() == [min(3, k) if ok else 0 for k, ok in zip(sizes, got.valid, strict=True)]


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(2, 70), st.sampled_from(["rem", "rem-linear"]))
def test_one_hot_labels_select_exactly_as_class_numbers_do(seed, classes, div):
    p, o, y = ragged(seed, [9, 0, 4, 1], classes)
    onehot = np.eye(classes)[y]
    for qua in ("cem", "cosine"):
        hard, soft = (select(p, o, labels, by=f"{div}+{qua}") for labels in (y, onehot))
        for name in ("s_div", "s_qua", "s_tot", "kept", "counts"):
            np.testing.assert_array_equal(getattr(hard, name), getattr(soft, name))


def test_soft_labels_stand_in_for_labels():
    p, o, _ = ragged(5, [4, 2], 3)
    t = softmax(np.random.default_rng(1).normal(size=(2, 3)))
    batch = ScoredBatch(np.concatenate(p), np.array([0, 4, 6]), o, targets=t)
    assert batch.labels.tolist() == t.argmax(axis=1).tolist()
    got = SEAS("rem", None, normalize=False).select(batch, 3)
    np.testing.assert_allclose(got.s_div, -(np.repeat(t, [4, 2], axis=0) * np.log(np.concatenate(p))).sum(axis=1))
    np.testing.assert_array_equal(got.kept, select(p, o, t, by="rem", normalize=False).kept)


def test_soft_labels_of_candidates_stand_in_for_the_label_of_the_sample():
    p, o, y = ragged(6, [4, 2], 3)
    p, offsets = np.concatenate(p), np.array([0, 4, 6])
    t = softmax(np.random.default_rng(2).normal(size=(6, 3)))
    own = ScoredBatch(p, offsets, o, y, candidate_targets=t)
    got = SEAS("rem", "cosine", normalize=False).select(own, 3)
    np.testing.assert_allclose(got.s_div, -(t * np.log(p)).sum(axis=1))
    lengths = np.linalg.norm(t, axis=1) * np.linalg.norm(p, axis=1)
    np.testing.assert_allclose(got.s_qua, (t * p).sum(axis=1) / lengths)
    hard = ScoredBatch(p, offsets, o, y, candidate_targets=np.eye(3)[np.repeat(y, [4, 2])])
    for name in ("rem", "rem-linear", "cem"):
        same = SEAS(name) if name != "cem" else SEAS(None, name)
        np.testing.assert_array_equal(same.select(hard, 3).s_tot, same.select(ScoredBatch(p, offsets, o, y), 3).s_tot)
    with pytest.raises(RequestError, match="soft labels of candidates"):
        ScoredBatch(p, offsets, o, y, candidate_targets=t[:4])


def test_the_teacher_judges_quality_and_the_learner_diversity():
    p, o, y = ragged(1, [9, 3], 4)
    q, q_o, _ = ragged(2, [9, 3], 4)
    for div, qua in (("rem", "cem"), ("rem-linear", "cem-agreement"), ("rem", "neg-entropy"), ("rem", "cosine")):
        both = select(p, o, y, by=f"{div}+{qua}", teacher=q, teacher_originals=q_o)
        np.testing.assert_array_equal(both.s_div, select(p, o, y, by=div).s_div)
        np.testing.assert_array_equal(both.s_qua, select(q, q_o, y, by=qua).s_qua)
    same = select(p, o, y, teacher=p, teacher_originals=o)
    np.testing.assert_array_equal(same.s_tot, select(p, o, y).s_tot)


def test_divergence_prefers_what_the_teacher_sees_and_the_learner_does_not():
    teacher = [[[0.9, 0.1], [0.9, 0.1], [0.9, 0.1]]]
    learner = [[[0.8, 0.2], [0.1, 0.9], [0.5, 0.5]]]
    original = [[0.9, 0.1]]
    got = select(learner, original, [0], by="divergence", teacher=teacher, teacher_originals=original)
    assert got.picks()[0].tolist() == [1, 2, 0]
    assert got.s_div[1] == 1.0
    both = select(learner, original, [0], by="divergence+cem", teacher=teacher, teacher_originals=original)
    np.testing.assert_array_equal(both.s_div, got.s_div)


@pytest.mark.parametrize("bad", BAD_ROWS)
def test_a_sample_without_probabilities_of_the_teacher_is_flagged(bad):
    p, o, y = ragged(6, [5, 5], 2)
    q, q_o, _ = ragged(7, [5, 5], 2)
    clean = select(p, o, y, by="divergence+cem", teacher=q, teacher_originals=q_o)
    q[0][2] = bad
    got = select(p, o, y, by="divergence+cem", teacher=q, teacher_originals=q_o)
    assert got.valid.tolist() == [False, True] and got.counts.tolist() == [0, 3]
    assert not got.s_tot[:5].any()
    np.testing.assert_array_equal(got.s_tot[5:], clean.s_tot[5:])


def test_no_samples():
    got = select(np.empty((0, 9, 3)), np.empty((0, 3)), np.empty(0, int))
    assert len(got.kept) == 0 and got.picks() == []


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: parse("cem+rem"), "DIV one of rem, rem-linear, ppl"),
        (lambda: parse("rem+"), "DIV+QUA"),
        (lambda: parse("best"), "there is no selector 'best'"),
        (lambda: parse("rem+cem", combine="mean"), "add, multiply, weighted"),
        (lambda: parse("rem+cem", alpha=2.0), "between 0 and 1"),
        (lambda: select(np.full((1, 4, 2), 0.5), [[0.5, 0.5]], [0], by="ppl+cem"), "perplexity="),
        (lambda: select(np.ones((1, 2, 3)) / 3, np.ones((1, 3)) / 3, [3]), "0 … 2"),
        (lambda: select(np.ones((1, 2, 3)) / 3, np.ones((1, 3)) / 3, [0.5]), "class numbers"),
        (lambda: select(np.ones((1, 2, 3)) / 3, np.ones((1, 4)) / 4, [0]), "[candidates, 4]"),
        (lambda: select(np.ones((2, 3)) / 3, np.ones((2, 3)) / 3, [0, 1]), "offsets"),
        (lambda: select(np.ones((2, 3)) / 3, np.ones((1, 3)) / 3, [0], offsets=[0, 3]), "rise from 0 to 2"),
        (lambda: select(np.ones((1, 2, 3)) / 3, np.ones((1, 3)) / 3, [0], m=0), "at least 1"),
        (lambda: select(np.ones((1, 2, 3)) / 3, np.ones((1, 3)) / 3, [0], by="random"), "seeds"),
        (lambda: select(np.ones((1, 2, 3)) / 3, np.ones((1, 3)) / 3, [[0.5, 0.5]]), "[1, 3]"),
        (lambda: select(np.ones((1, 2, 3)) / 3, np.ones((1, 3)) / 3, [[0.5, 0.5, 0.5]]), "sum to 1"),
        (lambda: select(np.ones((1, 2, 3)) / 3, np.ones((1, 3)) / 3, [[np.nan, 0.5, 0.5]]), "sum to 1"),
        (lambda: ScoredBatch(np.ones((1, 1)), np.array([0, 1]), np.ones((1, 1))), "labels are missing"),
        (lambda: select(np.ones((1, 2, 3)) / 3, np.ones((1, 3)) / 3, [0], by="divergence+cem"), "--teacher"),
        (lambda: select(np.ones((1, 2, 1)), [[1.0]], [0], teacher=np.ones((1, 2, 1))), "teacher_originals"),
        (
            lambda: select(np.ones((1, 2, 1)), [[1.0]], [0], teacher=np.ones((1, 1, 1)), teacher_originals=[[1.0]]),
            "(2, 1)",
        ),
    ],
)
def test_a_wrong_request_is_told_what_to_do(call, says):
    with pytest.raises(RequestError) as error:
        call()
    assert says in str(error.value)
    assert "\n" not in str(error.value)


def test_every_listed_selector_can_be_made():
    for row in SELECTORS.listing():
        assert row.missing == ""
        parse(row.name, perplexity=lambda texts: np.ones(len(texts)))
