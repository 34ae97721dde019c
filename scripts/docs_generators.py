"""Write the table of docs/generators.md: what comes out of each generator, how fast, and when to use it.

    python scripts/docs_generators.py [--only NAME …]

Examples are the first two candidates of one sentence with seed 0; other samples are the bundled corpus. Speed is the
number of distinct candidates per second of processor time on one thread, nine requested for each text of that corpus.
A generator that cannot run here, or is not among `--only`, keeps what the page has.
"""

from __future__ import annotations

import argparse
import csv
import time
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from epida_ray.core.errors import RequestError
from epida_ray.core.sample import Candidates, Sample
from epida_ray.generate import GENERATORS, propose
from epida_ray.generate.corpus import bind_samples

PAGE = Path(__file__).parents[1] / "docs" / "generators.md"
BEGIN, END = "<!-- table of scripts/docs_generators.py -->", "<!-- end of the table -->"
HEAD = ("generator", "what it does", "what comes out", "candidates/s", "when to use it")
SAMPLE = Sample("sample", "Please cancel my old plan and refund the last payment to my card.", "cancellation")
N = 9
NOTHING = "–"


class Row(NamedTuple):
    name: str
    use: str
    shown: str = ""
    """The name in the table, if it is another."""
    arguments: Mapping[str, Any] = MappingProxyType({})
    texts: int = 300
    """How many texts the speed is measured with."""
    cheap: bool = True
    """A test compares the example with the code."""
    runs: bool = True
    """It needs no model or file that is not in a package."""

    @property
    def title(self) -> str:
        return f"`{self.shown or self.name}`"


ROWS = (
    Row("eda", "the default, for any language with a table of synonyms"),
    Row("eda", "when the meaning must survive and the texts are English", "eda careful=true", {"careful": True}),
    Row("aeda", "when no word may change, in any language"),
    Row("synonym", "when the order of the words matters to the label"),
    Row("spelling", "when users mistype, at a small cost on clean texts"),
    Row("substructure", "when phrases of a class are interchangeable and grammar does not matter"),
    Row("span-mix", "to learn from mixtures of classes with soft labels"),
    Row("morph", "for long sentences with several phrases behind the verb"),
    Row("nlpaug:SynonymAug", "when you have a pipeline with nlpaug and want its rewrites chosen", "nlpaug:NAME"),
    Row("textattack:EasyDataAugmenter", "when you have a recipe of TextAttack and want its rewrites chosen",
        "textattack:NAME", texts=8, cheap=False),
    Row("back-translation", "for fluent paraphrases of longer texts without a large model", texts=8, cheap=False),
    Row("language-model", "for paraphrases by a model better than SmolLM2", texts=2,
        cheap=False),
    Row("author", "when there are so few rows of a class that rewrites add nothing new", texts=2, cheap=False),
    Row("masked-lm", "for words that fit their context", runs=False),
    Row("cwe", "to repeat the paper's CWE, which `masked-lm` does much faster", runs=False),
    Row("textattack-attack", "to train against attacks on the classifier", "textattack-attack:NAME", runs=False),
    Row("policy", "after `epida tune` found that a combination helps on your data", "policy:FILE", runs=False),
    Row("mix", "when one generator is too monotonous", "mix eda=2 aeda=1", {"eda": 2, "aeda": 1}),
)  # fmt: skip


def samples() -> list[Sample]:
    corpus = files("epida_ray") / "experiments" / "support_desk" / "train.csv"
    with corpus.open(encoding="utf-8", newline="") as file:
        return [Sample(str(i), row["text"], row["label"]) for i, row in enumerate(csv.DictReader(file))]


def made(row: Row) -> Any:
    generator = GENERATORS.create(row.name, **row.arguments)
    if getattr(generator, "needs_corpus", False):
        bind_samples(generator, samples())
    return generator


def example(row: Row, generator: Any = None) -> str:
    """Return the first two candidates of the sentence, as a cell."""
    (answer,) = _candidates(generator or made(row), row, [SAMPLE])
    texts = answer.texts[:2] if isinstance(answer, Candidates) else []
    return "<br>".join(text.replace("|", "\\|") for text in texts) or NOTHING


def _candidates(generator: Any, row: Row, batch: list[Sample], seed: int = 0) -> list[Any]:
    classes = sorted({sample.label for sample in samples()})
    return propose(generator, batch, N, run_seed=seed, round_=0, name=row.name, classes=classes)


def speed(row: Row, generator: Any) -> str:
    batch = samples()[: row.texts]
    _candidates(generator, row, batch[:2], seed=1)  # what is loaded at first use is not counted
    begin = time.process_time()
    answers = _candidates(generator, row, batch)
    count = sum(len(answer.texts) for answer in answers if isinstance(answer, Candidates))
    rate = count / max(1e-9, time.process_time() - begin)
    return f"{float(f'{rate:.2g}'):,g}"


def cells(page: str) -> dict[str, list[str]]:
    """Return the rows of the page's table by their first cell."""
    lines = page.partition(BEGIN)[2].partition(END)[0].strip().splitlines()[2:]
    rows = [[cell.strip() for cell in line.strip("| ").split(" | ")] for line in lines]
    return {row[0]: row for row in rows}


def main() -> None:
    import torch

    parser = argparse.ArgumentParser()
    parser.add_argument("--only", nargs="*", default=[])
    only = parser.parse_args().only
    torch.set_num_threads(1)
    page = PAGE.read_text()
    known = cells(page)
    lines = ["| " + " | ".join(HEAD) + " |", "|---|---|---|---|---|"]
    for row in ROWS:
        shown, rate = known.get(row.title, ["", "", NOTHING, NOTHING])[2:4]
        if row.runs and (not only or row.name in only):
            try:
                generator = made(row)
                shown, rate = example(row, generator), speed(row, generator)
            except (RequestError, ImportError) as error:
                print(f"{row.name}: {error}")
        summary = GENERATORS.builtins[row.name.partition(":")[0]].summary
        lines.append("| " + " | ".join((row.title, summary, shown, rate, row.use)) + " |")
        print(lines[-1], flush=True)
    before, _, rest = page.partition(BEGIN)
    PAGE.write_text("\n".join((before + BEGIN, *lines, END)) + rest.partition(END)[2])


if __name__ == "__main__":
    main()
