"""Sounds for the networks that hear: speech with pauses, made-up words, chords of notes."""

from __future__ import annotations

from typing import Any

import numpy as np

RATE = 16000  # samples a second of speech
# The first three formants of vowels, Hz (Peterson and Barney 1952, men).
VOWELS = np.array(
    [(270, 2290, 3010), (530, 1840, 2480), (730, 1090, 2440), (570, 840, 2410), (300, 870, 2240)]
)
NOTE_RATE, NOTES, LOWEST, FRAMES, HOP = 22050, 88, 21, 172, 256


def voiced(rng: np.random.Generator, formants: np.ndarray, count: int) -> np.ndarray:
    """Pulses of a voice through the resonances of one vowel after the other, f64[count]."""
    from scipy.signal import lfilter

    pitch = rng.uniform(90, 220) * (1 + 0.1 * np.sin(np.linspace(0, rng.uniform(2, 6), count)))
    phase = np.cumsum(pitch / RATE)
    sound = np.diff(np.floor(phase), prepend=0) + rng.normal(0, 0.01, count)
    pieces = []
    for piece, vowel in zip(np.array_split(sound, len(formants)), formants, strict=True):
        for centre in vowel * rng.uniform(0.95, 1.05):
            width = np.exp(-np.pi * (60 + centre / 20) / RATE)
            poles = [1, -2 * width * np.cos(2 * np.pi * centre / RATE), width**2]
            piece = lfilter([1 - width], poles, piece)
        pieces.append(piece)
    found = np.concatenate(pieces)
    return np.asarray(found / (np.abs(found).max() + 1e-9))


def speech(rng: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray]:
    """f32[count] of vowels and pauses of 0.25 to 0.6 s, and where it is spoken."""
    sound, spoken, at = rng.normal(0, 0.001, count), np.zeros(count, bool), 0
    talks = bool(rng.integers(2))
    while at < count:
        size = min(int(RATE * rng.uniform(0.25, 0.6)), count - at)
        if talks:
            vowels = VOWELS[rng.integers(len(VOWELS), size=1 + size // 2400)]
            sound[at : at + size] += 0.3 * voiced(rng, vowels, size) * np.hanning(size) ** 0.3
            spoken[at : at + size] = True
        at, talks = at + size, not talks
    return sound.astype(np.float32), spoken


def word(rng: np.random.Generator, number: int, count: int) -> np.ndarray:
    """f32[count]: a word of three vowels, said by another voice each time."""
    vowels = VOWELS[np.random.default_rng(number).integers(len(VOWELS), size=3)]
    start, size = int(rng.integers(0, count // 8)), int(count * rng.uniform(0.7, 0.85))
    sound = rng.normal(0, 0.002, count)
    sound[start : start + size] += 0.4 * voiced(rng, vowels, size) * np.hanning(size) ** 0.3
    return sound.astype(np.float32)


def chord(rng: np.random.Generator) -> tuple[list[np.ndarray], Any]:
    """One to four notes, each with harmonics that fade, and bool[FRAMES, NOTES] of what sounds."""
    count = 43844
    sound, label = rng.normal(0, 0.001, count), np.zeros((FRAMES, NOTES), bool)
    for note in rng.choice(np.arange(40, 84), int(rng.integers(1, 5)), replace=False):
        start, size = int(rng.integers(0, count // 2)), int(rng.integers(NOTE_RATE // 3, NOTE_RATE))
        time = np.arange(min(size, count - start)) / NOTE_RATE
        base = 440 * 2 ** ((note - 69) / 12)
        parts = [np.sin(2 * np.pi * base * k * time) / k**1.5 for k in range(1, 7)]
        sound[start : start + len(time)] += 0.15 * sum(parts) * np.exp(-1.5 * time)
        label[start // HOP : (start + len(time)) // HOP, note - LOWEST] = True
    return [sound.astype(np.float32)[None, :, None]], label
