"""Workload: log-mel features of two seconds of speech-like sound by librosa, masked as in SpecAugment."""

from __future__ import annotations

from typing import Any

import librosa
import numpy as np

from testbed.offload.workloads.timed import TimedStep

RATE_HZ = 16000
UTTERANCE_S = 2
UTTERANCE_COUNT = 512
BAND_COUNT = 80


class Utterances:
    """Harmonics of a varying pitch with noise, generated from the index. The label is one of ten pitches."""

    def __len__(self) -> int:
        """Return the number of utterances."""
        return UTTERANCE_COUNT

    def __getitem__(self, index: int) -> tuple[Any, int]:
        """Return the samples of an utterance and its label."""
        times_s = np.arange(RATE_HZ * UTTERANCE_S) / RATE_HZ
        pitch_hz = 100 + 10 * (index % 10) + 8 * np.sin(2 * np.pi * 3 * times_s)
        phase = 2 * np.pi * np.cumsum(pitch_hz) / RATE_HZ
        waveform = sum(np.sin(number * phase) / number for number in range(1, 6))
        noise = np.random.default_rng(index).normal(0, 0.05, len(times_s))
        return (waveform + noise).astype(np.float32), index % 10


def compute_features(element: tuple[Any, int]) -> tuple[Any, int]:
    """Return normalised log-mel features and the label. Features have shape (80, times), with a column every 10 ms.

    A random range of bands and a random span of time are masked.
    """
    waveform, label = element
    mel = librosa.feature.melspectrogram(y=waveform, sr=RATE_HZ, n_fft=512, hop_length=160, n_mels=BAND_COUNT)
    bands = librosa.power_to_db(mel)
    bands = (bands - bands.mean()) / bands.std()
    first_masked_band = np.random.randint(0, BAND_COUNT - 20)  # noqa: NPY002 - the generator that a loader seeds
    first_masked_column = np.random.randint(0, bands.shape[1] - 30)  # noqa: NPY002
    bands[first_masked_band : first_masked_band + np.random.randint(0, 20)] = 0  # noqa: NPY002
    bands[:, first_masked_column : first_masked_column + np.random.randint(0, 30)] = 0  # noqa: NPY002
    return bands.astype(np.float32), label


dataset = Utterances()
transform = compute_features
batch_size = 16
step = TimedStep(0.02)
simulated = True
