#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Sentences of a small world, with several ways to say the same. Pure Python.

    data.py --count 20 --seed 1         prints sentences

A meaning is (who, does what, to whom, where, when); place and time may be absent. A way to say it chooses words
of each concept, active, passive or cleft form, and the order of its parts. Who does it to whom is told by the form
only: "the dog is chased by the cat" holds the words of "the dog chased the cat" and means the opposite.
Every tenth meaning (by a hash of who, what and whom) is held out from the training.
"""
import argparse
import hashlib
import random

ACTORS = {"child": ["kid", "child", "youngster"], "dog": ["dog", "hound"], "cat": ["cat", "kitten"],
          "farmer": ["farmer", "grower"], "doctor": ["doctor", "physician"], "thief": ["thief", "burglar", "robber"],
          "officer": ["officer", "policeman"], "teacher": ["teacher", "instructor"], "sailor": ["sailor", "seaman"],
          "singer": ["singer", "vocalist"], "king": ["king", "monarch"], "stranger": ["stranger", "outsider"]}
ACTIONS = {"chase": ["chased", "pursued"], "help": ["helped", "assisted", "aided"], "see": ["saw|seen", "noticed", "spotted"],
           "greet": ["greeted", "welcomed"], "scare": ["scared", "frightened"], "call": ["called", "phoned"],
           "find": ["found", "discovered"], "hide": ["hid|hidden", "concealed"], "carry": ["carried", "hauled"],
           "scold": ["scolded", "reprimanded"]}
PLACES = {"park": ["in the park", "in the garden"], "street": ["on the street", "on the road"],
          "house": ["at home", "in the house"], "harbour": ["at the harbour", "near the port"],
          "forest": ["in the forest", "in the woods"], "market": ["at the market", "in the shop"]}
TIMES = {"night": ["at night", "after dark"], "morning": ["in the morning", "at dawn"],
         "today": ["today", "this day"], "yesterday": ["yesterday", "the day before"]}
LONGEST = 20 # words; the longest sentence has fewer


def held_out(who, action, whom):
    return hashlib.sha256(f"{who} {action} {whom}".encode()).digest()[0] % 10 == 0


def meaning(rng, kind):
    """kind: "train" or "held out" """
    while True:
        who, whom = rng.sample(sorted(ACTORS), 2)
        action = rng.choice(sorted(ACTIONS))
        if held_out(who, action, whom) == (kind == "held out"):
            return (who, action, whom, rng.choice([None, *sorted(PLACES)]), rng.choice([None, *sorted(TIMES)]))


def opposite(m):
    return (m[2], m[1], m[0], m[3], m[4])


def say(rng, m):
    """One way to say a meaning, a text."""
    who, whom = (rng.choice(["the", "a"]) + " " + rng.choice(ACTORS[x]) for x in (m[0], m[2]))
    past, _, participle = rng.choice(ACTIONS[m[1]]).partition("|")
    participle = participle or past
    body = rng.choice([f"{who} {past} {whom}", f"{whom} was {participle} by {who}",
                       f"it was {who} that {past} {whom}", f"it was {whom} that was {participle} by {who}"])
    front, back = [], []
    for table, concept in ((PLACES, m[3]), (TIMES, m[4])):
        if concept is not None:
            (front if rng.random() < 0.4 and not front else back).append(rng.choice(table[concept]))
    rng.shuffle(back)
    return " ".join(front + [body] + back)


def vocabulary():
    """Word number 0 is the filling, 1 any other word."""
    words = {"the", "a", "was", "by", "it", "that"}
    for table in (ACTORS, ACTIONS, PLACES, TIMES):
        for texts in table.values():
            words.update(word for text in texts for word in text.replace("|", " ").split())
    return ["<fill>", "<other>"] + sorted(words)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    rng = random.Random(args.seed)
    for _ in range(args.count):
        print(say(rng, meaning(rng, "held out")))


if __name__ == "__main__":
    main()
