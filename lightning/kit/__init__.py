"""The photonic kit of modulators, fibre and detector: acquisitions, calibration and decoding.

| module | purpose | imports |
|---|---|---|
| `settings`, `config` | one acquisition; the sliders of a notebook | |
| `profiles`, `checks` | known firmware; checks before anything is sent | `settings` |
| `programs` | programs of the timed processor | `settings` |
| `instruments` | laser, supply and power meter of a bench | |
| `devices` | deadlines for every device | `checks`, `programs` |
| `calibration` | fringes, decoding, documents, measurements, and the guided run | `devices` |
| `connection` | `connect("sim://kit")` opens the device at an address | `calibration` |
| `recordings` | a file of a session with a device, and a device that replays it | `calibration` |
| `dot` | vectors as waveforms | `calibration` |
| `waveform`, `plots` | the trace of a readout, and plots of it | `calibration` |
| `control`, `compute`, `signal_processing` | the public interface: acquisitions, products, decoding | all |
"""
