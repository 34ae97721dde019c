"""The lines that a finished run is summed up in."""

from epida_ray.method.results import round_summary


def test_rounds_that_did_not_help_are_said_to_have_not() -> None:
    metrics = [{"round": r, "dev_macro_f1": f1, "loss_augmented": r * 0.1} for r, f1 in enumerate((0.7, 0.6, 0.5))]
    assert round_summary(metrics, 0, 40) == (
        "best round 0 of 2: dev macro-F1 0.7000, without rewrites; no round with them scored above 0.6000"
    )
