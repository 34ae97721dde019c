"""The numbers of the paper, by method and setting."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from epida_ray.experiments.options import Setting

Numbers = Mapping[tuple[str, Setting], float]

STUDIES: tuple[Setting, ...] = (("trec", "1%"), ("irony", "1%"))
"""Where the paper's smaller studies were made."""
PERCENTS = (1, 5, 10, 20, 30, 40, 50, 60, 70, 80, 90, 100)
"""Shares of TREC in the paper's saturation figure."""


def _numbers(settings: Sequence[Setting], rows: Mapping[str, Sequence[float]]) -> Numbers:
    return {
        (name, setting): value for name, values in rows.items() for setting, value in zip(settings, values, strict=True)
    }


GENERALITY = _numbers(
    (("trec", "1%"), ("trec", "10%"), ("agnews", "60"), ("agnews", "120"), ("sentiment", "1%"), ("sentiment", "10%"),
     ("irony", "1%"), ("irony", "10%")),
    {
        "none": (0.722, 0.806, 0.745, 0.826, 0.446, 0.584, 0.534, 0.616),
        "EPiDA with EDA": (0.745, 0.814, 0.806, 0.829, 0.520, 0.598, 0.579, 0.621),
        "EPiDA with cwe": (0.737, 0.817, 0.806, 0.826, 0.524, 0.598, 0.578, 0.623),
        "EPiDA with textattack": (0.723, 0.838, 0.819, 0.829, 0.527, 0.600, 0.568, 0.631),
    },
)  # fmt: skip
SOTA = _numbers(
    (("irony", "10%"), ("sentiment", "10%")),
    {
        "random EDA": (0.530, 0.560),
        "random cwe": (0.518, 0.610),
        "random back-translation": (0.520, 0.617),
        "random guided language-model": (0.591, 0.591),
        "REM only": (0.624, 0.619),
        "CEM only": (0.629, 0.629),
        "REM+CEM": (0.651, 0.639),
    },
)
ABLATION = _numbers(
    STUDIES,
    {
        "1: none": (0.722, 0.534),
        "2: DA": (0.736, 0.474),
        "3: DA, online": (0.723, 0.550),
        "4: REM, pre-trained": (0.729, 0.557),
        "5: CEM, pre-trained": (0.723, 0.559),
        "6: REM+CEM": (0.734, 0.548),
        "7: REM+CEM, online": (0.739, 0.575),
        "8: REM+CEM, pre-trained": (0.740, 0.576),
        "9: REM+CEM, online, pre-trained": (0.745, 0.579),
    },
)
NORMALIZATION = _numbers(STUDIES, {"normalized": (0.740, 0.576), "raw scores": (0.732, 0.568)})
COMBINE = _numbers(STUDIES, {"add": (0.740, 0.576), "multiply": (0.725, 0.572)})
ALPHA: Numbers = {
    ("α = 0.5", ("trec", "1%")): 0.740,
    ("α = 0.5", ("irony", "1%")): 0.576,
    ("α = 0.4", ("irony", "1%")): 0.579,
}
K = _numbers(
    (("irony", "1%"),),
    {"K = 2": (0.573,), "K = 3": (0.577,), "K = 5": (0.576,), "K = 7": (0.574,), "K = 10": (0.575,)},
)
LOSS = _numbers(STUDIES, {"none": (0.722, 0.534), "L_g": (0.736, 0.474), "L = L_o + L_g": (0.740, 0.576)})
REPLACEMENT = _numbers(
    STUDIES,
    {
        "REM+CEM": (0.740, 0.576),
        "PPL+CEM": (0.731, 0.567),
        "REM+cosine": (0.736, 0.566),
        "PPL+cosine": (0.730, 0.562),
    },
)
SATURATION = _numbers(
    tuple(("trec", f"{p}%") for p in PERCENTS),
    {
        "none": (0.4192, 0.6008, 0.7056, 0.7304, 0.7984, 0.8236, 0.8392, 0.8292, 0.8464, 0.8596, 0.8636, 0.8804),
        "random EDA": (0.5912, 0.8192, 0.8464, 0.8824, 0.8868, 0.8872, 0.898, 0.8856, 0.8988, 0.9092, 0.9008, 0.8916),
        "EPiDA": (0.7172, 0.830, 0.852, 0.878, 0.916, 0.914, 0.914, 0.922, 0.932, 0.926, 0.934, 0.938),
    },
)
SST = _numbers(
    (("sst1", "10%"),),
    {
        "none": (0.254,),
        "random EDA": (0.406,),
        "random cwe": (0.449,),
        "EPiDA with EDA": (0.435,),
        "EPiDA with cwe": (0.459,),
        "random substructure": (0.458,),
    },
)
VDA = _numbers((("agnews", "100%"), ("mr", "100%")), {"none": (0.944, 0.868), "EPiDA with EDA": (0.949, 0.879)})
