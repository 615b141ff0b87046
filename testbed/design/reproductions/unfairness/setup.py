"""Jobs of the table, and the length of their simulations.

| setting | value | source |
|---|---|---|
| speed-ups, which jobs are compatible | four rows | the authors' slides |
| periods, communication fractions, weights | integers, two decimals | calibrated to these rows; other values fit too |
| iterations | 1,500 with 300 of warm-up; 5,000 as a check, because phases of unequal periods drift | chosen here |
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Scale:
    """Iterations of a run, of the longer run that checks its mean, and of the warm-up, which the mean omits."""

    iteration_count: int
    check_iteration_count: int
    warm_up_iteration_count: int = 300


PAPER = Scale(1500, 5000)
QUICK = Scale(1300, 1600)
"""Small scale that only tests that everything runs."""


@dataclass(frozen=True, slots=True)
class JobGroup:
    """Jobs on one link: models, calibrated parameters, and the published speed-ups."""

    models: tuple[str, ...]
    periods_ms: tuple[float, ...]
    burst_fractions: tuple[float, ...]
    weights: tuple[float, ...]
    published_speed_ups: tuple[float, ...]
    is_compatible: bool

    @property
    def name(self) -> str:
        """Models joined by " + "."""
        return " + ".join(self.models)


JOB_GROUPS = (
    JobGroup(("VGG11", "VGG11"), (578, 462), (0.48, 0.70), (1.65, 1), (1.05, 0.86), is_compatible=False),
    JobGroup(("DLRM", "DLRM"), (183, 183), (0.29, 0.29), (1.5, 1), (1.30, 1.28), is_compatible=True),
    JobGroup(("BERT", "VGG19"), (155, 260), (0.65, 0.60), (2.05, 1), (1.17, 0.94), is_compatible=False),
    JobGroup(
        ("VGG19", "VGG16", "ResNet50"),
        (353, 389, 323),
        (0.66, 0.22, 0.24),
        (1.55, 1.15, 1),
        (1.18, 1.18, 1.01),
        is_compatible=True,
    ),
)
