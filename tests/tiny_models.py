"""Tiny models, built and saved here, for the generators whose real weights are large or far away."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest

# fmt: off
WORDS = [
    "the", "a", "an", "of", "to", "in", "and", "is", "was", "it", "what", "how", "who", "when", "where", "big", "small",
    "dog", "cat", "house", "car", "film", "movie", "good", "bad", "great", "new", "old", "city", "train", "plane",
    "best", "way", "travel", "from", "by", "people", "said", "look", "see", "make", "think", "never", "always",
    "red", "blue", "water", "fire", "book", "read", "write", "night", "day", "home", "work", "play", "game", "music",
    "song", "world",
]
# fmt: on


def tiny(folder: Path, model: str, config: str, size: dict[str, int], end: str | None = None) -> str:
    """A random model of these classes of transformers, saved with a word-piece tokeniser of WORDS."""
    import torch
    import transformers

    letters = [chr(c) for c in range(ord("a"), ord("z") + 1)]
    pieces = [*letters, *(f"##{c}" for c in letters), *"?!.,'", *WORDS]
    vocabulary = folder / "vocab.txt"
    vocabulary.write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *dict.fromkeys(pieces)]))
    tokenizer = transformers.BertTokenizerFast(str(vocabulary), do_lower_case=True, model_max_length=64)
    if end is not None:
        tokenizer.eos_token = end
    torch.manual_seed(0)
    made = getattr(transformers, config)(vocab_size=len(tokenizer), **size)
    getattr(transformers, model)(made).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


@pytest.fixture(scope="session")
def masked_model(tmp_path_factory: pytest.TempPathFactory) -> str:
    size = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    size |= {"max_position_embeddings": 64}
    return tiny(tmp_path_factory.mktemp("tiny-bert"), "BertForMaskedLM", "BertConfig", size)


@pytest.fixture(scope="session")
def causal_model(tmp_path_factory: pytest.TempPathFactory) -> str:
    size = {"n_positions": 512, "n_embd": 32, "n_layer": 1, "n_head": 2, "eos_token_id": 3, "bos_token_id": 2}
    folder = tiny(tmp_path_factory.mktemp("tiny-gpt2"), "GPT2LMHeadModel", "GPT2Config", size, end="[SEP]")
    import torch
    import transformers

    network = transformers.GPT2LMHeadModel.from_pretrained(folder)
    with torch.no_grad():  # so that answers end, after some ten words
        network.transformer.ln_f.bias.fill_(1.0)
        network.transformer.wte.weight[3] = np.log(len(network.transformer.wte.weight) / 10) / 32
    network.save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def marian_model(tmp_path_factory: pytest.TempPathFactory) -> str:
    size = {"d_model": 16, "max_position_embeddings": 256}
    size |= {f"{side}_layers": 1 for side in ("encoder", "decoder")}
    size |= {f"{side}_attention_heads": 2 for side in ("encoder", "decoder")}
    size |= {f"{side}_ffn_dim": 16 for side in ("encoder", "decoder")}
    size |= {"pad_token_id": 0, "bos_token_id": 2, "eos_token_id": 3}
    size |= {"decoder_start_token_id": 2, "forced_eos_token_id": 3}
    folder = tmp_path_factory.mktemp("tiny-translator")
    return tiny(folder, "BartForConditionalGeneration", "BartConfig", size)


PLACES = {"Paris", "London"}
PEOPLE = {"Anna", "Tom"}
SENTENCES = ["Anna lives in Paris", "Tom went to London", "we met Anna in London", "Tom likes Paris"]


@pytest.fixture(scope="session")
def ner_tagger(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A flair model that knows two places and two people."""

    def label(sentence) -> None:
        for i, token in enumerate(sentence):
            if token.text in PLACES | PEOPLE:
                sentence[i : i + 1].add_label("ner", "LOC" if token.text in PLACES else "PER")

    return flair_model("ner", label, tmp_path_factory.mktemp("ner"))


@pytest.fixture(scope="session")
def pos_tagger(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A flair model that takes capitalised words for names and the others for nouns."""

    def label(sentence) -> None:
        for token in sentence:
            token.add_label("pos", "PROPN" if token.text[0].isupper() else "NOUN")

    return flair_model("pos", label, tmp_path_factory.mktemp("pos"))


def flair_model(kind: str, label, folder: Path) -> str:
    if importlib.util.find_spec("flair") is None:
        pytest.skip("flair is not installed")
    import flair
    import torch
    from flair.data import Corpus, Sentence
    from flair.datasets import FlairDatapointDataset
    from flair.embeddings import OneHotEmbeddings
    from flair.models import SequenceTagger
    from flair.trainers import ModelTrainer

    flair.device = torch.device("cpu")
    flair.set_seed(1)
    sentences = [Sentence(text) for text in SENTENCES * 5]
    for sentence in sentences:
        label(sentence)
    corpus = Corpus(*(FlairDatapointDataset(sentences) for _ in range(3)))
    embeddings = OneHotEmbeddings.from_corpus(corpus, field="text", min_freq=1, embedding_length=16)
    labels = corpus.make_label_dictionary(kind, add_unk=False)
    tagger = SequenceTagger(embeddings, labels, kind, hidden_size=16, use_crf=False, use_rnn=False)
    ModelTrainer(tagger, corpus).train(folder, learning_rate=0.5, max_epochs=25, mini_batch_size=4)
    return str(folder / "final-model.pt")
