"""Build epida_ray/generate/data/tagger.json.xz, the English part-of-speech tagger that nlpaug asks NLTK for.

    pip download --no-deps textblob-aptagger==0.2.0
    python scripts/build_tagger.py textblob_aptagger-0.2.0-py2.py3-none-any.whl

The wheel has the averaged perceptron's weights as a pickle of plain dictionaries; here they become JSON. Nothing but
the name `set` is resolved while it is read.
"""

from __future__ import annotations

import io
import json
import lzma
import pickle
import sys
import zipfile
from pathlib import Path
from typing import Any


class PlainUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if name == "set":
            return set
        raise pickle.UnpicklingError(f"{module}.{name} is not plain data")


def main(wheel: Path) -> None:
    data = Path(__file__).parent.parent / "epida_ray" / "generate" / "data"
    with zipfile.ZipFile(wheel) as archive:
        pickled = archive.read("textblob_aptagger/trontagger-0.1.0.pickle")
        metadata = archive.read("textblob_aptagger-0.2.0.dist-info/METADATA").decode()
    weights, tagdict, classes = PlainUnpickler(io.BytesIO(pickled), encoding="utf8").load()
    model = {"weights": weights, "tagdict": tagdict, "classes": sorted(classes)}
    plain = json.dumps(model, sort_keys=True, separators=(",", ":")).encode()
    (data / "tagger.json.xz").write_bytes(lzma.compress(plain, preset=9))
    licence = metadata[metadata.index("Copyright") : metadata.index("Description:")]
    lines = [line for line in licence.splitlines() if not line.startswith("Requires-Dist")]
    (data / "tagger_LICENSE.txt").write_text("\n".join(lines).strip() + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
