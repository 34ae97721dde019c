import errno
import io
import time
import urllib.error
from collections.abc import Sequence

import numpy as np
import pytest

from epida_ray.core.errors import RequestError, TransientError
from epida_ray.core.sample import Candidates, Rejected, Sample, fold_space
from epida_ray.generate import GENERATORS, propose, protect
from epida_ray.generate import ask as asking

SAMPLES = [Sample(str(i), f"big dogs number {i} ran home") for i in range(20)]


def ask(generator, samples: Sequence[Sample] = SAMPLES, n: int = 3, **options):
    return propose(generator, samples, n, **({"run_seed": 0, "round_": 0, "name": "mine"} | options))


class Numbered:
    """Candidate k of a sample is its text and k; what is wrong with some of them, subclasses say."""

    def generate(self, samples, n, seeds):
        return [self.one(sample, n, seed) for sample, seed in zip(samples, seeds, strict=True)]

    def one(self, sample, n, seed):
        return Candidates([f"{sample.text} {k}" for k in range(n)], ["number"] * n)


def test_eda_through_propose() -> None:
    answers = propose(GENERATORS.create("eda"), SAMPLES, 9, run_seed=1, round_=2, name="eda")
    assert [len(a.texts) for a in answers] == [9] * 20
    assert answers == propose(GENERATORS.create("eda"), SAMPLES, 9, run_seed=1, round_=2, name="eda")
    assert answers != propose(GENERATORS.create("eda"), SAMPLES, 9, run_seed=1, round_=3, name="eda")


def test_the_order_stays_and_nothing_asked_is_nothing_given() -> None:
    assert [a.texts[1] for a in ask(Numbered())] == [f"{s.text} 1" for s in SAMPLES]
    assert ask(Numbered(), n=0) == [Candidates([], [])] * 20
    assert ask(Numbered(), []) == []


def test_copies_are_dropped_and_asked_for_again() -> None:
    class Copies(Numbered):
        asked = 0

        def one(self, sample, n, seed):
            Copies.asked += 1
            return Candidates(
                [sample.text, "", f"{sample.text}  {seed % 1000}", f"{sample.text} {seed % 1000} "], ["a"] * 4
            )

    answers = ask(Copies())
    assert Copies.asked == 60
    for sample, answer in zip(SAMPLES, answers, strict=True):
        assert len(answer.texts) == 3
        assert len({fold_space(t) for t in answer.texts} - {sample.text, ""}) == 3


def test_soft_labels_are_checked() -> None:
    class Soft(Numbered):
        def one(self, sample, n, seed):
            return Candidates([f"{sample.text} {k}" for k in range(len(labels))], ["a"] * len(labels), labels)

    cat = [SAMPLES[0]._replace(label="cat")]
    labels: list = [{"cat": 0.75, "dog": 0.25}, None, {"cat": 0.5, "dog": 0.5}]
    (answer,) = ask(Soft(), cat, classes=("cat", "dog"))
    assert answer.soft == labels
    for bad in ({"cat": 0.4, "dog": 0.6}, {"dog": 1.0}, {"cat": 0.9}, {"cat": 0.7, "cow": 0.3}, {"cat": "1"}, 1.0,
                {"dog": 0.1, "cat": "0.9"}, {"cat": None, "dog": 0.5}, {1: 0.5, "cat": 0.5},
                {"cat": 10**400}, {"cat": float("nan")}, {"cat": 1.5, "dog": -0.5}):  # fmt: skip
        labels = [bad]
        (answer,) = ask(Soft(), cat, classes=("cat", "dog"))
        assert isinstance(answer, Rejected) and "gave the soft label" in answer.reason
    labels = [{"cat": 1.0}]
    (answer,) = ask(Soft(), cat)  # of a generator that does not say that it gives any
    assert isinstance(answer, Rejected) and "soft_labels = True" in answer.reason
    Soft.one = lambda self, sample, n, seed: Candidates(["a", "b"], ["a", "b"], [{"cat": 1.0}])  # type: ignore[method-assign]
    (answer,) = ask(Soft(), cat, classes=("cat", "dog"))
    assert isinstance(answer, Rejected) and "not a list of 2" in answer.reason


def test_a_shortfall_is_no_error_and_a_copier_is_rejected() -> None:
    class Short(Numbered):
        def one(self, sample, n, seed):
            return Candidates([sample.text] if sample.id == "1" else ["same"], ["a"])

    answers = ask(Short())
    assert answers[0] == Candidates(["same"], ["a"])
    assert isinstance(answers[1], Rejected) and "no candidate" in answers[1].reason


def test_a_promise_of_distinct_candidates_is_checked() -> None:
    class Liar(Numbered):
        distinct = True

        def one(self, sample, n, seed):
            return Candidates([sample.text, "x", "x"], ["a"] * 3)

    assert ask(Liar())[0] == Candidates(["x"], ["a"])


def test_an_exception_costs_its_own_sample() -> None:
    class Raises(Numbered):
        def one(self, sample, n, seed):
            if sample.id == "7":
                raise ValueError("seven\nis odd")
            return super().one(sample, n, seed)

    answers = ask(Raises())
    assert answers[7] == Rejected("mine raised ValueError: seven")
    assert sum(isinstance(a, Candidates) for a in answers) == 19


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (Candidates([1, None], ["a", "b"]), "not a string"),
        (Candidates(["x" * 10_000_000], ["a"]), "10,000,000 characters"),
        (Candidates(["x", "y"], ["a"]), "2 texts but 1 operations"),
        (None, "not Candidates"),
        ("abc", "not Candidates"),
        (Rejected("no verb"), "no verb"),
    ],
)
def test_nonsense_is_rejected_with_the_reason(answer: object, reason: str) -> None:
    class Nonsense(Numbered):
        def one(self, sample, n, seed):
            return answer if sample.id == "3" else super().one(sample, n, seed)

    answers = ask(Nonsense())
    assert isinstance(answers[3], Rejected) and reason in answers[3].reason
    assert sum(isinstance(a, Candidates) for a in answers) == 19


@pytest.mark.parametrize(
    "answer",
    [
        Candidates(None, None), Candidates(["a", "b", "c"], None), Candidates("abc", "abc"),
        Candidates([[]] * 3, ["a"] * 3), Candidates(["a", "b", "c"], ["a"] * 3, np.ones(3)),
        Candidates(["a", "b", "c"], ["a"] * 3, 7), Candidates(3, 3, 3), Candidates(["a", "b", "c"], ["a"] * 3, {}),
        Candidates(["a", "b", "c"], ["a"] * 3, [{}, 1, "x"]), (["a"], ["a"], [object()]), {}, 1.5,
    ],
)  # fmt: skip
@pytest.mark.parametrize("distinct", [True, False])
def test_answers_of_the_wrong_types_cost_no_other_row(answer: object, distinct: bool) -> None:
    class Wrong(Numbered):
        def one(self, sample, n, seed):
            return answer if sample.id == "3" else super().one(sample, n, seed)

    generator = Wrong()
    generator.distinct = distinct  # type: ignore[attr-defined]
    answers = ask(generator, classes=("x", "y"))
    assert answers[:3] + answers[4:] == ask(Numbered(), SAMPLES[:3] + SAMPLES[4:])
    assert isinstance(answers[3], Rejected)


@pytest.mark.parametrize("answers", [[], None, [Candidates(["x"], ["a"])] * 2, Candidates(["x"], ["a"])])
def test_a_wrong_number_of_answers(answers: object) -> None:
    class Wrong:
        def generate(self, samples, n, seeds):
            return answers

    assert all(isinstance(a, Rejected) and "mine" in a.reason for a in ask(Wrong()))


@pytest.mark.parametrize("sleeps", [True, False])
def test_a_hanging_sample_is_rejected_and_the_rest_is_kept(sleeps: bool) -> None:
    class Hangs(Numbered):
        def one(self, sample, n, seed):
            while sample.id == "5":
                if sleeps:
                    time.sleep(30)
            return super().one(sample, n, seed)

    answers = ask(Hangs(), SAMPLES[:8], time_limit=2.0)
    assert isinstance(answers[5], Rejected) and "time limit" in answers[5].reason
    assert sum(isinstance(a, Candidates) for a in answers) == 7


def test_a_time_out_of_the_generators_own_is_not_taken_for_the_limit() -> None:
    class TimesOut(Numbered):
        def one(self, sample, n, seed):
            raise TimeoutError("the time limit is over")

    (answer,) = ask(TimesOut(), SAMPLES[:1], time_limit=60.0)
    assert answer == Rejected("mine raised TimeoutError: the time limit is over")


def test_within_the_time_limit_nothing_changes() -> None:
    assert ask(Numbered(), time_limit=60.0) == ask(Numbered())


def test_protected_phrases_are_found_whole_and_in_any_case() -> None:
    texts = ["New  York and new york-based York", "c++ in 我爱北京!", "newyork", "don't Do not"]
    spans = protect(texts, ["new york", "C++", "北京", "don't", ""])
    found = [[text[a:b] for a, b in row] for text, row in zip(texts, spans, strict=True)]
    assert found == [["New  York", "new york"], ["c++", "北京"], [], ["don't"]]


def test_the_longest_phrase_wins() -> None:
    assert protect(["new york city hall"], ["new york", "new york city"]) == [((0, 13),)]
    assert protect(["new york city hall"], ["new york", "york city"]) == [((0, 13),)]
    assert protect(["new york city hall"], ["york city hall", "york city", "city"]) == [((4, 18),)]


LONE = "\ud800"


class Surrogates(Numbered):
    """Says something with a lone surrogate about sample 2: in one candidate, an operation, a reason or an error."""

    def __init__(self, where: str, distinct: bool) -> None:
        self.where, self.distinct = where, distinct

    def one(self, sample, n, seed):
        texts, operations, _ = super().one(sample, n, seed)
        if sample.id == "2":
            if self.where == "text":
                texts[0] += LONE
            elif self.where == "operation":
                operations[0] += LONE
            elif self.where == "reason":
                return Rejected(f"no {LONE}")
            else:
                raise ValueError(f"no {LONE}")
        return Candidates(texts, operations)


@pytest.mark.parametrize("distinct", [True, False])
@pytest.mark.parametrize("where", ["text", "operation", "reason", "error"])
def test_a_lone_surrogate_costs_its_own_candidate(where: str, distinct: bool) -> None:
    answers = ask(Surrogates(where, distinct))
    assert [len(a.texts) for i, a in enumerate(answers) if i != 2] == [3] * 19
    if where in ("text", "operation"):
        assert answers[2] == Candidates([f"{SAMPLES[2].text} {k}" for k in (1, 2)], ["number"] * 2)
    else:
        assert isinstance(answers[2], Rejected) and r"no \ud800" in answers[2].reason
    "".join(answers[2][0]).encode()


def test_only_lone_surrogates_are_a_rejection() -> None:
    class Broken(Numbered):
        def one(self, sample, n, seed):
            return Candidates([LONE], ["a"])

    assert ask(Broken())[0] == Rejected("mine gave a candidate with a lone surrogate, which is not a character")


@pytest.mark.parametrize("limit", [None, 60.0])
@pytest.mark.parametrize("kind", [TransientError, RequestError])
def test_an_error_that_concerns_every_sample_is_raised(kind: type[Exception], limit: float | None) -> None:
    class Down(Numbered):
        def one(self, sample, n, seed):
            raise kind("the server is down")

    with pytest.raises(kind, match="the server is down"):
        ask(Down(), time_limit=limit)


def http_error(status: int) -> urllib.error.HTTPError:
    return urllib.error.HTTPError("http://here", status, "", {}, io.BytesIO())  # type: ignore[arg-type]


class Fails(Numbered):
    """Raises `error` at sample 2, `times` times."""

    def __init__(self, error: Exception, times: int) -> None:
        self.error, self.times = error, times

    def one(self, sample, n, seed):
        if sample.id == "2" and self.times:
            self.times -= 1
            raise self.error
        return super().one(sample, n, seed)


@pytest.fixture
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    waits: list[float] = []
    monkeypatch.setattr(asking.time, "sleep", waits.append)
    return waits


OF_THE_MACHINE = [
    OSError(errno.ESTALE, "stale file handle"), OSError(errno.ENOSPC, "no space"), ConnectionResetError("reset"),
    TimeoutError(errno.ETIMEDOUT, "timed out"), MemoryError("no memory"), http_error(503), http_error(429),
]  # fmt: skip


@pytest.mark.parametrize("limit", [None, 60.0])
@pytest.mark.parametrize("error", OF_THE_MACHINE, ids=repr)
def test_what_the_machine_is_guilty_of_costs_no_row(error: Exception, limit: float | None, slept: list[float]) -> None:
    assert ask(Fails(error, len(asking.WAITS)), time_limit=limit) == ask(Numbered())
    assert len(slept) == len(asking.WAITS)
    with pytest.raises(TransientError, match=f"mine raised {type(error).__name__}.*run the same command again"):
        ask(Fails(error, len(asking.WAITS) + 1), time_limit=limit)


@pytest.mark.parametrize("error", [TimeoutError("slow"), io.UnsupportedOperation("no"), http_error(400)], ids=repr)
def test_what_only_sounds_like_the_machine_costs_its_row(error: Exception, slept: list[float]) -> None:
    answers = ask(Fails(error, -1))
    assert isinstance(answers[2], Rejected) and not slept
    assert sum(isinstance(a, Candidates) for a in answers) == 19
