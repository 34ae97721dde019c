import numpy as np
import pytest
import torch

from epida_ray.classify import engine
from epida_ray.classify.engine import Engine
from epida_ray.core.errors import RunError


class Model:
    """Answers with each text's number of tokens and their sum, and remembers the batches it was given."""

    def __init__(self, room: int | None = None) -> None:
        self.batches: list[list[int]] = []
        self.tokenized: list[int] = []
        self.room = room

    def tokenize(self, texts):
        self.tokenized.append(len(texts))
        return [[ord(c) for c in t] for t in texts]

    def forward(self, tokens):
        padded = max(map(len, tokens)) * len(tokens)
        if self.room is not None and padded > self.room:
            raise torch.OutOfMemoryError("no room")
        self.batches.append([len(t) for t in tokens])
        assert torch.is_inference_mode_enabled()
        return torch.tensor([[len(t), sum(t)] for t in tokens], dtype=torch.float32)


def expected(texts):
    return np.array([[len(t), sum(map(ord, t))] for t in texts], np.float32).reshape(-1, 2)


def some_texts(count: int) -> list[str]:
    random = np.random.default_rng(0)
    return ["a" * n for n in random.integers(0, 50, count)]


def test_order_packing_and_equal_texts():
    model = Model()
    texts = some_texts(300)
    out = Engine(model.tokenize, model.forward, token_budget=100).run(texts, 2)
    assert np.array_equal(out, expected(texts))
    assert sum(map(len, model.batches)) == len(set(texts))
    assert all(max(b) * len(b) <= 100 for b in model.batches)
    assert all(b == sorted(b, reverse=True) for b in model.batches)


def test_many_slices_keep_the_order(monkeypatch):
    monkeypatch.setattr(engine, "SLICE", 7)
    model = Model()
    texts = [f"{i} {'x' * (i % 13)}" for i in range(50)]
    out = Engine(model.tokenize, model.forward, token_budget=64).run(texts, 2)
    assert np.array_equal(out, expected(texts))
    assert model.tokenized == [7] * 7 + [1]


def test_an_error_in_the_tokeniser_is_raised(monkeypatch):
    monkeypatch.setattr(engine, "SLICE", 2)

    def broken(texts):
        raise ValueError("bad text")

    with pytest.raises(ValueError, match="bad text"):
        Engine(broken, Model().forward, 10).run(list("abcdef"), 2)


def test_nothing_to_do():
    model = Model()
    assert Engine(model.tokenize, model.forward, 100).run([], 2).shape == (0, 2)


def test_a_text_longer_than_the_budget_goes_alone():
    model = Model()
    texts = ["a" * 500, "b" * 3, "c" * 4]
    assert np.array_equal(Engine(model.tokenize, model.forward, 100).run(texts, 2), expected(texts))
    assert model.batches == [[500], [4, 3]]


def test_out_of_memory_halves_the_budget_and_goes_on():
    model = Model(room=60)
    run = Engine(model.tokenize, model.forward, token_budget=1000)
    texts = some_texts(200)
    assert np.array_equal(run.run(texts, 2), expected(texts))
    assert run.token_budget <= 60
    model = Model(room=30)
    with pytest.raises(RunError, match="49 tokens does not fit"):
        Engine(model.tokenize, model.forward, token_budget=1000).run(texts, 2)


def test_other_errors_are_not_swallowed():
    def broken(tokens):
        raise RuntimeError("shape mismatch")

    with pytest.raises(RuntimeError, match="shape mismatch"):
        Engine(Model().tokenize, broken, 10).run(["a"], 2)


def test_the_device_is_a_cpu_where_there_is_no_gpu():
    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    assert engine.pick_device("auto").type == "cpu"
