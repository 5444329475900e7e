#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Dates written in many ways, and the same dates in ISO form.

    python3 data.py --seed 7 --count 20        prints pairs
    python3 data.py --vocab DIRECTORY          writes source_vocab.txt and target_vocab.txt

Conventions the data follow (and therefore the model learns):
  * day first: 3/4/2021, 3.4.2021, 3-4-21 are all the 3rd of April; with a month's name any order is found;
  * a number of four digits in front is the year: 2021/4/3 is year, month, day;
  * years are 1900 to 2099; two-digit years are 1950 to 2049 (49 is 2049, 50 is 1950);
  * a weekday, where it is written, is the right one.

Pure Python, no packages. Everything is drawn from one seeded random.Random.
"""
import argparse
import datetime
import random
import zlib

MONTHS = ["January", "February", "March", "April", "May", "June",
          "July", "August", "September", "October", "November", "December"]
MONTHS_SHORT = [["Jan"], ["Feb"], ["Mar"], ["Apr"], ["May"], ["Jun"],
                ["Jul"], ["Aug"], ["Sep", "Sept"], ["Oct"], ["Nov"], ["Dec"]]
WEEKDAYS = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"]
WEEKDAYS_SHORT = [["Mon"], ["Tue", "Tues"], ["Wed", "Weds"], ["Thu", "Thur", "Thurs"], ["Fri"], ["Sat"],
                  ["Sun"]]

FIRST_DAY = datetime.date(1900, 1, 1)
LAST_DAY = datetime.date(2099, 12, 31)
SHORT_FIRST, SHORT_LAST = 1950, 2049  # the years that may be written with two digits

# Ids 0, 1, 2 and the last one have a meaning; the other lines are the characters themselves.
BLANK, START, STOP = 0, 1, 2
SPECIAL = ["<blank>", "<s>", "</s>"]
UNKNOWN = "<unk>"
SOURCE_CHARACTERS = (" '(),-./" + "0123456789" + "ABCDEFGHIJKLMNOPQRSTUVWXYZ" + "abcdefghijklmnopqrstuvwxyz")
TARGET_CHARACTERS = "-0123456789"
SOURCE_VOCAB = SPECIAL + list(SOURCE_CHARACTERS) + [UNKNOWN]
TARGET_VOCAB = SPECIAL + list(TARGET_CHARACTERS) + [UNKNOWN]

MAX_SOURCE = 48  # characters; dates longer than this are not drawn
MAX_TARGET = 16  # <s>, ten characters, </s>, and some room


def encode(text, vocab):
    """The ids of a text, one per code point; characters that are not listed become the last id."""
    index = {token: i for i, token in enumerate(vocab)}
    return [index.get(c, len(vocab) - 1) for c in text]


def decode(ids, vocab):
    """The text of ids up to the first </s>."""
    ids = list(ids)
    if STOP in ids:
        ids = ids[:ids.index(STOP)]
    return "".join(vocab[i] for i in ids)


def is_held_out(day):
    """One day in ten is never trained on, in whatever way it is written."""
    return zlib.crc32(day.isoformat().encode()) % 10 == 0


def ordinal(n):
    if n % 100 in (11, 12, 13):
        return f"{n}th"
    return str(n) + {1: "st", 2: "nd", 3: "rd"}.get(n % 10, "th")


def write_year(rng, day, marks=True):
    """Four digits, or two of them where the year allows it, sometimes with an apostrophe."""
    if SHORT_FIRST <= day.year <= SHORT_LAST and rng.random() < 0.35:
        return ("'" if marks and rng.random() < 0.3 else "") + f"{day.year % 100:02d}"
    return str(day.year)


def write_month(rng, day):
    """A month's name, in full or short, the short one sometimes with a full stop."""
    if rng.random() < 0.5:
        return MONTHS[day.month - 1]
    return rng.choice(MONTHS_SHORT[day.month - 1]) + ("." if rng.random() < 0.15 else "")


def write_number(rng, n):
    return f"{n:02d}" if rng.random() < 0.5 else str(n)


def write_day(rng, day):
    return ordinal(day.day) if rng.random() < 0.45 else write_number(rng, day.day)


def numeric_day_first(rng, day):
    """3/3/2021, 03.03.21, 3-3-2021, 3 3 2021"""
    mark = rng.choice(["/", "/", "/", ".", ".", "-", "-", " "])
    numbers = [write_number(rng, day.day), write_number(rng, day.month)]
    return mark.join(numbers + [write_year(rng, day, marks=False)])


def numeric_year_first(rng, day):
    """2021-03-03, 2021.3.3, 2021/03/03, 20210303"""
    if rng.random() < 0.1:
        return day.strftime("%Y%m%d")
    mark = rng.choice(["-", "-", ".", "/"])
    return mark.join([str(day.year), write_number(rng, day.month), write_number(rng, day.day)])


def named_day_first(rng, day):
    """3 March 2021, 3rd Mar '21, 3. March 2021, 03-Mar-2021, 3 Mar, 2021"""
    if rng.random() < 0.25:
        mark = rng.choice(["-", "-", "/", "."])
        return mark.join([write_number(rng, day.day), rng.choice(MONTHS_SHORT[day.month - 1]),
                          write_year(rng, day, marks=False)])
    number = write_day(rng, day)
    if number[-1].isdigit() and rng.random() < 0.1:
        number += "."
    return f"{number} {write_month(rng, day)}{rng.choice(['', '', ','])} {write_year(rng, day)}"


def named_day_of(rng, day):
    """the 3rd of March, 2021; 3rd of March 2021; the 3rd day of March 2021"""
    the = rng.choice(["the ", "the ", "The ", ""])
    of = "day of" if rng.random() < 0.1 else "of"
    return (f"{the}{ordinal(day.day)} {of} {write_month(rng, day)}{rng.choice(['', ','])} "
            f"{write_year(rng, day)}")


def named_month_first(rng, day):
    """March 3, 2021; Mar 3rd 2021; March the 3rd, 2021; Mar-03-2021"""
    if rng.random() < 0.1:
        mark = rng.choice(["-", "/"])
        return mark.join([rng.choice(MONTHS_SHORT[day.month - 1]), write_number(rng, day.day),
                          write_year(rng, day, marks=False)])
    number = "the " + ordinal(day.day) if rng.random() < 0.15 else write_day(rng, day)
    return f"{write_month(rng, day)} {number}{rng.choice(['', ',', ','])} {write_year(rng, day)}"


def named_year_first(rng, day):
    """2021 March 3, 2021-Mar-03"""
    mark = rng.choice([" ", " ", "-"])
    month = rng.choice(MONTHS_SHORT[day.month - 1]) if mark == "-" else write_month(rng, day)
    return mark.join([str(day.year), month, write_number(rng, day.day)])


FORMS = [(numeric_day_first, 28), (numeric_year_first, 14), (named_day_first, 24), (named_day_of, 12),
         (named_month_first, 18), (named_year_first, 4)]


def add_weekday(rng, day, text):
    """Wednesday, ... or Weds ..., or behind: ... (Wed)"""
    full, short = WEEKDAYS[day.weekday()], rng.choice(WEEKDAYS_SHORT[day.weekday()])
    if rng.random() < 0.1:
        return f"{text} ({short})" if rng.random() < 0.5 else f"{text}, {full}"
    name = full if rng.random() < 0.4 else short + ("." if rng.random() < 0.1 else "")
    return name + rng.choice([" ", " ", ", "]) + text


def disturb(rng, text):
    """Case and small slips: lower, upper, a doubled or lost blank, a character outside the vocabulary."""
    draw = rng.random()
    if draw < 0.22:
        text = text.lower()
    elif draw < 0.30:
        text = text.upper()
    draw = rng.random()
    if draw < 0.02:
        text = text.replace(" ", "  ", 1)
    elif draw < 0.04:
        text = text.replace(", ", ",", 1)
    elif draw < 0.06:
        text = text.replace("-", "\u2013").replace("'", "\u2019")  # typographic: read as <unk>
    elif draw < 0.07:
        text = text + "."
    return text


def draw_day(rng):
    """Half of the days from 1990 to 2039, where most dates people write lie."""
    first, last = FIRST_DAY, LAST_DAY
    if rng.random() < 0.5:
        first, last = datetime.date(1990, 1, 1), datetime.date(2039, 12, 31)
    return first + datetime.timedelta(days=rng.randrange((last - first).days + 1))


def write_date(rng, day):
    """The day in one of the many ways; at most MAX_SOURCE characters."""
    while True:
        form = rng.choices([f for f, _ in FORMS], [w for _, w in FORMS])[0]
        text = form(rng, day)
        if rng.random() < 0.25:
            text = add_weekday(rng, day, text)
        text = disturb(rng, text)
        if len(text) <= MAX_SOURCE:
            return text


def sample(rng, held_out):
    """One pair (text, ISO date), from the days held out or from the others."""
    while True:
        day = draw_day(rng)
        if is_held_out(day) == held_out:
            return write_date(rng, day), day.isoformat()


def samples(seed, count, held_out):
    rng = random.Random(seed)
    return [sample(rng, held_out) for _ in range(count)]


def write_vocab(directory):
    for name, vocab in (("source_vocab.txt", SOURCE_VOCAB), ("target_vocab.txt", TARGET_VOCAB)):
        with open(f"{directory}/{name}", "w", encoding="utf-8") as f:
            f.write("".join(token + "\n" for token in vocab))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--vocab", metavar="DIRECTORY")
    arguments = parser.parse_args()
    if arguments.vocab:
        write_vocab(arguments.vocab)
        return
    for text, iso in samples(arguments.seed, arguments.count, held_out=True):
        print(f"{iso}  {text}")


if __name__ == "__main__":
    main()
