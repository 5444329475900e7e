#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Regular expressions of splitters: patterns.py TOKENS N [SEED] has TOKENS (tfmc_tokens) cut short texts with N generated expressions and
compares the pieces with what Python's re finds; then with pieces that Oniguruma gives where Python reads an expression otherwise, and
refusals. With --library it is the module tokenizers that is compared, which reads them all."""
import itertools
import json
import os
import random
import re
import subprocess
import sys
import tempfile

TEXTS = ["".join(w) for n in range(1, 6) for w in itertools.product("ab", repeat=n)] + ["{}", "a{a}b", "b{}a", "{ab", "aa{}b"]
REASONS = re.compile("it may match nothing|more than one of what may be nothing|its automaton is too large|more than 8000 steps")

# expression, text, pieces: what tokenizers 0.23 (Oniguruma) gives
KNOWN = [("a{1,2000}", "aabaaa", "aa b aaa"), ("ba{0}", "baab", "b aa b"), ("ba{0,0}", "baab", "b aa b"), ("a{2}?b", "aabb", "aab b"), ("a{1,2}?b", "aaab", "a aab"),
         ("a{1,2}+b", "aaab", "aaab"), ("a{2}+b", "aaaab", "aaaab"), ("a{,2}b", "aaab", "a aab"), ("a{,}b", "aab", "aab"), ("a{", "a{", "a{"), ("a{b}", "a{b}", "a{b}"),
         ("a{2}{2}", "aaaaa", "aaaa a"), ("a{2}{0,1}b", "aaab", "a aab"), ("b(?:a{0})a", "baba", "ba ba"), ("a{2}??b", "aab", "aab"), ("(?:a{3}){1,}", "aaaa", "aaa a"),
         (r"\w+", "x\u00b2\u00bdb", "x\u00b2\u00bdb"), (r"\w+", "a\u200cb", "a \u200c b")]
# Patterns that look far beyond their match, on texts where this succeeds and where it fails in the end.
FAR = ["a*b|a", "(?:aa)*b", "(?:aa)*b|a", "a{3}[ab]*c|a{2}b*d|a", "(?:ab){2}(?:ab)*c|[ab]", "a*?c|a{2}|b", "[ab]*c|[^b]", "a+(?!b)|a+b", "(?:a{5})*b|(?:a{7})*c|(?:a{11})*d|a{13}|a",
       "(?:a|b{2})*c|a", "a{40}b|a{39}|aa"]
LONG = ["a" * n + end for n in (31, 33, 35, 70, 77, 121) for end in ("", "b", "c", "bb", "ab" * 40 + "c", "d" + "a" * 50)]
REFUSED = [("a{100001}", "100001 repetitions, at most 100000 are possible"), ("a{1,99999999999999999999}", "99999999999999999999 repetitions"),
           ("a{2,1}", "at least 2 and at most 1 repetitions"), ("{2}a", "'{2}' at this place"), ("a|{0,1}", "'{0,1}' at this place"), ("a{0}", "it may match nothing"),
           ("a{1,100000}", "more than 8000 steps"), ("a" + "{1}" * 40000, "repetitions of repetitions of repetitions"),
           ("b(?:(?:(?:){100000}){100000}){100000}a", "more than one of what may be nothing")]


def atom(rng, depth):
    kind = rng.randrange(10 if depth < 2 else 6)
    if kind < 3:
        return rng.choice("aab")
    if kind < 6:
        return rng.choice(["[ab]", "[^a]", "[^b{]", ".", r"\{", r"\}"])
    if kind < 9:
        return "(?:" + any_of(rng, depth + 1) + ")"
    return rng.choice(["(?=a)", "(?!a)", "(?=b)", "(?!b)", "(?![ab])"])


def quantity(rng):
    if rng.random() < 0.5:
        return ""
    a, b = sorted([rng.randrange(4), rng.choice([0, 1, 2, 3, 3, 1500])])
    q = rng.choice(["*", "+", "?", f"{{{a}}}", f"{{{a},}}", f"{{{a},{b}}}", f"{{{a},{b}}}", f"{{,{b}}}", "{0}", "{0,0}"])
    return q + ("?" if rng.random() < 0.3 and ("," in q or "{" not in q) else "")


def repeated(rng, depth):
    a = atom(rng, depth)
    q = "" if a.startswith(("(?=", "(?!")) else quantity(rng)
    return f"(?:{a}{q}){quantity(rng)}" if rng.random() < 0.15 and q else a + q


def any_of(rng, depth):
    return "|".join("".join(repeated(rng, depth) for _ in range(rng.randrange(1, 4))) for _ in range(rng.choice([1, 1, 1, 2, 3])))


def by_python(regex, text):
    at, pieces = 0, []
    for m in re.finditer(regex, text):
        pieces += [p for p in (text[at:m.start()], m.group()) if p]
        at = m.end()
    return pieces + ([text[at:]] if text[at:] else [])


def by_library(regex, text):
    from tokenizers import Regex, pre_tokenizers
    try:
        compiled = Regex(regex)
    except Exception:  # a quantity behind nothing but a look at the next character
        return None
    return [p for p, _ in pre_tokenizers.Split(compiled, "isolated").pre_tokenize_str(text)]


def by_tokens(tokens, path, regex, texts, wanted):
    """Pieces of each text, those that are not wanted as '?'; or None with the message."""
    words = ["?"] + sorted({p for pieces in wanted for p in pieces})
    with open(path, "w") as f:
        json.dump({"model": {"type": "WordLevel", "vocab": {w: i for i, w in enumerate(words)}, "unk_token": "?"},
                   "pre_tokenizer": {"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated", "invert": False}}, f)
    got = subprocess.run([tokens, path, "ids"], input="".join(t + "\0" for t in texts), capture_output=True, text=True)
    if got.returncode == 1 and got.stderr:
        return None, got.stderr
    if got.returncode:
        sys.exit(f"{regex}: exit {got.returncode}: {got.stderr}")
    return [[words[int(i)] for i in line.split()] for line in got.stdout.split("\n")[:len(texts)]], ""


def main():
    library = "--library" in sys.argv
    args = [a for a in sys.argv[1:] if a != "--library"]
    tokens, n, seed = args[0], int(args[1]), int(args[2]) if len(args) > 2 else 1
    rng, reference = random.Random(seed), by_library if library else by_python
    bad = refused = 0
    cases = [(rng.choice(["", "a", "b", "[ab]"]) + f"(?:{any_of(rng, 0)})", rng.sample(TEXTS, 40)) for _ in range(n)]
    cases = [(regex, texts, [reference(regex, t) for t in texts]) for regex, texts in cases + [(regex, LONG) for regex in FAR]]
    cases = [c for c in cases if None not in c[2]] + [(regex, [text], [want.split()]) for regex, text, want in KNOWN]
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "t.json")
        for i, (regex, texts, wanted) in enumerate(cases):
            pieces, says = by_tokens(tokens, path, regex, texts, wanted)
            if pieces is None and i < n and REASONS.search(says):
                refused += 1
            elif pieces != wanted:
                bad += 1
                print(f"{regex}: {says or [c for c in zip(texts, pieces, wanted) if c[1] != c[2]][0]}")
        for regex, message in REFUSED:
            got, says = by_tokens(tokens, path, regex, ["a"], [])
            if got is not None or message not in says:
                bad += 1
                print(f"{regex[:60]}: {got or says[:200]}, not refused with: {message}")
    print(f"{n} expressions, {refused} refused, {bad} wrong")
    sys.exit(bad != 0 or refused > n // 2)


main()
