import shutil

import numpy as np
import pytest
import torch

from epida_ray.classify import create
from epida_ray.classify.examples import Kept, make_examples
from epida_ray.classify.learning import make_learner
from epida_ray.classify.training import TrainingOptions
from epida_ray.classify.vda import Virtual, inconsistency
from epida_ray.core.errors import RequestError
from tests.classify import tiny
from tests.tiny_models import tiny as tiny_model

LABELS = ("animal", "thing")
TEXTS = [f"look the {word} is big" for word in ("dog", "house", "cat", "car")] * 3
Y = np.array([0, 1] * 6)
EXAMPLES = make_examples(TEXTS, Y, 2, Kept([[f"{text} good"] for text in TEXTS]))


@pytest.fixture(scope="module")
def knowing_model(masked_model: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A masked language model that expects each word where it stands; an untrained one takes all words for equal."""
    import transformers

    folder = tmp_path_factory.mktemp("knowing")
    network = transformers.BertForMaskedLM.from_pretrained(masked_model)
    with torch.no_grad():
        random = torch.Generator().manual_seed(0)
        words = network.get_input_embeddings().weight
        words.copy_(torch.randn(words.shape, generator=random))
        network.cls.predictions.transform.dense.weight.copy_(torch.eye(32))
    network.save_pretrained(folder)
    transformers.AutoTokenizer.from_pretrained(masked_model).save_pretrained(folder)
    return str(folder)


def classifier_of(folder: str, **arguments: object):
    return create(f"transformer:{folder}", LABELS, **arguments)


def options(model: str, **more: object) -> TrainingOptions:
    return TrainingOptions(vda=model, seed=3, batch_size=4, learning_rate=3e-3, **more)


def test_an_encoder_decoder_is_refused_before_the_first_step(marian_model: str) -> None:
    classifier = classifier_of(marian_model)
    for chosen in ({"vda": marian_model}, {"mixup": 0.2, "mixup_layer": "input"}):
        with pytest.raises(RequestError, match="an encoder–decoder takes tokens only") as caught:
            make_learner(classifier, 4, TrainingOptions(seed=3, **chosen), 1)
        assert "\n" not in str(caught.value)
    make_learner(classifier, len(TEXTS), TrainingOptions(seed=3, mixup=0.2), 2).train(EXAMPLES, 2)


@pytest.mark.parametrize("multi_task", [False, True])
def test_it_learns_and_is_exact_on_resume(knowing_model: str, multi_task: bool) -> None:
    def learner(vda: str | None = knowing_model):
        made = options(knowing_model, multi_task=multi_task).model_copy(update={"vda": vda})
        return make_learner(classifier_of(knowing_model), len(TEXTS), made, 24)

    whole, first, second, without = learner(), learner(), learner(), learner(None)
    whole.train(EXAMPLES, 24)
    first.train(EXAMPLES, 10)
    second.load_state(first.state())
    second.train(EXAMPLES, 14)
    without.train(EXAMPLES, 24)
    for key, value in whole.state().items():
        np.testing.assert_array_equal(second.state()[key], value, err_msg=key)
    assert (whole.classifier.predict_proba(TEXTS).argmax(axis=1) == Y).all()
    assert any((without.state()[key] != value).any() for key, value in whole.state().items())


def test_words_become_mixtures_and_special_tokens_stay(masked_model: str) -> None:
    classifier = classifier_of(masked_model, dropout=0.0)
    seen = []
    network = classifier.module()
    network.base_model.register_forward_pre_hook(lambda _m, _a, inputs: seen.append(inputs), with_kwargs=True)
    virtual = Virtual(classifier, masked_model, torch.device("cpu"))
    inputs = classifier.table(["the dog is big", "cat"]).batch(np.arange(2))
    plain = network(**inputs).logits
    virtual.draw()
    logits = network(**inputs).logits
    own, other = seen[-1]["inputs_embeds"].chunk(2)
    torch.testing.assert_close(logits[:2], plain)
    changed = (own != other).any(dim=2)
    assert changed.tolist() == [[False, True, True, True, True, False], [False, True, False, False, False, False]]
    table = network.get_input_embeddings().weight
    assert (other.amin(dim=(0, 1)) >= table.amin(dim=0) - 1e-6).all()  # a mixture lies among what it mixes
    assert (other.amax(dim=(0, 1)) <= table.amax(dim=0) + 1e-6).all()
    y = torch.tensor([0, 1])
    expected = torch.nn.functional.cross_entropy(plain, y, reduction="none") + inconsistency(*logits.chunk(2))
    torch.testing.assert_close(virtual.losses(logits, y), expected)
    torch.testing.assert_close(network(**inputs).logits, plain)  # and no more virtual texts after that


def test_inconsistency_is_the_symmetric_divergence() -> None:
    p, q = torch.tensor([[0.9, 0.1]]), torch.tensor([[0.4, 0.6]])
    both = (p * (p / q).log()).sum() + (q * (q / p).log()).sum()
    torch.testing.assert_close(inconsistency(p.log(), q.log()), (both / 2).reshape(1))
    assert inconsistency(p.log(), p.log()).item() == 0


def test_what_does_not_fit_is_refused_on_one_line(masked_model: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    import transformers

    size = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    short = tmp_path_factory.mktemp("short")
    tiny_model(short, "BertForMaskedLM", "BertConfig", size | {"max_position_embeddings": 16})
    headless = str(shutil.copytree(masked_model, tmp_path_factory.mktemp("headless"), dirs_exist_ok=True))
    transformers.BertModel.from_pretrained(masked_model).save_pretrained(headless)
    other = tiny.transformer("bert", tmp_path_factory.mktemp("other"), LABELS)
    for classifier, model, message in (
        (create("cnn", LABELS, vectors="hashed:20"), masked_model, "--vda works in the embeddings of a transformer"),
        (create("linear", LABELS), masked_model, "which linear is not"),
        (classifier_of(str(other)), masked_model, "has another vocabulary than the classifier"),
        (classifier_of(masked_model), str(short), "reads 16 tokens, but the classifier 64; add --classifier-arg"),
        (classifier_of(masked_model), headless, "has no head of a masked language model"),
        (classifier_of(masked_model), "no/such/model", "no transformer 'no/such/model'"),
    ):
        with pytest.raises(RequestError, match=message) as caught:
            make_learner(classifier, 4, options(model), 1)
        assert "\n" not in str(caught.value)
