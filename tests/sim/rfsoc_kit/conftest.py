"""Generators that a test writes down, and a kit between them and a converter."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest

from sim.twins.rfsoc.kit import KitParameters, PhotonicKit
from sim.twins.rfsoc.kit.knobs import set_knobs

DAC_HZ = 6.144e9
ADC_HZ = 3.072e9


@dataclass
class Played:
    """Waveforms by generator, as fractions of full scale from sample 0 on, each with what follows it for ever."""

    waves: dict[int, np.ndarray] = field(default_factory=dict)
    rest: dict[int, float] = field(default_factory=dict)
    rate: float = DAC_HZ

    def get_rate_hz(self, generator: int) -> float:
        return self.rate

    def read_samples(self, generator: int, first: int, count: int) -> np.ndarray:
        places = np.arange(first, first + count)
        wave = self.waves.get(generator, np.zeros(0))
        after = np.where(places >= len(wave), self.rest.get(generator, 0.0), 0.0)
        inside = (places >= 0) & (places < len(wave))
        return np.where(inside, wave[np.clip(places, 0, len(wave) - 1)] if len(wave) else 0.0, after)


def held(*words: int) -> Played:
    """Return generators that give these gain words from sample 0 on."""
    return Played(rest={index: word / 32766 for index, word in enumerate(words)})


@dataclass
class Setup:
    """A kit and its outputs."""

    kit: PhotonicKit

    def level(self, *words: int) -> float:
        """Return level long after the generators began to give these gain words."""
        received = self.kit.receive(1, ADC_HZ, 10_000, 3, held(*words))
        assert received.level[0] == received.level[2]
        return float(received.level[2])

    def noise(self, *words: int) -> float:
        """Return standard deviation long after the generators began to give these gain words."""
        received = self.kit.receive(1, ADC_HZ, 10_000, 1, held(*words))
        own = 0.0 if received.converter_noise is None else received.converter_noise[0]
        return float(np.hypot(received.noise[0], own))

    def receive(self, outputs: Played, first: int, count: int):
        return self.kit.receive(1, ADC_HZ, first, count, outputs)


@pytest.fixture
def kit():
    """Make a kit with some knobs turned."""
    made = []

    def make(**settings) -> Setup:
        made.append(PhotonicKit(set_knobs(KitParameters(), settings)))
        return Setup(made[-1])

    yield make
    for one in made:
        one.close()


@pytest.fixture
def played():
    return Played
