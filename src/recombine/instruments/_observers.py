"""Scripted observers of scenes, whose answers are known, and the mistakes a report can make."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from recombine.families.objects import Asked, Scene


class Mistakes(NamedTuple):
    """For each scene: how many of the things reported are right, are a conjunction of two features
    that are there but not together, have a feature that is not there, or are an object reported
    once too often; how many objects were missed; how many there are; and how often a wrong thing
    would be a conjunction if both its features were guessed."""

    right: Int[np.ndarray, "item"]
    conjunction: Int[np.ndarray, "item"]
    feature: Int[np.ndarray, "item"]
    repeated: Int[np.ndarray, "item"]
    missed: Int[np.ndarray, "item"]
    objects: Int[np.ndarray, "item"]
    expected: Float[np.ndarray, "item"]


def pairs(scene: Scene, colours: int, shapes: int) -> Int[np.ndarray, "item colour shape"]:
    """How often each pair is in each scene."""
    there = np.asarray(scene.there)
    found = np.zeros((len(there), colours, shapes), np.int64)
    item = np.broadcast_to(np.arange(len(there))[:, None], there.shape)
    at = (item[there], np.asarray(scene.colour)[there], np.asarray(scene.shape)[there])
    np.add.at(found, at, 1)
    return found


def mistakes(reported: Scene, scene: Scene, colours: int, shapes: int) -> Mistakes:
    """What is wrong with each report of a scene.

    Of all C S pairs, m different ones are in a scene with u colours and v shapes: a guess of both
    features that is not among the m is a conjunction with chance (u v - m) / (C S - m).
    """
    said, true = pairs(reported, colours, shapes), pairs(scene, colours, shapes)
    right = np.minimum(said, true)
    wrong = said - right
    there = true > 0
    with_colour, with_shape = (np.asarray(there.any(axis=axis)) for axis in (2, 1))
    possible = with_colour[:, :, None] & with_shape[:, None, :]
    m = there.sum(axis=(1, 2))
    mixed = with_colour.sum(axis=1) * with_shape.sum(axis=1) - m
    count = lambda table: table.sum(axis=(1, 2))  # noqa: E731
    return Mistakes(
        right=count(right),
        conjunction=count(wrong * (possible & ~there)),
        feature=count(wrong * ~possible),
        repeated=count(wrong * there),
        missed=count(true - right),
        objects=count(true),
        expected=mixed / np.maximum(colours * shapes - m, 1),
    )


def first_reported(reported: Scene, scene: Scene) -> float:
    """How often the first object of a scene, of which no other is like it, is reported."""
    same = [np.asarray(said) == np.asarray(true)[:, :1] for said, true in
            ((reported.colour, scene.colour), (reported.shape, scene.shape))]  # fmt: skip
    return float(np.mean((same[0] & same[1] & np.asarray(reported.there)).any(axis=1)))


def bag_answers(asked: Asked, colours: int) -> Bool[np.ndarray, "item"]:
    """The answers of who sees all features and no binding: yes if both features are somewhere.

    In search by colour that is always right. Swaps and conjunctive search show as many objects of
    each colour and of each shape with a yes as with a no: there nobody who knows these numbers and
    no binding is right more often than this, in half of the cases. In published search numbers do
    tell, and this observer does not count: it is right about the target, and wrong without it
    unless all others are alike.
    """
    colour = asked.question[:, :colours].argmax(axis=1)[:, None]
    shape = asked.question[:, colours:].argmax(axis=1)[:, None]
    scene = asked.scene
    has_colour = ((scene.colour == colour) & scene.there).any(axis=1)
    return np.asarray(has_colour & ((scene.shape == shape) & scene.there).any(axis=1))


def bag_report(scene: Scene, rng: np.random.Generator) -> Scene:
    """The report of such an observer: all colours and all shapes, put together by lot."""
    there = np.asarray(scene.there)
    noise = np.where(there, rng.random(there.shape), 2.0)
    # Objects that are there are the first of each list, so that their shapes stay among them.
    order = np.argsort(noise, axis=1)
    shape = np.take_along_axis(np.asarray(scene.shape), order, axis=1)
    return Scene(np.asarray(scene.colour), shape, there)  # pyright: ignore[reportArgumentType]
