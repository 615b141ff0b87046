"""Programs against stock QICK classes, and twins to run them on."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from urllib.parse import urlencode

import pytest


@pytest.fixture
def loopback():
    """Make a twin with cables, as `loopback` does with `delay_ns=35.5, noise="off"`."""
    pytest.importorskip("qick")
    from sim.twins.rfsoc import connect

    def made(**options: Any) -> Any:
        return connect("sim://loopback" + ("?" + urlencode(options) if options else ""))

    return made


@pytest.fixture(scope="session")
def programs() -> SimpleNamespace:
    """Program classes; each takes its settings from `cfg`."""
    pytest.importorskip("qick")
    from qick import AveragerProgram, NDAveragerProgram, RAveragerProgram
    from qick.asm_v2 import AveragerProgramV2
    from qick.averager_program import QickSweep

    class Carrier:
        """One pulse to one readout, for every class of version 1."""

        def initialize(self):
            cfg = self.cfg = {
                "gen": 0, "ro": 0, "freq": 0, "gain": 30000, "length": 100, "readout_length": 200, "offset": 0,
                "phase": 0, "style": "const", "relax": 0.5, "triggers": 1, "mode": "oneshot", "stdysel": "zero",
            } | self.cfg  # fmt: skip
            gen, ro = cfg["gen"], cfg["ro"]
            self.declare_gen(ch=gen, nqz=1)
            self.declare_readout(
                ch=ro,
                length=cfg["readout_length"],
                freq=cfg["freq"],
                gen_ch=gen,
                sel=cfg.get("sel", "product"),
            )
            shape = {"length": cfg["length"]}
            if cfg["style"] != "const":
                self.add_gauss(ch=gen, name="bell", sigma=cfg["length"] / 4, length=cfg["length"])
                shape = {"waveform": "bell"} | (
                    {"length": cfg["length"]} if cfg["style"] == "flat_top" else {}
                )
            self.set_pulse_registers(
                ch=gen,
                style=cfg["style"],
                freq=self.freq2reg(cfg["freq"], gen_ch=gen, ro_ch=ro),
                phase=self.deg2reg(cfg["phase"], gen_ch=gen),
                gain=cfg["gain"],
                stdysel=cfg["stdysel"],
                **({} if cfg["style"] == "flat_top" else {"mode": cfg["mode"]}),
                **shape,
            )
            self.synci(200)

        def body(self):
            self.measure(
                pulse_ch=self.cfg["gen"],
                adcs=[self.cfg["ro"]],
                adc_trig_offset=self.cfg["offset"],
                wait=True,
                syncdelay=self.us2cycles(self.cfg["relax"]),
            )

    class Averager(Carrier, AveragerProgram):
        pass

    class GainSweep(Carrier, RAveragerProgram):
        def initialize(self):
            self.cfg = {"gain": self.cfg["start"]} | self.cfg
            super().initialize()
            gen = self.cfg["gen"]
            self.page, self.gain = self.ch_page(gen), self.sreg(gen, "gain")

        def update(self):
            self.mathi(self.page, self.gain, self.gain, "+", self.cfg["step"])

    class GainPhaseSweep(Carrier, NDAveragerProgram):
        def initialize(self):
            super().initialize()
            for name, start, stop, count in self.cfg["sweeps"]:
                self.add_sweep(QickSweep(self, self.get_gen_reg(self.cfg["gen"], name), start, stop, count))

    class AveragerV2(AveragerProgramV2):
        """One pulse to one readout; times in microseconds."""

        def _initialize(self, cfg):
            gen, ro = cfg.get("gen", 0), cfg.get("ro", 0)
            self.declare_gen(ch=gen, nqz=1)
            self.declare_readout(ch=ro, length=cfg.get("readout_length", 0.6))
            self.add_readoutconfig(ch=ro, name="tuned", freq=cfg.get("freq", 0), gen_ch=gen)
            for name, count in cfg.get("loops", ()):
                self.add_loop(name, count)
            self.add_pulse(
                ch=gen,
                name="pulse",
                ro_ch=ro,
                style="const",
                length=cfg.get("length", 0.3),
                freq=cfg.get("freq", 0),
                phase=cfg.get("phase", 0),
                gain=cfg.get("gain", 0.9),
            )
            self.send_readoutconfig(ch=ro, name="tuned", t=0)
            self.delay(0.2)

        def _body(self, cfg):
            self.pulse(ch=cfg.get("gen", 0), name="pulse", t=0)
            self.trigger(ros=[cfg.get("ro", 0)], t=cfg.get("offset", 0.0))

    return SimpleNamespace(
        Averager=Averager, GainSweep=GainSweep, GainPhaseSweep=GainPhaseSweep, AveragerV2=AveragerV2
    )


@pytest.fixture(scope="session")
def complex_trace():
    """Return the first shot that `acquire_decimated` gave, as complex numbers, whichever axis I and Q are on."""

    def converted(waveform: Any) -> Any:
        first = waveform[0]
        while first.ndim > 2:
            first = first[0]
        first = first if first.shape[-1] == 2 else first.T
        return first[:, 0] + 1j * first[:, 1]

    return converted
