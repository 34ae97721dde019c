"""Tiny models that the tests build themselves: nothing is downloaded."""

from __future__ import annotations

from pathlib import Path

import numpy as np

VOCABULARY = [
    *(
        "i",
        "want",
        "a",
        "the",
        "today",
        "number",
        "please",
        "well",
        "apple",
        "pear",
        "plum",
        "cherry",
        "melon",
        "grape",
    ),
    *("hammer", "saw", "drill", "pliers", "wrench", "chisel", "is", "it", "not", "good", "bad", ".", ",", "!", "?"),
    *(str(i) for i in range(100)),
]


def transformer(kind: str, folder: Path, labels: tuple[str, ...] | None = None) -> Path:
    """A saved random model of this kind with a word-level fast tokeniser."""
    import torch
    import transformers
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

    special = ["<pad>", "<s>", "</s>", "<unk>"]
    vocabulary = {word: i for i, word in enumerate([*special, *VOCABULARY])}
    backend = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    backend.normalizer = normalizers.Lowercase()
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    ends = [("<s>", 1), ("</s>", 2)]
    template = "$A </s> <s>" if kind == "xlnet" else "<s> $A </s>"
    backend.post_processor = processors.TemplateProcessing(single=template, special_tokens=ends)
    names = {
        "pad_token": "<pad>",
        "bos_token": "<s>",
        "eos_token": "</s>",
        "unk_token": "<unk>",
        "mask_token": "<mask>",
    }
    side = "left" if kind == "xlnet" else "right"
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=backend, padding_side=side, model_max_length=64, cls_token="<s>", sep_token="</s>", **names
    )
    size = {"vocab_size": len(vocabulary), "pad_token_id": 0, "num_labels": len(labels or ("x", "y"))}
    wide = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
    if kind == "xlnet":
        config = transformers.XLNetConfig(d_model=32, n_layer=2, n_head=2, d_inner=64, **size)
    elif kind == "distilbert":
        config = transformers.DistilBertConfig(dim=32, n_layers=2, n_heads=2, hidden_dim=64, **size)
    elif kind == "bart":
        both = {"layers": 1, "attention_heads": 2, "ffn_dim": 64}
        sides = {f"{side}_{name}": value for side in ("encoder", "decoder") for name, value in both.items()}
        ends_at = {"bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 2, "forced_eos_token_id": 2}
        config = transformers.BartConfig(d_model=32, max_position_embeddings=70, **sides, **ends_at, **size)
    elif kind == "t5":
        config = transformers.T5Config(
            d_model=32, d_kv=16, d_ff=64, num_layers=1, num_heads=2, eos_token_id=2, decoder_start_token_id=0, **size
        )
    else:
        kinds = {"bert": transformers.BertConfig, "xlm-roberta": transformers.XLMRobertaConfig}
        kinds |= {"roberta": transformers.RobertaConfig, "deberta-v2": transformers.DebertaV2Config}
        config = kinds[kind](**size, **wide, max_position_embeddings=70)
    if labels:
        config.id2label = dict(enumerate(labels))
        config.label2id = {label: i for i, label in enumerate(labels)}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = transformers.AutoModelForSequenceClassification.from_config(config)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def pipeline():
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline

    return make_pipeline(TfidfVectorizer(token_pattern=r"\S+"), LogisticRegression(C=10))


def margin_pipeline():
    from sklearn.feature_extraction.text import HashingVectorizer
    from sklearn.linear_model import SGDClassifier
    from sklearn.pipeline import make_pipeline

    return make_pipeline(HashingVectorizer(n_features=256), SGDClassifier(loss="hinge"))


class Lengths:
    """A classifier of one's own that learns: the mean length of a class's texts."""

    def __init__(self, labels: tuple[str, ...], scale: float = 1.0) -> None:
        self.labels = labels
        self.scale = scale
        self.means = np.arange(len(labels), dtype=np.float32) * 10

    def predict_proba(self, texts):
        distance = np.abs(np.array([[len(t)] for t in texts]).reshape(-1, 1) - self.means) / self.scale
        p = np.exp(-(distance - distance.min(axis=1, keepdims=True)))
        return p / p.sum(axis=1, keepdims=True)

    def fit(self, texts, y, weights, seed):
        lengths = np.array([len(t) for t in texts])
        for i in np.unique(y):
            self.means[i] = np.average(lengths[y == i], weights=weights[y == i])

    def state(self):
        return {"means": self.means.copy()}

    def load_state(self, state):
        self.means = np.array(state["means"], np.float32)

    def save(self, directory):
        directory.mkdir(parents=True, exist_ok=True)
        np.save(directory / "means.npy", self.means)
        np.save(directory / "scale.npy", self.scale)
        (directory / "labels.txt").write_text("\n".join(self.labels))

    @classmethod
    def load(cls, directory):
        made = cls(tuple((directory / "labels.txt").read_text().split("\n")), float(np.load(directory / "scale.npy")))
        made.means = np.load(directory / "means.npy")
        return made


def even(texts):
    """A function of one's own: two classes, by whether the length is even."""
    return np.array([[0.75, 0.25] if len(t) % 2 == 0 else [0.25, 0.75] for t in texts]).reshape(-1, 2)


def wrong_shape(texts):
    return np.zeros((len(texts), 7))


def not_probabilities(texts):
    return np.ones((len(texts), 2))


class Partial:
    """A scikit-learn style estimator that learns piece by piece."""

    def __init__(self) -> None:
        from sklearn.feature_extraction.text import HashingVectorizer
        from sklearn.linear_model import SGDClassifier

        self.vectorizer = HashingVectorizer(n_features=4096)
        self.model = SGDClassifier(loss="log_loss", random_state=0)
        self.calls = 0

    def fit(self, texts, y, sample_weight=None):
        return self.partial_fit(texts, y, classes=np.unique(y), sample_weight=sample_weight)

    def partial_fit(self, texts, y, classes=None, sample_weight=None):
        self.calls += 1
        self.model.partial_fit(self.vectorizer.transform(texts), y, classes=classes, sample_weight=sample_weight)
        return self

    def predict_proba(self, texts):
        return self.model.predict_proba(self.vectorizer.transform(texts))

    @property
    def classes_(self):
        return self.model.classes_

    def get_params(self, deep=True):
        return {}

    def set_params(self, **options):
        return self
