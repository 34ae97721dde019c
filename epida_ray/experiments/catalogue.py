"""The experiments of `epida reproduce`: the paper's with its numbers, and our own."""

from __future__ import annotations

from dataclasses import replace

from epida_ray.core.errors import RequestError
from epida_ray.experiments import arms, paper
from epida_ray.experiments.experiment import Experiment

SAME_NUMBERS = (
    "The paper's normalization, combination and replacement studies share .740 and .576, row 8 of its ablation "
    "(pre-trained, one-time); these trials run that way."
)
FLIPS = "flips: share of the kept rewrites that their judge takes for another class, a mean over the rounds."
MIRROR = (
    "mirror: median correlation of s_div and s_qua within a sample. extreme: share of the kept rewrites with s_div "
    "within .05 of 0 or 1. Both are means over the rounds."
)
TREC = (
    "The paper reports the CNN without augmentation on TREC 1% as .722 macro-F1 in its tables and as .419 accuracy in "
    "its saturation figure; these contradict each other."
)
BINARY = (
    "For binary tasks such as Irony the paper's text says F1, its ablation macro-F1, of the same numbers; here it is "
    "always macro-F1."
)

EXPERIMENTS: dict[str, Experiment] = {
    e.name: e
    for e in (
        Experiment(
            "few-labels",
            "Sentence encoders, unlabelled texts and teachers",
            arms.few_labels,
            baselines=("cnn", "encoder"),
            notes=(f"Unlabelled texts are {arms.UNLABELLED:,} other texts of the training split.",),
        ),
        Experiment(
            "views",
            "What rewrites add to encoders, unlabelled texts and teachers",
            arms.views,
            baselines=("cnn", "encoder"),
            notes=(f"Unlabelled texts are {arms.UNLABELLED:,} other texts of the training split.",),
        ),
        Experiment(
            "typos",
            "Training for misspelt texts",
            arms.typos,
            baselines=("none", "random spelling", "encoder, fully tuned"),
            notes=(
                "The noisy test texts have three words in ten misspelt.",
                "fully retuned, with --full, is `epida train --robust`: each round tunes the encoder on the misspelt "
                "texts too. fully tuned does so once, on the originals.",
            ),
            extra=("noisy_macro_f1",),
        ),
        Experiment(
            "map",
            "More of the methods that the paper compares with",
            arms.methods_map,
            notes=(
                "error: share of the kept rewrites that a classifier trained on the full training set takes for "
                "another class. distance: how far its hidden states of a rewrite are from those of the original.",
                "author, with --full, writes once, before the first round.",
                "strong EDA changes three words in ten in place of one, and curriculum does so in the last round: in "
                "the first it changes a fifth as many.",
            ),
            extra=("error", "distance"),
            measure=("error-distance",),
        ),
        Experiment(
            "author",
            "New texts of a class by a language model, few rows",
            arms.author,
            notes=(
                "Four texts are made of each row, once, after pre-training, and two are kept.",
                "error: share of the kept texts that a classifier trained on the full training set takes for another "
                "class.",
            ),
            extra=("error", "kept"),
            measure=("error-distance",),
        ),
        Experiment(
            "generality",
            "Different generators and classifiers, online",
            arms.generality,
            paper.GENERALITY,
            (
                TREC,
                BINARY,
                "AG News 60 and 120 are the paper's 0.05% and 0.1%.",
                "SST-2, SUBJ and CR are not in the paper.",
                MIRROR,
            ),
            notes=(FLIPS,),
            extra=("flips", "mirror", "extreme"),
        ),
        Experiment(
            "sota",
            "Existing augmentation methods, one round",
            arms.sota,
            paper.SOTA,
            (
                "The paper translates back through French. The guided language model has its number of Data Boost.",
                BINARY,
            ),
            paper_of="bert",
            extra=("ppl",),
            measure=("ppl",),
        ),
        Experiment(
            "ablation",
            "The nine rows of the ablation",
            lambda _options: (arms.ablation_rows(), arms.MAIN),
            paper.ABLATION,
            (TREC, BINARY),
        ),
        Experiment(
            "normalization",
            "With and without normalization",
            arms.study(
                replace(arms.ONE_TIME, name="normalized"), replace(arms.ONE_TIME, name="raw scores", normalize=False)
            ),
            paper.NORMALIZATION,
            (SAME_NUMBERS,),
        ),
        Experiment(
            "combine",
            "Adding and multiplying the two scores",
            arms.study(replace(arms.ONE_TIME, name="add"), replace(arms.ONE_TIME, name="multiply", combine="multiply")),
            paper.COMBINE,
            (SAME_NUMBERS,),
        ),
        Experiment(
            "alpha",
            "Weighted addition",
            arms.alpha,
            paper.ALPHA,
            ("The paper shows a curve; its text states only the numbers given here.",),
        ),
        Experiment("k", "The amplification factor K", arms.k, paper.K),
        Experiment(
            "loss",
            "The loss: L_o, L_g and their sum",
            arms.study(
                replace(arms.ONE_TIME, name="L_g", loss="augmented"), replace(arms.ONE_TIME, name="L = L_o + L_g")
            ),
            paper.LOSS,
            ("The paper's numbers for L_g are row 2 of its ablation: DA without REM, CEM and pre-training.",),
            ("`none` is L_o.",),
        ),
        Experiment(
            "replacement",
            "Perplexity instead of REM, cosine similarity instead of CEM",
            arms.study(
                replace(arms.ONE_TIME, name="REM+CEM"),
                replace(arms.ONE_TIME, name="PPL+CEM", select="ppl+cem"),
                replace(arms.ONE_TIME, name="REM+cosine", select="rem+cosine"),
                replace(arms.ONE_TIME, name="PPL+cosine", select="ppl+cosine"),
            ),
            paper.REPLACEMENT,
            (SAME_NUMBERS,),
        ),
        Experiment(
            "error-distance",
            "Error rate and distance of the kept rewrites",
            arms.error_distance,
            notes=(
                "error: share of the kept rewrites that a classifier trained on the full training set takes for "
                "another class.",
                "distance: root mean square difference between that classifier's hidden states of a rewrite and of its "
                "original, over the other rewrites.",
            ),
            paper_notes=(
                "error in the paper: EDA 3.05%, REM only 6.75%, CEM only 0.64%, EPiDA 1.53%.",
                "distance in the paper, in its own unit: EDA 0.54, REM only 1.21, CEM only 0.25, EPiDA 0.78.",
            ),
            extra=("error", "distance"),
            plotted="error",
            measure=("error-distance",),
        ),
        Experiment(
            "speed",
            "Kept rewrites per second",
            arms.speed,
            paper_notes=("The paper, on one RTX 3090: EDA 188.4, EDA + EPiDA 43.8, CWE 30.7, CWE + EPiDA 10.1.",),
            notes=("A generator alone makes m rewrites per text and needs no judge.",),
            extra=("kept_per_second",),
            plotted="kept_per_second",
            measure=("speed",),
        ),
        Experiment(
            "saturation",
            "Accuracy over the share of the data that is used",
            arms.saturation,
            paper.SATURATION,
            (TREC,),
            metric="accuracy",
            lines=True,
        ),
        Experiment(
            "sst",
            "SST-5 10% with its own dev split",
            arms.sst,
            paper.SST,
            ("The paper's number beside random substructure is that of SUB².",),
            paper_of="xlm-r",
            metric="accuracy",
            use_dev_split=True,
        ),
        Experiment(
            "vda",
            "All of AG News and MR",
            arms.vda,
            paper.VDA,
            ("The paper uses 120,000 rows of AG News; VDA has .945 there and .878 on MR.",),
            ("100% is the whole training file in the data directory.",),
            paper_of="bert",
            metric="accuracy",
        ),
        Experiment(
            "formula",
            "REM and CEM as printed and as in the authors' code, with and without the original in the pool",
            arms.formula,
            paper_notes=("Not in the paper.", MIRROR),
            notes=(
                "judged by others: the judge of a sample is a classifier that was pre-trained on the half of the "
                "samples without it.",
                FLIPS,
            ),
            extra=("flips", "mirror", "extreme"),
        ),
    )
}


def find(name: str) -> Experiment:
    """Return the experiment of this name; raise RequestError when there is none."""
    if name not in EXPERIMENTS:
        raise RequestError(f"there is no experiment {name!r}; choose one of {', '.join(EXPERIMENTS)}")
    return EXPERIMENTS[name]
