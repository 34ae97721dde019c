from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from epida_ray.classify import create
from epida_ray.core.errors import RequestError
from epida_ray.method.evaluate import evaluate_model
from epida_ray.method.noise import noise_of, parse_noise

TEXTS = [f"where is the small {thing}, please?" for thing in ("parcel", "kettle", "window", "lamp")] * 10
IDS = [str(i) for i in range(len(TEXTS))]


def test_noise_changes_what_it_says_and_depends_on_the_id_alone() -> None:
    misspelt = parse_noise("spelling:0.3")(IDS, TEXTS)
    assert all(noisy != text and len(noisy.split()) == 6 for noisy, text in zip(misspelt, TEXTS, strict=True))
    assert len(set(misspelt)) > 20
    assert parse_noise("spelling:0.3")(IDS[5:7], TEXTS[5:7]) == misspelt[5:7]
    cased = parse_noise("case")(IDS, TEXTS)
    assert [t.lower() for t in cased] == [t.lower() for t in TEXTS] and cased != TEXTS
    assert parse_noise("punctuation")(IDS[:1], TEXTS[:1]) == ["where is the small parcel please"]
    mistyped = parse_noise("keyboard:0.3")(IDS, TEXTS)
    assert mistyped != misspelt and all(len(n) == len(t) and n != t for n, t in zip(mistyped, TEXTS, strict=True))
    few = parse_noise("case:0.3")(IDS, TEXTS)
    words = [(a, b) for new, old in zip(few, TEXTS, strict=True) for a, b in zip(new.split(), old.split(), strict=True)]
    assert 0.05 < sum(a != b for a, b in words) / len(words) < 0.25  # half of the changed words were in small letters
    marks = sum("," in text for text in parse_noise("punctuation:0.3")(IDS, TEXTS))
    assert 20 <= marks <= 36
    for wrong in ("case:0", "punctuation:2", "keyboard:2"):
        with pytest.raises(RequestError, match=f"--noise {wrong}: .* above 0 and up to 1"):
            parse_noise(wrong)
    with pytest.raises(RequestError, match="--noise nonsense"):
        parse_noise("nonsense")
    with pytest.raises(RequestError, match="--noise textattack-attack:DeepWordBugGao2018 attacks"):
        parse_noise("textattack-attack:DeepWordBugGao2018")


def test_an_attack_on_the_model_is_noise(tmp_path: Path) -> None:
    pytest.importorskip("textattack", reason="pip install 'epida-ray[textattack]'")
    labels = ["thing" if "lamp" in text or "parcel" in text else "place" for text in TEXTS]
    classifier = create("linear", ("place", "thing"), letters=())
    y = np.array([("place", "thing").index(label) for label in labels])
    classifier.fit(TEXTS, y, np.ones(len(TEXTS), np.float32), 0)
    classifier.save(tmp_path / "model")
    pq.write_table(pa.table({"text": TEXTS[:8], "label": labels[:8]}), tmp_path / "test.parquet")
    attack = "textattack-attack:DeepWordBugGao2018"
    result = evaluate_model(str(tmp_path / "model"), str(tmp_path / "test.parquet"), "text", "label", noise=(attack,))
    assert result["accuracy"] == 1 and result["noise"][attack]["accuracy"] < 1


def test_the_noise_of_training_is_named_where_a_test_can_have_it() -> None:
    assert noise_of("spelling", {"alpha": 0.3}) == ["spelling:0.3"] and noise_of("spelling", {}) == ["spelling:0.1"]
    assert noise_of("aeda", {}) == ["aeda"]
    for generator, arguments in (("spelling", {"language": "de"}), ("span-mix", {})):
        assert noise_of(generator, arguments) == []
    for spec in ("spelling:0.1", "aeda"):
        parse_noise(spec)


def test_a_model_is_measured_on_clean_and_on_noisy_texts(tmp_path: Path) -> None:
    labels = ["thing" if "lamp" in text or "parcel" in text else "place" for text in TEXTS]
    classifier = create("linear", ("place", "thing"))
    y = np.array([("place", "thing").index(label) for label in labels])
    classifier.fit(TEXTS, y, np.ones(len(TEXTS), np.float32), 0)
    classifier.save(tmp_path / "model")
    pq.write_table(pa.table({"text": TEXTS, "label": labels}), tmp_path / "test.parquet")
    result = evaluate_model(
        str(tmp_path / "model"), str(tmp_path / "test.parquet"), "text", "label", noise=("spelling:1", "case")
    )
    ids = [f"test.parquet:{i}" for i in range(len(TEXTS))]
    right = classifier.predict_proba(parse_noise("spelling:1")(ids, TEXTS)).argmax(axis=1) == y
    assert result["accuracy"] == 1 and result["noise"]["spelling:1"]["accuracy"] == pytest.approx(right.mean())
    assert result["noise"]["case"]["macro_f1"] == 1
