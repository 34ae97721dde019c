"""A sentence encoder or a transformer as an ONNX graph: token ids and their mask in, class probabilities out.

ONNX Runtime computes the graph faster than torch on a CPU, above all for few texts at a time. Its last bits depend on
the batch, so it serves and exports models and does not score in runs, which promise the same bytes for the same seed.
"""

from __future__ import annotations

import contextlib
import io
import logging
import tempfile
import warnings
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from epida_ray.classify import checkpoint
from epida_ray.classify.engine import Engine
from epida_ray.core.errors import RequestError

FILE = "model.onnx"
OPSET = 17
INPUTS = ("input_ids", "attention_mask")
OUTPUT = "probabilities"
TOKEN_BUDGET = 512
_FLOAT = 1  # onnx.TensorProto.FLOAT


def installed() -> bool:
    return all(find_spec(name) is not None for name in ("onnx", "onnxruntime"))


def unsupported(classifier: Any) -> str:
    """Return why the classifier has no ONNX graph, or nothing if it has one."""
    if not hasattr(classifier, "graph"):
        return f"a {type(classifier).__name__} has no ONNX graph"
    network = classifier.encoder.network if hasattr(classifier, "encoder") else classifier.model
    if network.config.is_encoder_decoder:  # its head looks for each text's last token, which the tracer would fix
        return f"{network.config.model_type} is an encoder–decoder, which has no ONNX graph"
    return ""


def write_graph(classifier: Any, path: Path, int8: bool = False) -> None:
    """Write the classifier's graph; `int8` quantises its matrix products."""
    if reason := unsupported(classifier):
        raise RequestError(f"{reason}; export an encoder or transformer; `epida serve` serves every model")
    if not installed():
        raise RequestError("onnx and onnxruntime are not installed; pip install 'epida-ray[onnx]'")
    graph: nn.Module = classifier.graph().eval()
    example = torch.tensor([[5, 6, 7, 8], [5, 6, 7, 8]]), torch.ones((2, 4), dtype=torch.int64)
    axes = {name: {0: "batch", 1: "length"} for name in INPUTS} | {OUTPUT: {0: "batch"}}
    with warnings.catch_warnings(), torch.no_grad(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")  # the tracer remarks on every constant
        try:
            torch.onnx.export(
                graph, example, str(path), input_names=list(INPUTS), output_names=[OUTPUT], dynamic_axes=axes,
                opset_version=OPSET, dynamo=False,
            )  # fmt: skip
        except Exception as error:  # of many kinds: the tracer or the exporter does not know a part of the network
            reason = " ".join(str(error).split())[:200]
            raise RequestError(f"this network cannot be written as an ONNX graph: {reason}") from error
    if int8:
        from onnxruntime.quantization import QuantType, quantize_dynamic

        logger = logging.getLogger()
        before, whole = logger.level, path.with_suffix(".whole.onnx")
        path.replace(whole)
        logger.setLevel(logging.ERROR)
        try:
            quantize_dynamic(
                whole, path, weight_type=QuantType.QInt8, per_channel=True, extra_options={"DefaultTensorType": _FLOAT}
            )
        finally:
            logger.setLevel(before)
            whole.unlink()


class OnnxScorer:
    """Probabilities of texts from a graph; the tokeniser is the classifier's."""

    def __init__(self, classifier: Any, path: Path, threads: int = 1) -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        # One thread for each pass and several passes at once: threads that share a pass wait for each other at every
        # step, which is slow where others use the CPUs too.
        options.intra_op_num_threads, options.inter_op_num_threads = 1, 1
        options.log_severity_level = 3
        self._session = onnxruntime.InferenceSession(path.read_bytes(), options, providers=["CPUExecutionProvider"])
        self._classes, self._threads = len(classifier.labels), threads
        self._pool = ThreadPoolExecutor(threads)
        self._pad, self._left = classifier.tokenizer.pad_token_id, classifier.tokenizer.padding_side == "left"
        self._engine = Engine(classifier.tokenize, self._forward, TOKEN_BUDGET)

    def predict_proba(self, texts: Sequence[str]) -> np.ndarray:
        """Return float32 [N, C]."""
        by_length = sorted(range(len(texts)), key=lambda i: len(texts[i]))
        shares = [share for i in range(self._threads) if (share := by_length[i :: self._threads])]
        out = np.empty((len(texts), self._classes), np.float32)

        def work(share: list[int]) -> None:
            out[share] = self._engine.run([texts[i] for i in share], self._classes)

        if len(shares) < 2:
            for share in shares:
                work(share)
        else:
            list(self._pool.map(work, shares))
        return out

    def _forward(self, tokens: list[Any]) -> torch.Tensor:
        inputs = {name: value.numpy() for name, value in checkpoint.padded(tokens, self._pad, self._left).items()}
        return torch.from_numpy(self._session.run([OUTPUT], inputs)[0])


def scorer(classifier: Any, threads: int, int8: bool = False) -> OnnxScorer:
    """Return the classifier's probabilities through ONNX Runtime."""
    with tempfile.TemporaryDirectory(prefix="epida-onnx-") as folder:
        path = Path(folder) / FILE
        write_graph(classifier, path, int8)
        return OnnxScorer(classifier, path, threads)
