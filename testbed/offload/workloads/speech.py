"""Log-mel features of two seconds of speech-like sound, with two masks as SpecAugment has them."""

from __future__ import annotations

from typing import Any

import torch
import torchaudio  # type: ignore[import-not-found, unused-ignore]

from testbed.offload.workloads.timed import TimedStep

RATE_HZ = 16000
SECONDS = 2
COUNT = 512


class Utterances:
    """Sums of harmonics whose pitch moves, with noise, made from their index; the class is the pitch's."""

    def __len__(self) -> int:
        """Return the number of utterances."""
        return COUNT

    def __getitem__(self, index: int) -> tuple[Any, int]:
        """Return the samples of an utterance and its class."""
        times = torch.arange(RATE_HZ * SECONDS) / RATE_HZ
        pitch = 100 + 10 * (index % 10) + 8 * torch.sin(2 * torch.pi * 3 * times)
        phase = 2 * torch.pi * torch.cumsum(pitch, 0) / RATE_HZ
        sound = sum(torch.sin(number * phase) / number for number in range(1, 6))
        generator = torch.Generator().manual_seed(index)
        return sound + 0.05 * torch.randn(len(times), generator=generator), index % 10


class Features:
    """80 log-mel bands every 10 ms, normalised, with a band and a span of time masked."""

    def __init__(self) -> None:
        self.mel = torchaudio.transforms.MelSpectrogram(RATE_HZ, n_fft=512, hop_length=160, n_mels=80)
        self.masks = torch.nn.Sequential(
            torchaudio.transforms.FrequencyMasking(20), torchaudio.transforms.TimeMasking(30)
        )

    def __call__(self, element: tuple[Any, int]) -> tuple[Any, int]:
        """Return the features of an utterance and its class."""
        sound, label = element
        bands = torch.log(self.mel(sound) + 1e-6)
        bands = (bands - bands.mean()) / bands.std()
        return self.masks(bands[None]), label


dataset = Utterances()
transform = Features()
batch_size = 16
step = TimedStep(0.02)
simulated = True
