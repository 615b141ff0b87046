"""Everything that can go wrong in photonic inference, sorted by who must act.

    LightningError
    ├── MissingLibrary            an optional library is needed here                    (user)
    ├── ConfigError               what was asked for cannot be                          (user)
    │   ├── UnknownKey            the configuration has no such key
    │   ├── AmbiguousConfig       a key that means two things: name the vocabulary by its adapter
    │   └── OutOfRange            a value outside its range
    ├── ProgramError              the device cannot carry this out; nothing was sent    (user)
    │   ├── WrongChannel          the firmware has no such generator or readout
    │   ├── ReadoutTooLong        more samples than the buffer holds
    │   └── UnsupportedClock      the board runs at a clock for which nothing here is made
    ├── AddressError              the address cannot be understood                      (user)
    │   ├── UnknownScheme         nothing is installed for this kind of address
    │   └── UnknownProfile        no firmware profile of this name
    ├── DeviceError               the device itself                                     (device)
    │   ├── DeviceGone            it does not answer any more, or never did
    │   ├── DeviceStuck           it answers, but the shot counter stands still or is far too late
    │   └── ReadoutOverrun        sums came faster than they were fetched, and some were overwritten
    ├── RecordingError            a recording that cannot be read, or was made of something else  (user)
    ├── NoWaveformError           nothing has been acquired and bound yet               (user)
    ├── NotCalibrated             the device has no calibration: run `lightning calibrate`  (user)
    ├── CalibrationError          a calibration that must not be used                   (user)
    │   ├── ForeignCalibration    of another device
    │   ├── StaleCalibration      too old, or the device has drifted since
    │   └── UnknownVersion        written by a later version, or no calibration at all
    ├── ScriptError               a script that cannot be run                           (user)
    ├── NetworkError              a trained network that cannot be taken                (user)
    │   ├── UnsupportedNode       an operation that nothing here computes; names the node
    │   └── CyclicNetwork         nodes that wait for each other
    ├── CompileError              a network that this hardware or scheme cannot carry   (user)
    ├── ModelFileError            no `.lng` file, or a damaged one                      (user)
    ├── InputError                data that the model does not take: shape, type, NaN   (user)
    ├── DatasetError              data to evaluate on that is not there or not readable (user)
    └── ServingError              a request that cannot be answered                     (user)
        ├── UnknownModel          no model of this name is loaded
        ├── MalformedRequest      not what the protocol says
        ├── RequestTooLarge       more bytes than the server takes
        ├── Busy                  too many requests wait already
        └── DeadlineMissed        the answer would have come too late

`SaturationWarning` and `DarkWarning` are no errors: there is an answer, and it is not to be believed.
Each class has a stable `code` and says in `who` whose turn it is. A message says what, why, and what to do.
"""

from __future__ import annotations

import warnings
from typing import ClassVar

from lightbed.errors import LightbedError, Who
from lightning import name_conflict

# Here, because every module of ours imports this one, also when `lightning/__init__.py` is no longer ours.
name_conflict.check_installed(__file__)


class LightningError(LightbedError):
    """Root of all errors of `lightning`: `what` happened and why, the `device`, and a `hint` what to do."""

    code = "lightning.error"
    who: ClassVar[Who] = "user"

    def __init__(self, what: str, *, device: str = "", hint: str = "") -> None:
        self.what, self.device, self.hint = what, device, hint
        super().__init__(what)

    def __str__(self) -> str:
        """Return the whole message, as `sim-kit-0001: what. Hint`."""
        named = f"{self.device}: {self.what}" if self.device else self.what
        return f"{named}. {self.hint}" if self.hint else named

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle as itself, also through another process."""
        return _rebuilt, (type(self), self.what, self.device, self.hint)


def _rebuilt(kind: type[LightningError], what: str, device: str, hint: str) -> LightningError:
    return kind(what, device=device, hint=hint)


class MissingLibrary(LightningError, ImportError):
    """An optional library is needed here."""

    code = "library.missing"


class ConfigError(LightningError):
    """A request that cannot be met."""

    code = "config"


class UnknownKey(ConfigError, KeyError):
    """The configuration has no such key."""

    code = "config.unknown-key"


class AmbiguousConfig(ConfigError):
    """A key that means one thing in the talk and another in the published library."""

    code = "config.ambiguous"


class OutOfRange(ConfigError, ValueError):
    """A value outside its range."""

    code = "config.out-of-range"


class ProgramError(LightningError):
    """The device cannot carry this out. Nothing was sent."""

    code = "program"


class WrongChannel(ProgramError):
    """The firmware has no such generator or readout."""

    code = "program.wrong-channel"


class ReadoutTooLong(ProgramError):
    """More samples than the buffer of the readout holds."""

    code = "program.readout-too-long"


class UnsupportedClock(ProgramError):
    """The board runs at a clock for which nothing here is made."""

    code = "program.unsupported-clock"


class AddressError(LightningError):
    """The address cannot be understood."""

    code = "address"


class UnknownScheme(AddressError):
    """Nothing is installed for this kind of address."""

    code = "address.unknown-scheme"


class UnknownProfile(AddressError):
    """No firmware profile of this name."""

    code = "address.unknown-profile"


class DeviceError(LightningError):
    """The device itself."""

    code = "device"
    who = "device"


class DeviceGone(DeviceError, ConnectionError):
    """It does not answer any more, or never did."""

    code = "device.gone"


class DeviceStuck(DeviceError, TimeoutError):
    """It answers, but its shot counter stands still, or the program is far too late."""

    code = "device.stuck"


class ReadoutOverrun(DeviceError, RuntimeError):
    """Sums came faster than they were fetched, and some were overwritten."""

    code = "device.overrun"


class RecordingError(LightningError):
    """A recording that cannot be read, or was made of something else."""

    code = "recording"


class NoWaveformError(LightningError):
    """Nothing has been acquired and bound yet."""

    code = "waveform.none"


class NotCalibrated(LightningError):
    """The device has no calibration."""

    code = "calibration.none"


class CalibrationError(LightningError):
    """A calibration that must not be used."""

    code = "calibration"


class ForeignCalibration(CalibrationError):
    """A calibration of another device."""

    code = "calibration.foreign"


class StaleCalibration(CalibrationError):
    """A calibration that is too old, or of a device that has drifted since."""

    code = "calibration.stale"


class UnknownVersion(CalibrationError):
    """Written by a later version, or no calibration at all."""

    code = "calibration.unknown-version"


class ScriptError(LightningError):
    """A script that cannot be run."""

    code = "script"


class NetworkError(LightningError):
    """A trained network that cannot be taken."""

    code = "network"


class UnsupportedNode(NetworkError):
    """An operation that nothing here computes."""

    code = "network.unsupported-node"


class CyclicNetwork(NetworkError):
    """Nodes that wait for each other."""

    code = "network.cyclic"


class CompileError(LightningError):
    """A network that this hardware or scheme cannot carry."""

    code = "compile"


class ModelFileError(LightningError):
    """No `.lng` file, or a damaged one."""

    code = "model-file"


class InputError(LightningError, ValueError):
    """Data that the model does not take."""

    code = "input"


class DatasetError(LightningError):
    """Data to evaluate on that is not there, or cannot be read."""

    code = "dataset"


class ServingError(LightningError):
    """A request that cannot be answered."""

    code = "serving"


class UnknownModel(ServingError):
    """No model of this name is loaded."""

    code = "serving.unknown-model"


class MalformedRequest(ServingError, ValueError):
    """A request that is not what the protocol says."""

    code = "serving.malformed"


class RequestTooLarge(ServingError):
    """A request of more bytes than the server takes."""

    code = "serving.too-large"


class Busy(ServingError):
    """Too many requests wait already."""

    code = "serving.busy"


class DeadlineMissed(ServingError):
    """The answer would have come too late."""

    code = "serving.deadline"


class SaturationWarning(UserWarning):
    """More light than the converter or the range of answers takes: the answer is too small."""


def warn_of_saturation(device: str, answers: int = 1) -> None:
    """Warn the caller of the function that calls this."""
    few = "the answer is" if answers == 1 else f"{answers} answers are"
    warnings.warn(
        f"{device}: there was more light than can be measured, so {few} too small. Lower the laser's"
        " power to that of the calibration, or run `lightning calibrate`",
        SaturationWarning,
        stacklevel=3,
    )


class DarkWarning(UserWarning):
    """No light came where the answer should have been well above zero."""


def warn_of_darkness(device: str, answers: int = 1) -> None:
    """Warn the caller of the function that calls this."""
    few = "an answer that should be" if answers == 1 else f"{answers} answers that should be"
    warnings.warn(
        f"{device}: no light came for {few} well above zero. Is the laser on, and its shutter open? If so, the biases"
        " have moved: run `lightning calibrate`",
        DarkWarning,
        stacklevel=3,
    )
