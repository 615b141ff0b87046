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

from lightbed.errors import LightbedError
from lightning import name_conflict

# Here, because every module of ours imports this one, also when `lightning/__init__.py` is no longer ours.
name_conflict.check_installed(__file__)


class LightningError(LightbedError, code="lightning.error", who="user"):
    """Root of all errors of `lightning`: `what` happened and why, the `device`, and a `hint` what to do."""

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


class MissingLibrary(LightningError, ImportError, code="library.missing"):
    """An optional library is needed here."""


class ConfigError(LightningError, code="config"):
    """A request that cannot be met."""


class UnknownKey(ConfigError, KeyError, code="config.unknown-key"):
    """The configuration has no such key."""


class AmbiguousConfig(ConfigError, code="config.ambiguous"):
    """A key that means one thing in the talk and another in the published library."""


class OutOfRange(ConfigError, ValueError, code="config.out-of-range"):
    """A value outside its range."""


class ProgramError(LightningError, code="program"):
    """The device cannot carry this out. Nothing was sent."""


class WrongChannel(ProgramError, code="program.wrong-channel"):
    """The firmware has no such generator or readout."""


class ReadoutTooLong(ProgramError, code="program.readout-too-long"):
    """More samples than the buffer of the readout holds."""


class UnsupportedClock(ProgramError, code="program.unsupported-clock"):
    """The board runs at a clock for which nothing here is made."""


class AddressError(LightningError, code="address"):
    """The address cannot be understood."""


class UnknownScheme(AddressError, code="address.unknown-scheme"):
    """Nothing is installed for this kind of address."""


class UnknownProfile(AddressError, code="address.unknown-profile"):
    """No firmware profile of this name."""


class DeviceError(LightningError, code="device", who="device"):
    """The device itself."""


class DeviceGone(DeviceError, ConnectionError, code="device.gone"):
    """It does not answer any more, or never did."""


class DeviceStuck(DeviceError, TimeoutError, code="device.stuck"):
    """It answers, but its shot counter stands still, or the program is far too late."""


class ReadoutOverrun(DeviceError, RuntimeError, code="device.overrun"):
    """Sums came faster than they were fetched, and some were overwritten."""


class RecordingError(LightningError, code="recording"):
    """A recording that cannot be read, or was made of something else."""


class NoWaveformError(LightningError, code="waveform.none"):
    """Nothing has been acquired and bound yet."""


class NotCalibrated(LightningError, code="calibration.none"):
    """The device has no calibration."""


class CalibrationError(LightningError, code="calibration"):
    """A calibration that must not be used."""


class ForeignCalibration(CalibrationError, code="calibration.foreign"):
    """A calibration of another device."""


class StaleCalibration(CalibrationError, code="calibration.stale"):
    """A calibration that is too old, or of a device that has drifted since."""


class UnknownVersion(CalibrationError, code="calibration.unknown-version"):
    """Written by a later version, or no calibration at all."""


class ScriptError(LightningError, code="script"):
    """A script that cannot be run."""


class NetworkError(LightningError, code="network"):
    """A trained network that cannot be taken."""


class UnsupportedNode(NetworkError, code="network.unsupported-node"):
    """An operation that nothing here computes."""


class CyclicNetwork(NetworkError, code="network.cyclic"):
    """Nodes that wait for each other."""


class CompileError(LightningError, code="compile"):
    """A network that this hardware or scheme cannot carry."""


class ModelFileError(LightningError, code="model-file"):
    """No `.lng` file, or a damaged one."""


class InputError(LightningError, ValueError, code="input"):
    """Data that the model does not take."""


class DatasetError(LightningError, code="dataset"):
    """Data to evaluate on that is not there, or cannot be read."""


class ServingError(LightningError, code="serving"):
    """A request that cannot be answered."""


class UnknownModel(ServingError, code="serving.unknown-model"):
    """No model of this name is loaded."""


class MalformedRequest(ServingError, ValueError, code="serving.malformed"):
    """A request that is not what the protocol says."""


class RequestTooLarge(ServingError, code="serving.too-large"):
    """A request of more bytes than the server takes."""


class Busy(ServingError, code="serving.busy"):
    """Too many requests wait already."""


class DeadlineMissed(ServingError, code="serving.deadline"):
    """The answer would have come too late."""


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
