#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Invented names from four invented languages, and the exact probability of any word under them.

    python3 data.py --seed 7 --count 20        prints names, each with its language
    python3 data.py --score WORD ...           prints log p of words under the generator
    python3 data.py --vocab DIRECTORY          writes vocab.txt
    python3 data.py --check                    compares log_probability with how often names are drawn

A name is drawn in four steps: its language, the harmony of the language (which set of nuclei all of its syllables
use), the number of syllables, and for each syllable an onset, a nucleus and a coda. First syllables have onsets
and last ones codas of their own; everything else is drawn independently. A word can often be read in several ways
(other syllables, another language): log_probability sums over all of them.

Pure Python, no packages. Everything is drawn from one seeded random.Random.
"""
import argparse
import functools
import math
import random
import zlib

# Ids 0, 1, 2 and the last one have a meaning; the other lines are the characters themselves.
BLANK, START, STOP = 0, 1, 2
SPECIAL = ["<blank>", "<s>", "</s>"]
UNKNOWN = "<unk>"
CHARACTERS = "'" + "abcdefghijklmnopqrstuvwxyz" + "áéëíóúōū"
VOCAB = SPECIAL + list(CHARACTERS) + [UNKNOWN]

MAX_LENGTH = 21  # characters of the longest name: with <s> and </s> it fits into the 24 positions of the model


class Choice:
    """Strings with weights, written as "kr:3 s:2 -": - is the empty string, 1 the weight that is left out."""

    def __init__(self, text):
        pairs = [item.partition(":")[::2] for item in text.split()]
        self.strings = ["" if string == "-" else string for string, _ in pairs]
        weights = [float(weight or 1) for _, weight in pairs]
        self.p = [weight / sum(weights) for weight in weights]
        self.cumulative = [sum(self.p[:i + 1]) for i in range(len(self.p))]

    def draw(self, rng):
        return rng.choices(self.strings, cum_weights=self.cumulative)[0]

    def items(self):
        return zip(self.strings, self.p)


class Language:
    """counts: numbers of syllables; harmonies: (weight, nuclei); onsets and codas by the place of the syllable"""

    def __init__(self, name, counts, harmonies, first, inner, coda, last):
        self.name = name
        self.counts = Choice(counts)
        self.nuclei = [Choice(nuclei) for _, nuclei in harmonies]
        total = sum(weight for weight, _ in harmonies)
        self.harmonies = [weight / total for weight, _ in harmonies]
        self.first, self.inner, self.coda, self.last = (Choice(c) for c in (first, inner, coda, last))

    def parts(self, is_first, is_last):
        return self.first if is_first else self.inner, self.last if is_last else self.coda

    def draw(self, rng):
        nuclei = rng.choices(self.nuclei, self.harmonies)[0]
        count = int(self.counts.draw(rng))
        word = ""
        for i in range(count):
            onset, coda = self.parts(i == 0, i == count - 1)
            word += onset.draw(rng) + nuclei.draw(rng) + coda.draw(rng)
        return word

    @functools.lru_cache(maxsize=None)
    def syllables(self, harmony, is_first, is_last):
        """{spelling: probability} of one syllable; spellings that come about in several ways are added up."""
        onset, coda = self.parts(is_first, is_last)
        table = {}
        for o, p_o in onset.items():
            for n, p_n in self.nuclei[harmony].items():
                for c, p_c in coda.items():
                    table[o + n + c] = table.get(o + n + c, 0.0) + p_o * p_n * p_c
        return table

    def probability(self, word):
        """P(word | language): over harmonies, numbers of syllables and the ways to cut the word into them"""
        return sum(p_h * p_count * self.cut(word, harmony, int(count))
                   for harmony, p_h in enumerate(self.harmonies) for count, p_count in self.counts.items())

    def cut(self, word, harmony, count):
        """P(word | harmony, count). reached[i]: probability that the syllables so far spell word[:i]"""
        reached = [1.0] + [0.0] * len(word)
        for syllable in range(count):
            table = self.syllables(harmony, syllable == 0, syllable == count - 1)
            following = [0.0] * len(reached)
            for i, p in enumerate(reached):
                for end in range(i + 1, len(reached) if p else 0):
                    following[end] += p * table.get(word[i:end], 0.0)
            reached = following
        return reached[len(word)]


# (weight, language). The spellings overlap, so that the beginning of a name often leaves its language open.
LANGUAGES = [
    (0.30, Language(
        "Vargish",  # the north: heavy ends; dark vowels or bright ones, never both in a name
        counts="1:1 2:6 3:3",
        harmonies=[(3, "a:4 o:3 u:2 au"), (2, "e:4 i:3 ei y")],
        first="b d:2 dr:2 f g:2 gr h:3 k:2 kr:2 r:2 s sk:2 st th:2 v:3 br:1",
        inner="b d:2 g:2 k l:2 m:2 n r:3 th v:3 nd st",
        coda="-:5 r:3 n:2 l:2 s g",
        last="rn:2 ld:2 rg:2 nd:2 r:3 n:2 lm:2 gar th:2 k vik -")),
    (0.30, Language(
        "Selian",  # the islands: many vowels, soft consonants
        counts="2:3 3:5 4:2",
        harmonies=[(1, "a:5 e:4 i:4 o:2 ia ea ië á é")],
        first="-:3 l:4 m:3 n:2 r:2 s:3 t v:2 c al el",
        inner="l:5 m:2 n:3 r:4 s:2 t:2 v:2 ss ll:2 nd",
        coda="-:8 n l r",
        last="-:6 n:3 l:2 s:2 th r:1")),
    (0.25, Language(
        "Tanokan",  # the east: open syllables, long vowels
        counts="2:3 3:5 4:3 5:1",
        harmonies=[(1, "a:5 i:4 u:3 e:2 o:4 ō ū")],
        first="-:2 k:4 s:2 sh:2 t:3 ch n:2 h:2 m:3 y:2 r w",
        inner="k:4 s:2 sh:2 t:2 ts n:3 h m:3 y r:4 g d z:1",
        coda="-:9 n:1",
        last="-:8 n:2")),
    (0.15, Language(
        "Xatl",  # the south: stops behind an apostrophe; accents in all of a name or in none
        counts="1:1 2:5 3:4",
        harmonies=[(2, "a:4 i:3 u:2 o aa e"), (1, "á:4 í:3 ú:2 ó é")],
        first="x:4 tz:3 q:3 ch:3 k':2 t' p m:2 n b:2 y h",
        inner="x:2 tz q:2 ch:2 k':2 t':2 p l:3 m:2 n b y",
        coda="-:4 l:2 k x b n",
        last="l:3 k:3 tl:4 n:2 b:2 x:2 m tz -:2")),
]
WEIGHTS = [weight for weight, _ in LANGUAGES]


def draw(rng):
    """One name and its language."""
    language = rng.choices([language for _, language in LANGUAGES], WEIGHTS)[0]
    return language.draw(rng), language.name


def log_probability(word):
    """log P(word), natural: the sum over languages and readings; -inf for words no language makes"""
    p = sum(weight * language.probability(word) for weight, language in LANGUAGES)
    return math.log(p) if p > 0 else -math.inf


def is_held_out(word):
    """One word in ten is never trained on."""
    return zlib.crc32(word.encode()) % 10 == 0


def sample(rng, held_out):
    """A name that is held out, or one that is not."""
    while True:
        word, _ = draw(rng)
        if is_held_out(word) == held_out:
            return word


def samples(seed, count, held_out):
    rng = random.Random(seed)
    return [sample(rng, held_out) for _ in range(count)]


def encode(word):
    """The ids of a word, one per code point; characters that are not listed become the last id."""
    index = {token: i for i, token in enumerate(VOCAB)}
    return [index.get(c, len(VOCAB) - 1) for c in word]


def decode(ids):
    """The text of ids up to the first </s>."""
    ids = list(ids)
    if STOP in ids:
        ids = ids[:ids.index(STOP)]
    return "".join(VOCAB[i] for i in ids)


def write_vocab(directory):
    with open(f"{directory}/vocab.txt", "w", encoding="utf-8") as f:
        f.write("".join(token + "\n" for token in VOCAB))


def longest():
    """Characters of the longest name that can be drawn."""
    most = 0
    for _, language in LANGUAGES:
        for harmony in range(len(language.harmonies)):
            def size(is_first, is_last, language=language, harmony=harmony):
                return max(len(s) for s in language.syllables(harmony, is_first, is_last))

            for count in map(int, language.counts.strings):
                length = size(True, count == 1)
                length += sum(size(False, i == count - 1) for i in range(1, count))
                most = max(most, length)
    return most


def check(count=60000):
    """Compares frequencies with probabilities; None, or what is wrong.

    Names of a first draw make up sets, one for each length. In a second draw, which knows nothing of the first,
    each set must turn up as often as the sum of the probabilities of its names says.
    """
    rng = random.Random(1)
    first = {draw(rng)[0] for _ in range(count // 3)}
    if longest() > MAX_LENGTH or any(c not in CHARACTERS for c in "".join(first)):
        return "names are too long or have characters that are not listed"
    expected, seen = [0.0] * (MAX_LENGTH + 1), [0] * (MAX_LENGTH + 1)
    for word in first:
        expected[len(word)] += count * math.exp(log_probability(word))
    for word in (draw(rng)[0] for _ in range(count)):
        seen[len(word)] += word in first
    sets = [(n, p) for n, p in zip(seen, expected) if p >= 50]
    worst = max(abs(n - p) / math.sqrt(p) for n, p in sets)
    print(f"{len(sets)} sets of names, {sum(n for n, _ in sets)} draws, {worst:.2f} standard deviations at most")
    return None if len(sets) >= 5 and worst < 4.5 else "the frequencies are not the probabilities"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--vocab", metavar="DIRECTORY")
    parser.add_argument("--score", nargs="+", metavar="WORD")
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    if arguments.check:
        raise SystemExit(check())
    if arguments.vocab:
        write_vocab(arguments.vocab)
        return
    for word in arguments.score or []:
        print(f"{log_probability(word):12.4f}  {word}")
    rng = random.Random(arguments.seed)
    for _ in range(0 if arguments.score else arguments.count):
        word, language = draw(rng)
        print(f"{word:20s} {language}")


if __name__ == "__main__":
    main()
