"""Inputs made in the program: pictures, lines of text, sounds, token ids and bytes that have structure; seeded.

White noise says little of a network: its activations are small and alike, while pictures have edges and plain places.
Every function gives one sample.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Random = np.random.Generator

GLYPHS = {
    "A": "01110 10001 10001 11111 10001 10001 10001",
    "E": "11111 10000 10000 11110 10000 10000 11111",
    "H": "10001 10001 10001 11111 10001 10001 10001",
    "I": "01110 00100 00100 00100 00100 00100 01110",
    "L": "10000 10000 10000 10000 10000 10000 11111",
    "N": "10001 11001 11001 10101 10011 10011 10001",
    "O": "01110 10001 10001 10001 10001 10001 01110",
    "P": "11110 10001 10001 11110 10000 10000 10000",
    "T": "11111 00100 00100 00100 00100 00100 00100",
    "U": "10001 10001 10001 10001 10001 10001 01110",
    "X": "10001 10001 01010 00100 01010 10001 10001",
    "1": "00100 01100 00100 00100 00100 00100 01110",
    "2": "01110 10001 00001 00110 01000 10000 11111",
    "7": "11111 00001 00010 00010 00100 00100 00100",
}
"""Letters as rows of points."""
WORDS = ("value", "left", "count", "the", "network", "of", "name", "is", "a", "house", "and", "river", "table", "to")
FRAME, HOP, MELS = 400, 160, 80
"""Of a spectrogram at 16 kHz: samples of a window, samples between two, and bands."""


def picture(random: Random, height: int, width: int, things: int = 6) -> Array:
    """A scene, float [3, height, width] from 0 to 1: a ground with slow changes, things with edges, some texture."""
    scene = 0.5 + 0.18 * _field(random, height, width, power=2.0)
    y, x = np.mgrid[0:height, 0:width] / max(height, width)
    for _ in range(int(random.integers(2, things + 1))):
        colour = random.uniform(0, 1, (3, 1, 1)) * (1 + 0.15 * _field(random, height, width, power=1.5))
        away_y, away_x = y - random.uniform(0, 1), x - random.uniform(0, 1)
        angle, size = random.uniform(0, np.pi), random.uniform(0.06, 0.3, 2)
        along = (away_x * np.cos(angle) + away_y * np.sin(angle)) / size[0]
        across = (away_y * np.cos(angle) - away_x * np.sin(angle)) / size[1]
        inside = along**2 + across**2 < 1 if random.random() < 0.5 else np.maximum(abs(along), abs(across)) < 1
        stripes = 1 + 0.3 * (random.random() < 0.3) * np.sign(np.sin(along * random.uniform(6, 30)))
        scene = np.where(inside, colour * stripes, scene)
    return np.clip(scene + random.normal(0, 0.01, scene.shape), 0, 1)


def _field(random: Random, height: int, width: int, power: float) -> Array:
    """Three related fields of mean 0 and deviation about 1, whose amplitudes fall with the frequency's power."""
    frequency = np.hypot(np.fft.fftfreq(height)[:, None] * height, np.fft.rfftfreq(width) * width)
    noise = random.normal(0, 1, (4, height, frequency.shape[1])) * np.exp(2j * np.pi * random.random((4, 1, 1)))
    fields = np.fft.irfft2(noise / np.maximum(frequency, 1) ** power, (height, width))
    fields /= fields.std((1, 2), keepdims=True)
    found: Array = 0.8 * fields[3] + 0.6 * fields[:3]
    return found


def text_line(random: Random, height: int, width: int) -> Array:
    """A printed line on a ground of another brightness, float [3, height, width] from 0 to 1."""
    low, high = random.uniform(0, 0.35), random.uniform(0.65, 1)
    ground, ink = (high, low) if random.random() < 0.7 else (low, high)
    line = np.full((height, width), ground)
    step = max(height * int(random.integers(6, 9)) // 100, 1)
    top, left = int(random.integers(1, max(height - 7 * step, 2))), int(random.integers(0, 3 * step + 1))
    for _ in range(int(random.integers(4, 16))):
        glyph = _glyph(random, step)
        if left + glyph.shape[1] > width:
            break
        place = line[top : top + glyph.shape[0], left : left + glyph.shape[1]]
        place[glyph[: place.shape[0]]] = ink
        left += glyph.shape[1] + step * int(random.choice([1, 1, 1, 3]))
    if random.random() < 0.3:
        line = line[::-1, ::-1]
    shade = 1 + 0.06 * _field(random, height, width, power=2.0)
    return np.clip(line * shade + random.normal(0, 0.02, (3, height, width)), 0, 1)


def _glyph(random: Random, step: int) -> Array:
    rows = GLYPHS[random.choice(list(GLYPHS))].split()
    points = np.array([[point == "1" for point in row] for row in rows])
    return points.repeat(step, 0).repeat(step, 1)


def page(random: Random, height: int, width: int) -> Array:
    """A scene with lines of text in it."""
    scene = picture(random, height, width)
    for _ in range(int(random.integers(1, 5))):
        tall, wide = min(height, int(random.integers(16, 41))), min(width, int(random.integers(60, width + 60)))
        top, left = int(random.integers(0, height - tall + 1)), int(random.integers(0, width - wide + 1))
        scene[:, top : top + tall, left : left + wide] = text_line(random, tall, wide)
    return scene


def sound(random: Random, length: int, rate: float = 16000.0) -> Array:
    """Something like a voice or an instrument, float [length] in ±1: notes of many overtones, noise, silences."""
    found = random.normal(0, 0.003, length)
    for _ in range(max(1, int(length / rate * 5))):
        lasting = random.uniform(0.03, 0.25)
        begin = int(random.uniform(-0.1 * rate, length))
        first, last = max(begin, 0), min(length, begin + int(4 * lasting * rate))
        if last > first:
            time = np.arange(first - begin, last - begin) / rate
            found[first:last] += _note(random, time, lasting, rate)
    return found / max(1.0, float(np.abs(found).max()))


def _note(random: Random, time: Array, lasting: float, rate: float) -> Array:
    """A tone that glides and fades, with overtones and sometimes noise. time: seconds since it began."""
    shape = np.clip(time / 0.02, 0, 1) * np.exp(-np.maximum(time - 0.02, 0) / lasting)
    phase = 2 * np.pi * np.cumsum(random.uniform(90, 600) * (1 + random.uniform(-0.2, 0.2) * time)) / rate
    found = np.zeros_like(time)
    for overtone in range(1, 12):
        found += np.sin(overtone * phase) * random.uniform(0, 1) / overtone
    noise = (random.random() < 0.3) * 0.1 * random.normal(0, 1, len(time))
    faded: Array = shape * (random.uniform(0.05, 0.4) * found + noise)
    return faded


def spectrogram(random: Random, frames: int) -> Array:
    """Logarithms of the energies of a sound in bands, float [MELS, frames] from about -1 to 1.5, as Whisper reads."""
    wave = sound(random, frames * HOP + FRAME)
    places = np.arange(frames)[:, None] * HOP + np.arange(FRAME)
    energy = np.abs(np.fft.rfft(wave[places] * np.hanning(FRAME))) ** 2
    edges = np.expm1(np.linspace(0, np.log1p(8000 / 700), MELS + 2)) * 700
    hertz = np.fft.rfftfreq(FRAME, 1 / 16000)
    rising = (hertz - edges[:-2, None]) / np.diff(edges)[:-1, None]
    falling = (edges[2:, None] - hertz) / np.diff(edges)[1:, None]
    bands = np.log10(np.maximum(energy @ np.clip(np.minimum(rising, falling), 0, None).T, 1e-10))
    return (np.maximum(bands, bands.max() - 8).T + 4) / 4


def token_ids(random: Random, length: int, rows: int) -> Array:
    """Ids of a vocabulary of `rows`, the more frequent the lower, int64 [length]."""
    return np.minimum(np.exp(random.uniform(0, np.log(rows), length)).astype(np.int64), rows - 1)


def mask(random: Random, length: int) -> Array:
    """1 for a sentence and 0 behind it, int64 [length]."""
    return (np.arange(length) < random.integers(length // 4, length + 1)).astype(np.int64)


def file_bytes(random: Random, length: int) -> Array:
    """The beginning and the end of a file, int32 [length]: prose, JSON, a table or random bytes; 256 fills the rest."""
    half, kind = length // 2, int(random.integers(4))
    words = random.choice(WORDS, 400)
    forms = (" ".join(words), "{" + ", ".join(f'"{word}": {len(word)}' for word in words) + "}", ",".join(words))
    text = random.bytes(int(random.integers(half, 4 * half))) if kind == 3 else forms[kind].encode()
    content = np.frombuffer(text[: int(random.integers(half // 2, len(text) + 1))], np.uint8).astype(np.int32)
    first, last = content[:half], content[-half:]
    filled = np.full(length, 256, np.int32)
    filled[: len(first)], filled[length - len(last) :] = first, last
    return filled


def scaled(image: Array, low: float, high: float, channels_last: bool = False) -> Array:
    """An image of 0 to 1 as the network takes it."""
    found = (low + image * (high - low)).astype(np.float32)
    return np.ascontiguousarray(found.transpose(1, 2, 0)) if channels_last else found


def _image(make: Callable[[Random, int, int], Array]) -> Callable[..., Array]:
    def made(random: Random, height: int, width: int, low: float, high: float, channels_last: bool = False) -> Array:
        return scaled(make(random, height, width), low, high, channels_last)

    return made


KINDS: dict[str, Callable[..., Array]] = {
    "picture": _image(picture),
    "text_line": _image(text_line),
    "page": _image(page),
    "sound": lambda random, length, rate: sound(random, length, rate).astype(np.float32)[:, None],
    "wave": lambda random, length: sound(random, length).astype(np.float32),
    "spectrogram": lambda random, frames: spectrogram(random, frames).astype(np.float32),
    "token_ids": token_ids,
    "mask": mask,
    "file_bytes": file_bytes,
    "state": lambda random, *shape: random.normal(0, 0.5, shape).astype(np.float32),
}
"""What an input may be, by the name that the list of models calls it."""


def samples_of_kind(kind: str, shape: Sequence[int], options: Mapping[str, Any], count: int, seed: int) -> Array:
    """Several samples, axis 0; the same for the same seed, whatever others were made."""
    return np.stack([KINDS[kind](np.random.default_rng([seed, place]), *shape, **options) for place in range(count)])
