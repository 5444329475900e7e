#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tales of a few sentences about two animals, drawn from a grammar, and the facts that hold in them.

    python3 data.py --count 5 [--seed 1]     prints tales
    python3 data.py --check < FILE           reads tales, one on a line, and says how many keep their facts

Who wants what, where it is found, who helps and what becomes of them is said once and has to stay true to the end of a
tale; that is what a model has to learn beside spelling and grammar. `facts` reads them back out of a text.
"""
import argparse
import random
import re
import sys

NAMES = ("Ada Bela Cora Dario Elin Fenja Goran Hana Ivo Jora Kasimir Lotte Milo Nuria Oskar Paola Quinn Rasmus Selma "
         "Tove Ulla Vito Wanda Yann Zoë").split()
ANIMALS = "badger bear crane crow duck fox frog goat hare hedgehog lynx mole mouse otter owl seal swan toad wolf".split()
HOMES = ["by the river", "under an old oak", "on a windy hill", "behind the mill", "at the edge of the forest",
         "in a hollow tree", "near the harbour", "on an island in the lake"]
TREASURES = ["blue kettle", "silver bell", "red lantern", "little drum", "woollen scarf", "brass compass",
             "glass marble", "wooden flute", "paper kite", "golden button"]
PLACES = ["under the bridge", "behind the waterfall", "in the baker's cellar", "on top of the tower",
          "between two stones", "in the tall grass", "at the bottom of the well", "inside an empty barrel"]
TIMES = ["One morning", "One rainy day", "Last winter", "On a Sunday", "Early in spring", "One night"]
FEELINGS = ["sad", "angry", "worried", "puzzled"]
GIFTS = ["a jar of honey", "three ripe plums", "a loaf of bread", "a cup of warm milk", "a basket of nuts"]
PRONOUNS = [("he", "his"), ("she", "her")]


def article(noun):
    return ("an " if noun[0] in "aeiou" else "a ") + noun


def sentence(text):
    return text[0].upper() + text[1:]


def tale(rng):
    """One tale, a line of text."""
    hero, helper = rng.sample(NAMES, 2)
    kind, other = rng.sample(ANIMALS, 2)
    (he, his), thing, place, gift = rng.choice(PRONOUNS), rng.choice(TREASURES), rng.choice(PLACES), rng.choice(GIFTS)
    parts = [
        rng.choice([f"Once there was {article(kind)} named {hero}, who lived {rng.choice(HOMES)}.",
                    f"{hero} was {article(kind)} and lived {rng.choice(HOMES)}."]),
        rng.choice([f"{sentence(he)} loved nothing more than {his} {thing}.",
                    f"Of all {his} things {he} liked {his} {thing} best."]),
        f"{rng.choice(TIMES)} the {thing} was gone, and {hero} was very {rng.choice(FEELINGS)}.",
        rng.choice([f"{sentence(he)} asked {article(other)} named {helper} for help.",
                    f"Then {he} met {helper} the {other} and told the whole story."]),
        rng.choice([f'"I saw it {place}!" said {helper}.', f'{helper} said, "Have you looked {place}?"']),
        rng.choice([f"And {place} {hero} found the {thing}.",
                    f"They went together, and there it was: the {thing}, {place}."]),
        rng.choice([f"{hero} gave {helper} {gift}, and {helper} shared it with {hero}.",
                    f"To say thank you, {hero} brought {gift} to {helper}."]),
        rng.choice([f"From that day on the {kind} and the {other} were friends.",
                    f"Since then {hero} and {helper} have been friends."]),
    ]
    return " ".join(parts)


def tales(seed, count):
    rng = random.Random(seed)
    return [tale(rng) for _ in range(count)]


def one_of(words):
    return r"\b(?:" + "|".join(re.escape(w) for w in words) + r")\b"


NAME, ANIMAL, THING, PLACE = one_of(NAMES), one_of(ANIMALS), one_of(TREASURES), one_of(PLACES)
BEGIN = re.compile(rf"(?:Once there was an? (?P<kind>{ANIMAL}) named (?P<hero>{NAME}), who"
                   rf"|(?P<hero2>{NAME}) was an? (?P<kind2>{ANIMAL}) and) lived ")
HELPER = re.compile(rf"(?:[Hh]e asked an? (?P<other>{ANIMAL}) named (?P<helper>{NAME}) for help"
                    rf"|met (?P<helper2>{NAME}) the (?P<other2>{ANIMAL}) and told)")


def either(found, name):
    return found.group(name) or found.group(name + "2")


def keeps_its_facts(text):
    """Whether a tale is whole and every name, animal, thing and place in it is the one that was said first."""
    begin, helper = BEGIN.match(text), HELPER.search(text)
    if not begin or not helper or not text.endswith("friends."):
        return False
    hero, kind = either(begin, "hero"), either(begin, "kind")
    friend, other = either(helper, "helper"), either(helper, "other")
    things, places = re.findall(THING, text), re.findall(PLACE, text)
    names, animals = re.findall(NAME, text), re.findall(ANIMAL, text)
    ends = {f"the {kind} and the {other} were friends.", f"{hero} and {friend} have been friends."}
    return (hero != friend and set(names) == {hero, friend} and set(animals) == {kind, other}
            and len(things) == 3 and len(set(things)) == 1 and len(places) == 2 and len(set(places)) == 1
            and any(text.endswith(end) for end in ends))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    if arguments.check:
        lines = [line.strip() for line in sys.stdin if line.strip()]
        print(f"{sum(map(keeps_its_facts, lines))} of {len(lines)} tales keep their facts")
    else:
        print("\n".join(tales(arguments.seed, arguments.count)))


if __name__ == "__main__":
    main()
