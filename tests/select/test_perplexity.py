import json
import math
from pathlib import Path

import numpy as np
import pytest

from epida_ray.core.errors import RequestError
from epida_ray.select import ScoredBatch, parse
from epida_ray.select.perplexity import BEGIN, END, UNKNOWN, LanguageModel, estimate, tokens

pytest.importorskip("kenlm", reason="pip install 'epida-ray[ppl]'")
FIXTURES = Path(__file__).parent / "fixtures"
KENLM = json.loads((FIXTURES / "kenlm.json").read_text())
CORPUS = (FIXTURES / "corpus.txt").read_text().splitlines()


@pytest.mark.parametrize("order", [2, 3, 5])
def test_perplexities_are_those_of_kenlms_own_estimator(order):
    expected = KENLM["perplexity"][str(order)]
    assert [len(table) for table in estimate(map(tokens, CORPUS), order)] == expected["ngrams"]
    found = LanguageModel.estimate(CORPUS, order)(KENLM["texts"])
    np.testing.assert_allclose(found, expected["values"], rtol=1e-5)


def test_a_corpus_too_small_for_discounts_falls_back_as_kenlm_does():
    small = KENLM["small"]
    found = LanguageModel.estimate(small["corpus"], small["order"])(small["texts"])
    np.testing.assert_allclose(found, small["values"], rtol=1e-5)


def test_probabilities_sum_to_one_in_every_context():
    tables = estimate(map(tokens, CORPUS[:60]), 3)
    words = [gram[0] for gram in tables[0] if gram[0] != BEGIN]

    def probability(context, word):
        for cut in range(len(context) + 1):
            gram = (*context[cut:], word)
            if gram in tables[len(gram) - 1]:
                weight = 1.0
                for i in range(cut):
                    kept = context[i:]
                    weight *= tables[len(kept) - 1][kept].backoff if kept in tables[len(kept) - 1] else 1.0
                return weight * tables[len(gram) - 1][gram].probability
        raise AssertionError(word)

    for context in ((), (BEGIN,), ("i",), (BEGIN, "i"), ("the", "app"), ("never", "seen")):
        assert math.fsum(probability(context, word) for word in words) == pytest.approx(1.0, abs=1e-9)
    assert (UNKNOWN,) in tables[0] and (END,) in tables[0]


def test_any_text_has_a_perplexity():
    model = LanguageModel.estimate(CORPUS)
    found = model(["", "\0", "<s> </s> <unk>", "\ud800 lone", "日本語", "a\nb\tc", "word " * 5000])
    assert np.isfinite(found).all() and (found > 1).all()


def test_a_text_like_the_corpus_is_less_perplexing():
    model = LanguageModel.estimate(CORPUS)
    seen = model(CORPUS[:50])
    shuffled = model([" ".join(reversed(line.split())) for line in CORPUS[:50]])
    assert (seen < shuffled).mean() > 0.9


def test_it_serves_the_selector_as_diversity():
    model = LanguageModel.estimate(CORPUS)
    p = np.full((2, 2), 0.5)
    batch = ScoredBatch(p, np.array([0, 2]), p[:1], np.array([0]), [CORPUS[1], "xx yy zz"], [CORPUS[0]])
    assert parse("ppl", perplexity=model).select(batch, 1).kept.tolist() == [1]


def test_wrong_requests(tmp_path):
    with pytest.raises(RequestError, match="at least one text"):
        LanguageModel.estimate([])
    with pytest.raises(RequestError, match="at least 2"):
        LanguageModel.estimate(CORPUS, order=1)
    with pytest.raises(RequestError, match="not a language model"):
        LanguageModel(tmp_path / "none.arpa")
