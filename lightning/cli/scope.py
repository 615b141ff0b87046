"""`lightning scope [VALUES]`: a plot of one acquisition."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lightning.cli.options import TWIN, AsJson, Csv, Device
from lightning.cli.output import (
    EXIT_OK,
    collect_saturation,
    list_file_names,
    mark_simulated,
    print_document,
    write_csv,
)
from lightning.errors import ConfigError, LightningError, NotCalibrated, OutOfRange

if TYPE_CHECKING:
    from lightning.kit.config import Configuration
    from lightning.kit.waveform import Waveform

Values = Annotated[
    list[int] | None,
    typer.Argument(metavar="[VALUES]...", help="Values of modulators 0 to 3, each 0 to 255."),
]
PlotFile = Annotated[
    Path, typer.Option("--png", metavar="FILE", help="File of the plot (.png, .svg or .pdf).")
]
Sets = Annotated[
    list[str] | None,
    typer.Option("--set", "-s", metavar="KEY=VALUE", help="Change a setting, e.g. soft_avgs=1; repeatable."),
]
Record = Annotated[
    Path | None, typer.Option("--record", metavar="FILE", help="Record the session for replay://FILE.")
]


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("scope")(scope)


def scope(
    values: Values = None,
    device: Device = TWIN,
    png: PlotFile = Path("waveform.png"),
    csv: Csv = None,
    settings: Sets = None,
    record: Record = None,
    *,
    as_json: AsJson = False,
) -> int:
    """Plot the detector signal, and decode it if the device is calibrated.

    Settings are those of LightningConfig; word_0=20000 sets the gain word of a modulator directly, without encoding.
    --record saves the session even if it fails; replay it with --device replay://FILE. For example:
    lightning scope 100 50 --png waveform.png
    """
    from lightning.kit.connection import connect
    from lightning.kit.control import LightningControl

    soc = connect(device)
    config = make_configuration(values or [], settings or [], soc if device.startswith("replay://") else None)
    with _record_session(soc, record) as recorded_soc:
        waveform = LightningControl(recorded_soc, config).acquire_decimated(recorded_soc)
    with collect_saturation() as saturation_warnings:
        result, reason = decode_waveform(waveform)
    draw_waveform(waveform, result, png)
    files = list_file_names((png, csv, record))
    if csv is not None:
        write_csv(csv, *_make_table(waveform), waveform.device)
    if as_json:
        origin = {"settings": waveform.origin.settings.as_dict(), "words": list(waveform.origin.words)}
        details = {"result": result, "why": reason, "saturated": bool(saturation_warnings)}
        print_document(waveform.device, {**details, **origin, "written": files})
    else:
        print(
            mark_simulated(f"{_format_operands(waveform)}: {reason or f'decoded {result}'}", waveform.device)
        )
        for name in files:
            print(f"written: {name}")
    return EXIT_OK


def make_configuration(values: list[int], settings: list[str], replay_soc: Any = None) -> Configuration:
    """Return the defaults, or a recording's configuration, changed by values and `KEY=VALUE` settings.

    Raise `OutOfRange` for more than four values, `ConfigError` for an invalid setting, and the errors of
    `Configuration`.
    """
    from lightning.kit.config import Configuration

    if len(values) > 4:
        raise OutOfRange(f"{len(values)} values are given", hint="Give at most four, one per modulator")
    config: Configuration = replay_soc.config if replay_soc is not None else Configuration()
    config.update({f"dac_{index}": value for index, value in enumerate(values)})
    config.update(dict(map(_parse_setting, settings)))
    return config


def _parse_setting(text: str) -> tuple[str, Any]:
    key, equals_sign, value = text.partition("=")
    if not equals_sign:
        raise ConfigError(
            f"{text!r} is not a valid setting", hint="Write KEY=VALUE, as in soft_avgs=1 or readouts=0,1"
        )
    if key == "readouts":
        return key, [_parse_number(number) for number in value.split(",")]
    return key, None if value == "none" else _parse_number(value)


def _parse_number(text: str) -> Any:
    """Return the text as a number if possible, else unchanged. The configuration then refuses the text."""
    for number_type in (int, float):
        with contextlib.suppress(ValueError):
            return number_type(text)
    return text


@contextlib.contextmanager
def _record_session(soc: Any, file: Path | None) -> Iterator[Any]:
    if file is None:
        yield soc
        return
    from lightning.kit.recordings.recording import record

    with record(soc, file) as guarded_soc:
        yield guarded_soc


def decode_waveform(waveform: Waveform) -> tuple[int | None, str]:
    """Return (product 0..255 or sum of two products 0..510, ""), or (None, reason why it was not decoded)."""
    from lightning.kit.signal_processing import LightningSignalProcessing

    try:
        return LightningSignalProcessing().decode(waveform), ""
    except NotCalibrated as error:
        return None, f"not decoded: {error.problem}. {error.hint}"
    except LightningError as error:
        return None, f"not decoded: {error.problem}"


def draw_waveform(waveform: Waveform, result: int | None, file: Path) -> None:
    """Save a plot of the waveform and its decoded result."""
    from lightning.kit import plots

    plots.save(plots.waveform(waveform, decoded_result=result), file)


def _format_operands(waveform: Waveform) -> str:
    pairs = zip(waveform.origin.settings.values, waveform.origin.words, strict=True)
    operands = (f"word {word}" if value is None else str(value) for value, word in pairs)
    return f"modulators at {', '.join(operands)}"


def _make_table(waveform: Waveform) -> tuple[tuple[str, ...], list[tuple[Any, ...]]]:
    """Return the columns of the CSV file: time, then mean I and Q of every readout."""
    names, columns = ["time_us"], [waveform.time_us(0).round(6).tolist()]
    for index, readout in enumerate(waveform.origin.settings.readouts):
        mean_iq = waveform[index].mean(axis=0)
        names += [f"i_{readout}", f"q_{readout}"]
        columns += [mean_iq[0].tolist(), mean_iq[1].tolist()]
    return tuple(names), list(zip(*columns, strict=True))
