"""Errors of photonic inference, sorted by who must act.

    LightningError
    ├── MissingLibrary            (user)
    ├── ConfigError               (user)
    │   ├── UnknownKey
    │   ├── AmbiguousConfig
    │   └── OutOfRange
    ├── ProgramError              (user)
    │   ├── WrongChannel
    │   ├── ReadoutTooLong
    │   └── UnsupportedClock
    ├── AddressError              (user)
    │   ├── UnknownScheme
    │   └── UnknownProfile
    ├── DeviceError               (device)
    │   ├── DeviceGone
    │   ├── DeviceStuck
    │   └── ReadoutOverrun
    ├── RecordingError            (user)
    ├── NoWaveformError           (user)
    ├── NotCalibrated             (user)
    ├── CalibrationError          (user)
    │   ├── ForeignCalibration
    │   ├── StaleCalibration
    │   └── UnknownVersion
    ├── ScriptError               (user)
    ├── NetworkError              (user)
    │   ├── UnsupportedNode
    │   └── CyclicNetwork
    ├── CompileError              (user)
    ├── ModelFileError            (user)
    ├── InputError                (user)
    ├── DatasetError              (user)
    └── ServingError              (user)
        ├── UnknownModel
        ├── MalformedRequest
        ├── RequestTooLarge
        ├── Busy
        └── DeadlineMissed

`SaturationWarning` and `DarkWarning` are not errors: there is an answer, but it is unreliable.
Each class has a stable `code`, and `who` names who must act. A message says what happened, why, and what to do.
"""

from __future__ import annotations

import warnings

from lightbed.errors import LightbedError
from lightning import name_conflict

# Check here, because every module of lightbed's `lightning` imports this module, even if `__init__.py` was overwritten.
name_conflict.check_no_conflict(__file__)


class LightningError(LightbedError, code="lightning.error", who="user"):
    """Base class of all errors of `lightning`. `problem` states the failure and its cause, `hint` a remedy."""

    def __init__(self, problem: str, *, device: str = "", hint: str = "") -> None:
        self.problem, self.device, self.hint = problem, device, hint
        super().__init__(problem)

    def __str__(self) -> str:
        """Return the whole message, as `sim-kit-0001: problem. Hint`."""
        message = f"{self.device}: {self.problem}" if self.device else self.problem
        return f"{message}. {self.hint}" if self.hint else message

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle all three fields, because the base class keeps only the first field."""
        return _rebuild_error, (type(self), self.problem, self.device, self.hint)


def _rebuild_error(error_class: type[LightningError], problem: str, device: str, hint: str) -> LightningError:
    return error_class(problem, device=device, hint=hint)


class MissingLibrary(LightningError, ImportError, code="library.missing"):
    """An optional library is not installed. The message names the extra."""


class ConfigError(LightningError, code="config"):
    """Options or settings contradict each other."""


class UnknownKey(ConfigError, KeyError, code="config.unknown-key"):
    """The configuration has no such key."""


class AmbiguousConfig(ConfigError, code="config.ambiguous"):
    """A key means one thing in the talk and another in the published library."""


class OutOfRange(ConfigError, ValueError, code="config.out-of-range"):
    """A value is outside its range."""


class ProgramError(LightningError, code="program"):
    """The device cannot execute the program. Nothing was sent."""


class WrongChannel(ProgramError, code="program.wrong-channel"):
    """The firmware has no such generator or readout."""


class ReadoutTooLong(ProgramError, code="program.readout-too-long"):
    """The readout takes more samples than its buffer holds."""


class UnsupportedClock(ProgramError, code="program.unsupported-clock"):
    """The board runs at an unsupported clock rate."""


class AddressError(LightningError, code="address"):
    """The address cannot be parsed."""


class UnknownScheme(AddressError, code="address.unknown-scheme"):
    """No installed package supports this kind of address."""


class UnknownProfile(AddressError, code="address.unknown-profile"):
    """There is no firmware profile of this name."""


class DeviceError(LightningError, code="device", who="device"):
    """The device failed."""


class DeviceGone(DeviceError, ConnectionError, code="device.gone"):
    """The device does not answer."""


class DeviceStuck(DeviceError, TimeoutError, code="device.stuck"):
    """The device answers, but its shot counter does not move, or the run takes far too long."""


class ReadoutOverrun(DeviceError, RuntimeError, code="device.overrun"):
    """Sums arrived faster than they were read, and some were overwritten."""


class RecordingError(LightningError, code="recording"):
    """The recording cannot be read, or contains another program."""


class NoWaveformError(LightningError, code="waveform.none"):
    """No waveform has been acquired yet."""


class NotCalibrated(LightningError, code="calibration.none"):
    """The device has no calibration."""


class CalibrationError(LightningError, code="calibration"):
    """The calibration cannot be used."""


class ForeignCalibration(CalibrationError, code="calibration.foreign"):
    """The calibration is for another device."""


class StaleCalibration(CalibrationError, code="calibration.stale"):
    """The calibration is too old, or the device has drifted since."""


class UnknownVersion(CalibrationError, code="calibration.unknown-version"):
    """A later version wrote the calibration, or the file is not a calibration."""


class ScriptError(LightningError, code="script"):
    """A script cannot be run."""


class NetworkError(LightningError, code="network"):
    """A trained network cannot be imported: damaged file, several inputs, unknown opset."""


class UnsupportedNode(NetworkError, code="network.unsupported-node"):
    """The network has an unsupported operation. The message names the node."""


class CyclicNetwork(NetworkError, code="network.cyclic"):
    """The nodes of the network form a cycle. The message names them."""


class CompileError(LightningError, code="compile"):
    """The hardware or the scheme cannot execute the network."""


class ModelFileError(LightningError, code="model-file"):
    """The file is not a `.lng` file, is damaged, or is of a later version."""


class InputError(LightningError, ValueError, code="input"):
    """The model does not take the data: shape, type, NaN, or no data."""


class DatasetError(LightningError, code="dataset"):
    """A dataset does not exist or cannot be read."""


class ServingError(LightningError, code="serving"):
    """A request cannot be served."""


class UnknownModel(ServingError, code="serving.unknown-model"):
    """No model of this name is loaded."""


class MalformedRequest(ServingError, ValueError, code="serving.malformed"):
    """The request does not follow the protocol."""


class RequestTooLarge(ServingError, code="serving.too-large"):
    """The request has more bytes than the server accepts."""


class Busy(ServingError, code="serving.busy"):
    """Too many requests are waiting."""


class DeadlineMissed(ServingError, code="serving.deadline"):
    """The answer would arrive after its deadline."""


class SaturationWarning(UserWarning):
    """There was more light than the converter or the range of answers allows, so the answer is too small."""


def warn_of_saturation(device: str, answer_count: int = 1) -> None:
    """Issue a `SaturationWarning` for this number of answers, located at the caller of the calling function."""
    subject = "the answer is" if answer_count == 1 else f"{answer_count} answers are"
    warnings.warn(
        f"{device}: there was more light than can be measured, so {subject} too small. Lower the laser's"
        " power to that of the calibration, or run `lightning calibrate`",
        SaturationWarning,
        stacklevel=3,
    )


class DarkWarning(UserWarning):
    """No light came, although the answer should be well above zero."""


def warn_of_darkness(device: str, answer_count: int = 1) -> None:
    """Issue a `DarkWarning` for this number of answers, located at the caller of the calling function."""
    subject = "an answer that should be" if answer_count == 1 else f"{answer_count} answers that should be"
    warnings.warn(
        f"{device}: no light came for {subject} well above zero. Is the laser on, and its shutter open? If so, the"
        " biases have moved: run `lightning calibrate`",
        DarkWarning,
        stacklevel=3,
    )
