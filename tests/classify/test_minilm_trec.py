import os
from pathlib import Path

import numpy as np
import pytest

from epida_ray.classify import create
from epida_ray.classify.checkpoint import MINILM_PACKAGE
from epida_ray.core.labels import dev_split, label_numbers
from epida_ray.core.metrics import scores
from epida_ray.method.trainer import fit


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.skipif("EPIDA_DATA" not in os.environ, reason="EPIDA_DATA does not say where the data sets are")
def test_minilm_learns_trec_from_a_tenth():
    pytest.importorskip(MINILM_PACKAGE)
    import pyarrow.parquet as pq

    def read(split: str) -> tuple[list[str], list[str]]:
        table = pq.read_table(Path(os.environ["EPIDA_DATA"]) / "trec" / f"{split}.parquet")
        return table["text"].to_pylist(), table["label_name"].to_pylist()

    (texts, names), (test_texts, test_names) = read("train"), read("test")
    labels = sorted(set(names))
    taken = np.flatnonzero(dev_split(label_numbers(labels, names), 0.1, seed=1))
    classifier = create("minilm", labels)
    fit(classifier, [texts[i] for i in taken], [names[i] for i in taken])
    predicted = classifier.predict_proba(test_texts).argmax(axis=1)
    assert scores(labels, label_numbers(labels, test_names), predicted)["macro_f1"] >= 0.85
