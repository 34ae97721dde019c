"""`epida serve` against a plain FastAPI server that calls transformers, on the same weights.

Both are started in turn as processes of their own and asked by `wrk` (Debian: apt-get install wrk), one text per
request, with 1 and with 32 clients. Every request has another text, so that no cache helps. The plain server is what
one writes first: tokenizer, AutoModel, mean pooling and the head, in a FastAPI endpoint on uvicorn. For the CNN, which
transformers does not have, the plain server calls our classifier. The last line is the ratio of texts per second of
the encoder with 32 clients. Needs `epida-ray[serve,onnx,minilm]`.

    python benchmarks/serve.py [SECONDS]
"""

from __future__ import annotations

import argparse
import json
import re
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import httpx
import numpy as np

LABELS = ("ask", "tell", "buy", "return", "other", "spam")
WORDS = ("order", "parcel", "refund", "where", "is", "my", "account", "password", "please", "broken", "late", "invoice")
CLIENTS = (1, 32)

PLAIN = """
import json, sys
import numpy as np, torch, uvicorn
from fastapi import FastAPI
from pydantic import BaseModel
folder, kind, port = sys.argv[1:]
app = FastAPI()
class Request(BaseModel):
    texts: list[str]
if kind == "encoder":
    from safetensors.numpy import load_file
    from transformers import AutoModel, AutoTokenizer
    tokenizer, network = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder).eval()
    head, labels = load_file(folder + "/head.safetensors"), json.load(open(folder + "/epida.json"))["labels"]
    weight, bias = (torch.from_numpy(head[k]) for k in ("weight", "bias"))
    def probabilities(texts):
        inputs = tokenizer(texts, padding=True, truncation=True, max_length=256, return_tensors="pt")
        with torch.inference_mode():
            hidden, mask = network(**inputs).last_hidden_state, inputs["attention_mask"].unsqueeze(-1)
            x = torch.nn.functional.normalize((hidden * mask).sum(1) / mask.sum(1), dim=1)
            return torch.softmax(x @ weight.T + bias, dim=1).numpy()
else:
    from epida_ray.classify import load
    model = load(folder)
    from threading import Lock
    labels, lock = model.labels, Lock()
    def probabilities(texts):
        with lock:
            return model.predict_proba(texts)
@app.post("/predict")
def predict(request: Request):
    p = probabilities(request.texts)
    return {"predictions": [{"label": labels[i], "confidence": float(r[i])} for r, i in zip(p, p.argmax(1))]}
uvicorn.run(app, host="127.0.0.1", port=int(port), log_level="error")
"""
LUA = """
local texts = {}
for line in io.lines("%s") do texts[#texts + 1] = line end
local at = 0
request = function()
  at = at + 1
  local body = '{"texts": ["' .. texts[at %% #texts + 1] .. ' ' .. at .. '"]}'
  return wrk.format("POST", nil, {["Content-Type"] = "application/json"}, body)
end
done = function(summary, latency)
  local e = summary.errors
  io.write(string.format("RESULT %%f %%f %%f %%d\\n", latency:percentile(50) / 1000, latency:percentile(99) / 1000,
    summary.requests / summary.duration * 1e6, e.connect + e.read + e.write + e.status + e.timeout))
end
"""


def models(folder: Path) -> dict[str, Path]:
    from epida_ray.classify.cnn import CNN
    from epida_ray.classify.encoder import Encoder

    rng = np.random.default_rng(0)
    texts = [" ".join(rng.choice(WORDS, 8)) for _ in range(60)]
    encoder = Encoder(None, LABELS, cache=False)
    encoder.fit(texts, np.arange(60) % len(LABELS), np.ones(60), 0)
    made = {"cnn": CNN(LABELS), "encoder": encoder}
    for name, model in made.items():
        model.save(folder / name)
    return {name: folder / name for name in made}


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def measured(command: list[str], port: int, lua: Path, seconds: int) -> tuple[list[tuple[float, ...]], dict]:
    """Start a server, ask it with each number of clients, and end it."""
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    url = f"http://127.0.0.1:{port}/predict"
    try:
        deadline = time.monotonic() + 400
        while True:
            try:
                answer = httpx.post(url, json={"texts": ["where is my parcel"]}, timeout=30)
                if answer.status_code == 200:
                    break
            except httpx.HTTPError:
                pass
            if process.poll() is not None or time.monotonic() > deadline:
                raise SystemExit(f"did not start: {' '.join(command[:4])}")
            time.sleep(0.3)
        results = []
        for clients in CLIENTS:
            for length in (max(2, seconds // 4), seconds):  # the first is to warm up
                done = subprocess.run(
                    ["wrk", "-t1", f"-c{clients}", f"-d{length}s", "--timeout", "30s", "-s", str(lua), url],
                    capture_output=True, text=True, check=True,
                )  # fmt: skip
            found = re.search(r"RESULT (\S+) (\S+) (\S+) (\d+)", done.stdout)
            assert found is not None, done.stdout
            results.append(tuple(map(float, found.groups())))
        return results, answer.json()["predictions"][0]
    finally:
        process.terminate()
        process.wait(120)


def main() -> int:
    parser = argparse.ArgumentParser(description="epida serve against a plain FastAPI server, on the same weights.")
    parser.add_argument("seconds", type=int, nargs="?", default=15, help="how long each of them is asked")
    seconds = parser.parse_args().seconds
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        rng = np.random.default_rng(1)
        (root / "texts").write_text("\n".join(" ".join(rng.choice(WORDS, rng.integers(4, 14))) for _ in range(2000)))
        (root / "post.lua").write_text(LUA % (root / "texts"))
        (root / "plain.py").write_text(PLAIN)
        ratio = 0.0
        for name, model in models(root).items():
            rows = {}
            for side in ("plain", "epida"):
                port = free_port()
                ours = ["-m", "epida_ray.cli", "serve", str(model), "--port", str(port)]
                plain = [str(root / "plain.py"), str(model), name, str(port)]
                command = [sys.executable, *(ours if side == "epida" else plain)]
                rows[side], prediction = measured(command, port, root / "post.lua", seconds)
                for clients, (p50, p99, rate, errors) in zip(CLIENTS, rows[side], strict=True):
                    print(
                        f"{name:8} {side:6} {clients:2} clients: p50 {p50:.1f} ms, p99 {p99:.1f} ms, "
                        f"{rate:.0f} texts/s, {errors:.0f} errors; {json.dumps(prediction)[:60]}",
                        flush=True,
                    )
            ratio = rows["epida"][-1][2] / rows["plain"][-1][2]
        print(f"ratio {ratio:.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
