"""One round after another in this process: the generator, the selector and the judges, ready to use."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from epida_ray.core.labels import hard
from epida_ray.generate.corpus import bind_samples, needs_corpus
from epida_ray.method.corpus import corpus_samples
from epida_ray.method.prepare import Row
from epida_ray.method.round import one_round
from epida_ray.method.round_plan import round_blocks
from epida_ray.method.schema import Block
from epida_ray.method.stages import RoundOptions, bind_generator, needs_classifier
from epida_ray.method.trainer import LabelledRows
from epida_ray.select import needs_perplexity


class Rewriter:
    """Makes and judges rewrites with the classifier in training, and with a teacher where there is one."""

    def __init__(self, rows: LabelledRows, options: RoundOptions, classifier: Any, teacher: Any = None) -> None:
        self.rows, self.options, self.classifier, self.teacher = rows, options, classifier, teacher
        self.generator = options.make_generator()
        if needs_classifier(self.generator):
            bind_generator(self.generator, classifier)
        if needs_corpus(self.generator):
            named = zip(rows.ids, rows.texts, (options.labels[i] for i in hard(rows.y).tolist()), strict=True)
            bind_samples(self.generator, corpus_samples(self.generator, [Row(*row) for row in named]))
        perplexity = None
        if needs_perplexity(options.select):
            from epida_ray.select.perplexity import LanguageModel

            perplexity = LanguageModel.estimate(rows.texts)
        self.selector = options.make_selector(perplexity)

    def rewrite(self, block: Block, round_: int, judge: Any = None) -> Block:
        """Return the block with its rewrites selected; the classifier judges unless another `judge` does."""
        judge = self.classifier if judge is None else judge
        return one_round(block, self.generator, judge, self.selector, self.options, round_, self.teacher)

    def rewrite_all(self, round_: int) -> Block:
        """Return all rows with their rewrites of a round selected, in their order."""
        blocks = round_blocks(self.rows, 1 + self.options.k * self.options.m, len(self.options.labels))
        return pa.concat_tables([self.rewrite(block, round_) for block in blocks])
