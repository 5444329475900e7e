#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Lines of small puzzles that carry their answers: sums, counts of things given away, agreement over a clause, days,
clocks, words backwards and in order, brackets, and what was said of whom.

    python3 data.py --count 5 [--seed 1]     prints lines
    python3 data.py --check < FILE           reads lines and says how many of their sums, days, clocks and words are right

A line has at most LENGTH characters. Its text is cheap to spell, but the answers follow from what stands before them, by
rules that are not in the spelling: a model that was damaged loses these first.
"""
import argparse
import random
import re
import sys

LENGTH = 190  # characters of a line
CHARACTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789 .,;:?=+-*()[]{}'"
NAMES = "Ada Bela Cora Dario Elin Fenja Goran Hana Ivo Jora Kaspar Lotte Milo Nuria Oskar Paola Quinn Selma Tove Wanda".split()
THINGS = "figs plums nuts coins shells stamps keys bells rings maps".split()
TOWNS = "Oslo Rome Lima Cairo Delhi Quito Tunis Basel Kyoto Turku".split()
WORDS = ("marble lantern kettle river stone copper window garden silver butter candle ribbon basket hammer pencil anchor "
         "velvet button saddle mirror barrel needle pillow thread").split()
ANIMALS = "owl fox hare otter crane bear mole goat duck lynx".split()
PLACES = ["by the mill", "near the well", "under the oak", "behind the barn", "on the hill"]
VERBS = "sleep run sing eat wait swim dig hide".split()
SEES = "see hear know fear help".split()
DAYS = "monday tuesday wednesday thursday friday saturday sunday".split()
COUNTS = "zero one two three four five six seven eight nine ten".split()
PAIRS = ["()", "[]", "{}"]


def sum_of(rng):
    kind = rng.choice("++--*3")
    a, b = rng.randrange(100), rng.randrange(100)
    if kind == "*":
        a, b = rng.randrange(2, 13), rng.randrange(2, 13)
        return f"{a}*{b}={a * b}"
    if kind == "3":
        c = rng.randrange(10)
        a, b = a % 20, b % 20
        return f"{a}+{b}+{c}={a + b + c}"
    if kind == "-":
        a, b = max(a, b), min(a, b)
        return f"{a}-{b}={a - b}"
    return f"{a}+{b}={a + b}"


def gift(rng):
    giver, taker = rng.sample(NAMES, 2)
    thing, has = rng.choice(THINGS), rng.randrange(2, 20)
    gives = rng.randrange(1, has)
    had = rng.choice([0, rng.randrange(1, 10)])
    start = f"{giver} has {has} {thing}" + (f", {taker} has {had}" if had else "")
    return f"{start}. {giver} gives {taker} {gives}. now {giver} has {has - gives}, {taker} has {had + gives}"


def agreement(rng):
    """The verb agrees with the first noun, whatever stands between them."""
    def noun(animal, many):
        return animal + ("es" if animal[-1] == "x" else "s") * many
    def verb(word, many):
        return word if many else word + "s"
    first, second = rng.sample(ANIMALS, 2)
    many, others = rng.random() < 0.5, rng.random() < 0.5
    between = rng.choice([f" {rng.choice(PLACES)}", f" that the {noun(second, others)} {verb(rng.choice(SEES), others)}",
                          f" that {verb(rng.choice(SEES), many)} the {noun(second, others)} {rng.choice(PLACES)}"])
    return f"the {noun(first, many)}{between} {verb(rng.choice(VERBS), many)}"


def days(rng):
    n, day, sign = rng.randrange(1, 11), rng.randrange(7), rng.choice([1, -1])
    return f"{COUNTS[n]} day{'s' * (n > 1)} {'after' if sign > 0 else 'before'} {DAYS[day]} is {DAYS[(day + sign * n) % 7]}"


def clock(rng):
    start, later = rng.randrange(24 * 12) * 5, rng.randrange(1, 24) * 5
    end = (start + later) % (24 * 60)
    return f"{later} minutes after {start // 60}:{start % 60:02} is {end // 60}:{end % 60:02}"


def backwards(rng):
    word = rng.choice(WORDS) if rng.random() < 0.5 else "".join(rng.choice("aeioubdgklmnprst") for _ in range(rng.randrange(3, 7)))
    return f"{word} backwards is {word[::-1]}"


def order(rng):
    words = rng.sample(WORDS, rng.randrange(3, 5))
    return f"in order: {' '.join(words)} = {' '.join(sorted(words))}"


def brackets(rng):
    opened, text = [], ""
    for left in range(rng.randrange(4, 13), 0, -1):
        if opened and (rng.random() < 0.5 or len(opened) >= left):
            text += opened.pop()
        else:
            pair = rng.choice(PAIRS)
            text += pair[0]
            opened.append(pair[1])
    return text + "".join(reversed(opened))


def recall(rng):
    names, towns = rng.sample(NAMES, 3), rng.sample(TOWNS, 3)
    asked = rng.randrange(3)
    said = ". ".join(f"{name} lives in {town}" for name, town in zip(names, towns))
    return f"{said}. where does {names[asked]} live? in {towns[asked]}"


KINDS = [sum_of, sum_of, gift, agreement, days, clock, backwards, order, brackets, recall]


def line(rng):
    text = rng.choice(KINDS)(rng)
    while True:
        more = rng.choice(KINDS)(rng)
        if len(text) + 2 + len(more) > LENGTH:
            return text
        text += "; " + more


def lines(seed, count):
    rng = random.Random(seed)
    return [line(rng) for _ in range(count)]


# --- the answers of a text -----------------------------------------------------------------------------------


def is_right(puzzle):
    """True or False of a puzzle with a checked answer, None of any other."""
    found = re.fullmatch(r"([\d+*-]+)=(\d+)", puzzle)
    if found and re.fullmatch(r"\d+([+*-]\d+)+", found[1]):
        return eval(re.sub(r"\b0+(\d)", r"\1", found[1])) == int(found[2])
    found = re.fullmatch(r"(\w+) backwards is (\w+)", puzzle)
    if found:
        return found[1][::-1] == found[2]
    found = re.fullmatch(r"(\w+) days? (after|before) (\w+) is (\w+)", puzzle)
    if found and found[1] in COUNTS and found[3] in DAYS and found[4] in DAYS:
        n = COUNTS.index(found[1]) * (1 if found[2] == "after" else -1)
        return DAYS[(DAYS.index(found[3]) + n) % 7] == found[4]
    found = re.fullmatch(r"(\d+) minutes after (\d+):(\d\d) is (\d+):(\d\d)", puzzle)
    if found:
        later, hour, minute, h, m = map(int, found.groups())
        return (60 * hour + minute + later) % (24 * 60) == 60 * h + m
    found = re.fullmatch(r"in order: ([a-z ]+) = ([a-z ]+)", puzzle)
    if found:
        return sorted(found[1].split()) == found[2].split()
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=5)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    if not arguments.check:
        print("\n".join(lines(arguments.seed, arguments.count)))
        return
    answers = [is_right(p) for text in sys.stdin for p in text.rstrip("\n").split("; ")]
    known = [a for a in answers if a is not None]
    print(f"{sum(known)} of {len(known)} answers are right, {len(answers) - len(known)} puzzles have none to check")


if __name__ == "__main__":
    main()
