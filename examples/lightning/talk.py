"""One product of light, in the form that the talk showed.

On a board: `python talk.py`. Anywhere else:

lightning run talk.py --device sim://kit
"""

from qick import QickSoc

from lightning import LightningConfig, LightningControl, LightningSignalProcessing

soc = QickSoc()
soccfg = soc
LightningConfig["dac_0"] = 100
LightningConfig["dac_1"] = 50
runtime = LightningControl(soccfg, LightningConfig)
waveform = runtime.acquire_decimated(soc)
sp = LightningSignalProcessing()
sp.plot_waveform(waveform)
print(sp.decode_adc_result)
