"""Tiny random-weight models of the families people use, with what must be found in each."""

from __future__ import annotations

from zoo import (
    caches,
    complex_rotations,
    language,
    layers,
    own_code,
    papers,
    streams,
    temperatures,
    vision,
)
from zoo.family import Family

FAMILIES: tuple[Family, ...] = (
    *language.FAMILIES,
    *layers.FAMILIES,
    *vision.FAMILIES,
    *streams.FAMILIES,
    *complex_rotations.FAMILIES,
    *papers.FAMILIES,
    *own_code.FAMILIES,
    *caches.FAMILIES,
    *temperatures.FAMILIES,
)
