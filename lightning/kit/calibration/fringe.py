"""The interference fringe: transmitted light against the setting of a modulator, and its fit to a sweep.

A Mach-Zehnder intensity modulator passes the share sin^2(phi) of the light between its null and its peak. phi grows
with the setting, which is a converter word or a bias voltage. It is a straight line for an ideal driver, and bent for a
driver that compresses, so the fit allows a cubic.

Source: B. E. A. Saleh and M. C. Teich, Fundamentals of Photonics, chapter on electro-optics (the interferometer
as intensity modulator); the half-wave setting is the change that moves phi by pi/2.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

GRID_POINT_COUNT = 240
"""Number of periods tried to start a fit."""
MIN_HALF_WAVE, MAX_HALF_WAVE = 0.25, 4.0
"""Range of half-wave settings that the fit searches, as shares of the swept range."""
MIN_F_STATISTIC = 10.0
"""The cubic is preferred if the F statistic exceeds this value, as it does by chance once in about 15,000 fits."""


@dataclass(frozen=True, slots=True)
class Fringe:
    """level(x) = baseline + amplitude * sin^2(phi(u)), where u = (x - centre)/scale.

    >>> f = Fringe(
    ...     phase=(0.0, np.pi / 2), centre=0.0, scale=20000.0, baseline=10.0, amplitude=1000.0, rms=0.0
    ... )
    >>> round(float(f.compute_level(10_000)), 6), f.half_wave, f.null
    (510.0, 20000.0, 0.0)
    """

    phase: tuple[float, ...]
    """Coefficients of phi in radians, constant first."""
    centre: float
    scale: float
    baseline: float
    amplitude: float
    rms: float
    """Rms of the residuals of the fit, in the unit of the levels."""

    def compute_angle(self, settings: npt.ArrayLike) -> Floats:
        """Return the phase angle phi in radians."""
        u = (np.asarray(settings, dtype=float) - self.centre) / self.scale
        return np.asarray(np.polynomial.polynomial.polyval(u, self.phase), dtype=np.float64)

    def compute_share(self, settings: npt.ArrayLike) -> Floats:
        """Return the share of the transmission, from null (0) to peak (1)."""
        return np.sin(self.compute_angle(settings)) ** 2

    def compute_level(self, settings: npt.ArrayLike) -> Floats:
        """Return the fitted level."""
        return self.baseline + self.amplitude * self.compute_share(settings)

    @property
    def half_wave(self) -> float:
        """Distance in settings from a null to the next peak, without the cubic terms."""
        return float(np.pi / 2 * self.scale / self.phase[1])

    @property
    def null(self) -> float:
        """The setting of least transmission at phi = 0."""
        return self.find_setting(0.0)

    @property
    def peak(self) -> float:
        """The setting of full transmission above the null."""
        return self.find_setting(np.pi / 2)

    @property
    def quadrature(self) -> float:
        """The setting of half transmission above the null, where the slope is greatest."""
        return self.find_setting(np.pi / 4)

    def find_setting(self, angle: float) -> float:
        """Return the setting at which phi is `angle`, by Newton's method; it starts from the straight line."""
        u: float = (angle - self.phase[0]) / self.phase[1]
        slope = np.polynomial.polynomial.polyder(np.asarray(self.phase))
        for _ in range(20):
            error = np.polynomial.polynomial.polyval(u, self.phase) - angle
            u -= float(error / np.polynomial.polynomial.polyval(u, slope))
        return float(self.centre + self.scale * u)


def fit_fringe(settings: npt.ArrayLike, levels: npt.ArrayLike) -> Fringe:
    """Return the fringe fitted to a sweep of one setting, with a cubic phase if the data need it.

    phi is 0 at the null nearest to setting 0. Raise `ValueError` for fewer than 16 points, or for levels that are not
    finite.
    """
    x, y = np.asarray(settings, dtype=float), np.asarray(levels, dtype=float)
    if x.size < 16 or not np.isfinite(y).all():
        raise ValueError(f"a fringe needs at least 16 finite points, not {int(np.isfinite(y).sum())}")
    centre, scale = float((x.max() + x.min()) / 2), float(np.ptp(x) / 2)
    u = (x - centre) / scale
    linear_parameters = _refine(u, y, _find_initial_parameters(u, y))
    cubic_parameters = _refine(u, y, np.concatenate([linear_parameters, [0.0, 0.0]]))
    parameters = (
        cubic_parameters if _needs_cubic(u, y, linear_parameters, cubic_parameters) else linear_parameters
    )
    rms = float(np.sqrt(_sum_squares(u, y, parameters) / max(1, u.size - parameters.size)))
    return _normalise(
        Fringe(
            tuple(float(c) for c in parameters[2:]),
            centre,
            scale,
            float(parameters[0]),
            float(parameters[1]),
            rms,
        )
    )


def _find_initial_parameters(u: Floats, y: Floats) -> Floats:
    """Return (baseline, amplitude, p0, p1) of the best period in a grid.

    For each period the fit is linear in cosine and sine, so it cannot end in a local minimum.
    """
    best_fit = (np.inf, np.zeros(4))
    for half_period in np.geomspace(2 * MIN_HALF_WAVE, 2 * MAX_HALF_WAVE, GRID_POINT_COUNT):
        design = np.column_stack(
            [np.ones_like(u), np.cos(np.pi / half_period * u), np.sin(np.pi / half_period * u)]
        )
        coefficients, *_ = np.linalg.lstsq(design, y, rcond=None)
        rss = float(np.sum((design @ coefficients - y) ** 2))
        if rss < best_fit[0]:
            # m + a cos(kx) + b sin(kx) = m - A/2 cos(kx + d): A = 2 hypot(a, b), d = atan2(b, -a).
            mean, cosine, sine = coefficients
            swing = float(np.hypot(cosine, sine))
            best_fit = (
                rss,
                np.array([mean - swing, 2 * swing, np.arctan2(sine, -cosine) / 2, np.pi / half_period / 2]),
            )
    return best_fit[1]


def _evaluate(u: Floats, parameters: Floats) -> tuple[Floats, Floats]:
    """Return the levels and their derivatives by the parameters (baseline, amplitude, phase coefficients)."""
    angle = np.polynomial.polynomial.polyval(u, parameters[2:])
    share, slope = np.sin(angle) ** 2, parameters[1] * np.sin(2 * angle)
    powers = np.vander(u, parameters.size - 2, increasing=True)
    return parameters[0] + parameters[1] * share, np.column_stack(
        [np.ones_like(u), share, slope[:, None] * powers]
    )


def _refine(u: Floats, y: Floats, parameters: Floats) -> Floats:
    """Return the least-squares parameters by the Levenberg-Marquardt method, which numpy lacks."""
    damping = 1e-3
    values, jacobian = _evaluate(u, parameters)
    rss = float(np.sum((y - values) ** 2))
    for _ in range(200):
        normal_matrix = jacobian.T @ jacobian
        damping_matrix = damping * np.diag(np.diag(normal_matrix) + 1e-12 * np.trace(normal_matrix))
        step = np.linalg.solve(normal_matrix + damping_matrix, jacobian.T @ (y - values))
        trial_values, trial_jacobian = _evaluate(u, parameters + step)
        trial_rss = float(np.sum((y - trial_values) ** 2))
        if trial_rss >= rss:
            damping *= 10
            if damping > 1e12:
                break
            continue
        is_converged = rss - trial_rss <= 1e-14 * rss
        parameters, values, jacobian, rss, damping = (
            parameters + step,
            trial_values,
            trial_jacobian,
            trial_rss,
            damping / 10,
        )
        if is_converged:
            break
    return parameters


def _sum_squares(u: Floats, y: Floats, parameters: Floats) -> float:
    return float(np.sum((y - _evaluate(u, parameters)[0]) ** 2))


def _needs_cubic(u: Floats, y: Floats, linear_parameters: Floats, cubic_parameters: Floats) -> bool:
    """Return whether the cubic terms pass an F test and leave a phase that grows over the whole sweep."""
    is_growing = bool(
        np.all(np.diff(np.polynomial.polynomial.polyval(np.linspace(-1, 1, 64), cubic_parameters[2:])) > 0)
    )
    linear_error, cubic_error = (
        _sum_squares(u, y, linear_parameters),
        _sum_squares(u, y, cubic_parameters),
    )
    floor = 1e-24 * float(np.sum(y**2)) + 1e-300
    return is_growing and (linear_error - cubic_error) / 2 > MIN_F_STATISTIC * (cubic_error + floor) / (
        u.size - cubic_parameters.size
    )


def _normalise(fringe: Fringe) -> Fringe:
    """Return the same curve with positive amplitude, growing phase, and phi = 0 at the null nearest to setting 0."""
    baseline, amplitude, phase = fringe.baseline, fringe.amplitude, np.array(fringe.phase)
    if amplitude < 0:
        baseline, amplitude, phase[0] = baseline + amplitude, -amplitude, phase[0] + np.pi / 2
    if phase[1] < 0:
        phase = -phase
    phase_at_zero = float(np.polynomial.polynomial.polyval(-fringe.centre / fringe.scale, phase))
    phase[0] -= np.pi * np.round(phase_at_zero / np.pi)
    return Fringe(
        tuple(float(c) for c in phase), fringe.centre, fringe.scale, baseline, amplitude, fringe.rms
    )
