"""Classify texts with the model in this folder: python predict.py "a text" "another text".

Needs onnxruntime, tokenizers and numpy, and nothing else: copy this file and change it as you like.
"""

import json
import sys
from pathlib import Path

import numpy as np
import onnxruntime
from tokenizers import Tokenizer


class Model:
    def __init__(self, folder: Path) -> None:
        self.config = json.loads((folder / "labels.json").read_text())
        self.labels = self.config["labels"]
        self.tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self.tokenizer.enable_truncation(self.config["max_length"])
        self.session = onnxruntime.InferenceSession(folder / "model.onnx", providers=["CPUExecutionProvider"])

    def predict_proba(self, texts: list[str]) -> np.ndarray:
        """Return the probabilities of all classes, one row for each text."""
        ready = [self.config["prompt"] + (text.lower() if self.config["lower"] else text) for text in texts]
        tokens = [one.ids for one in self.tokenizer.encode_batch(ready)]
        longest = max(map(len, tokens))
        ids = np.full((len(tokens), longest), self.config["pad"], np.int64)
        mask = np.zeros((len(tokens), longest), np.int64)
        for i, row in enumerate(tokens):
            where = slice(longest - len(row), None) if self.config["pad_left"] else slice(0, len(row))
            ids[i, where], mask[i, where] = row, 1
        return self.session.run(["probabilities"], {"input_ids": ids, "attention_mask": mask})[0]


if __name__ == "__main__":
    model = Model(Path(__file__).parent)
    texts = sys.argv[1:] or sys.exit(__doc__)
    for text, p in zip(texts, model.predict_proba(texts), strict=True):
        print(json.dumps({"text": text, "label": model.labels[int(p.argmax())], "confidence": float(p.max())}))
