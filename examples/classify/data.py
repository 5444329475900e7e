#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Pictures of shapes, 24 x 24 grey pixels, drawn from a seed.

    python3 data.py --count 3 --out DIR      writes PGM files, three of each class
    python3 data.py --show                   prints one picture of each class

One shape of any place, size and grey, turned by up to half a radian, stands on a ground of another grey that slopes; noise lies over both. A shape may be cut
by the border by an eighth of its size. Needs numpy.
"""
import argparse
import os

import numpy

SIZE = 24
CLASSES = ["circle", "square", "triangle", "cross"]


def edges(kind, x, y, r):
    """Signed distances of pixels from the edge of a shape, negative inside. x, y [n, SIZE, SIZE] from its centre, turned; r [n, 1, 1]"""
    far = numpy.hypot(x, y)
    if kind == "circle":
        return far - 0.85 * r
    if kind == "square":
        return numpy.maximum(numpy.abs(x), numpy.abs(y)) - 0.75 * r
    if kind == "triangle":
        sides = [numpy.cos(a) * x + numpy.sin(a) * y for a in (0.0, 2 * numpy.pi / 3, 4 * numpy.pi / 3)]
        return numpy.maximum.reduce(sides) - 0.5 * r
    across, along = numpy.abs(x), numpy.abs(y)  # a cross: one of two bars
    return numpy.minimum(numpy.maximum(across - r, along - 0.28 * r), numpy.maximum(across - 0.28 * r, along - r))


def pictures(rng, labels):
    """labels [n] -> u8 [n, SIZE, SIZE]"""
    n = len(labels)
    one = lambda low, high: rng.uniform(low, high, (n, 1, 1))
    row, column = numpy.mgrid[0:SIZE, 0:SIZE]
    r, angle = one(5.0, 10.5), one(-0.5, 0.5)
    reach = (SIZE - 1) / 2 - 0.75 * r
    cx, cy = (SIZE - 1) / 2 + one(-1.0, 1.0) * reach, (SIZE - 1) / 2 + one(-1.0, 1.0) * reach
    dx, dy = column - cx, row - cy
    x, y = numpy.cos(angle) * dx + numpy.sin(angle) * dy, numpy.cos(angle) * dy - numpy.sin(angle) * dx
    distance = numpy.empty((n, SIZE, SIZE))
    for k, kind in enumerate(CLASSES):
        at = labels == k
        distance[at] = edges(kind, x[at], y[at], r[at])
    inside = numpy.clip(0.5 - distance, 0.0, 1.0)
    ground = one(0.15, 0.85)
    shape = numpy.where(ground + one(-0.4, 0.4) > 0.5, ground - one(0.25, 0.5), ground + one(0.25, 0.5))
    slope = one(-0.15, 0.15) * dx / SIZE + one(-0.15, 0.15) * dy / SIZE
    picture = ground + slope + inside * (shape - ground)
    picture = picture + rng.standard_normal((n, SIZE, SIZE)) * one(0.0, 0.1)
    return numpy.clip(numpy.rint(picture * 255), 0, 255).astype(numpy.uint8)


def batch(rng, n):
    """(pictures u8 [n, SIZE, SIZE], labels [n])"""
    labels = rng.integers(0, len(CLASSES), n)
    return pictures(rng, labels), labels


def values(pictures_u8):
    """What the model reads: f32 [n, 1, SIZE, SIZE], black -1, white 1."""
    return (pictures_u8.astype(numpy.float32) / numpy.float32(127.5) - numpy.float32(1))[:, None]


def write_pgm(path, picture):
    with open(path, "wb") as f:
        f.write(b"P5\n%d %d\n255\n" % (picture.shape[1], picture.shape[0]) + picture.tobytes())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=1, help="pictures of each class")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", default=".")
    parser.add_argument("--show", action="store_true")
    a = parser.parse_args()
    labels = numpy.repeat(numpy.arange(len(CLASSES)), a.count)
    drawn = pictures(numpy.random.default_rng(a.seed), labels)
    for i, (picture, label) in enumerate(zip(drawn, labels)):
        if a.show:
            print(CLASSES[label])
            for line in picture[::2]:
                print("".join(" .:-=+*#%@"[int(v) * 10 // 256] for v in line))
        else:
            write_pgm(os.path.join(a.out, f"{CLASSES[label]}{i % a.count}.pgm"), picture)


if __name__ == "__main__":
    main()
