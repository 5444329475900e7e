#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Finds two emitting calls in one argument list.

C does not define the order in which arguments are evaluated. Two calls in one list that each append an instruction, as in
kb_add(k, kb_mul(..), kb_load(..)), make the bytes of objects depend on the compiler that built tfmc. The same holds for
the operands of one operator and the members of one initializer.

A function emits if it calls one that does, beginning with ROOTS. Macros are functions with a body; calls through the
members in MEMBERS emit. Constants may stand anywhere: back ends print them where they are used, so that their position
in the list of instructions does not reach any output.

usage: emit_order.py DIRECTORY...      prints the location of every such list; exits 1 if there is one
"""
import re
import sys
from pathlib import Path

ROOTS = {'kb_emit', 'build_value'}
CONSTANTS = {'kb_f32', 'kb_f64', 'kb_i32', 'kb_i64', 'kb_index', 'kb_bool', 'kb_null'}
MEMBERS = {'body', 'emit'}
TYPED = re.compile(r'irb_\w+$')  # builder calls generated from ops.def

TOKEN = re.compile(r'\n|[A-Za-z_]\w*|\d[\w.]*|->|&&|\|\||[-+*/%&|^<>=!]=|<<|>>|\+\+|--|\S')
BLANK = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.S)
DEFINE = re.compile(r'[ \t]*#[ \t]*define[ \t]+(\w+)\(([^)]*)\)(.*)')
NAME = re.compile(r'[A-Za-z_]\w*$')
STATEMENTS = {'if', 'for', 'while', 'switch', 'return', 'do', 'else', 'case', 'default', 'goto', 'break', 'continue'}
SEQUENCED = {';', ',', '&&', '||', '?', ':'}
OPERATORS = set('+ - * / % & | ^ << >> < > <= >= == != = += -= *= /= %= &= |= ^='.split())
CLOSES = {'(': ')', '{': '}', '[': ']'}


class Group:
    """A bracket and its contents: tokens (text, line) and groups."""
    def __init__(self, kind, line):
        self.kind, self.line, self.items = kind, line, []


def tokens(text):
    blank = lambda m: ('""' if m.group()[0] == '"' else '0' if m.group()[0] == "'" else ' ') + '\n' * m.group().count('\n')
    line = 1
    for m in TOKEN.finditer(BLANK.sub(blank, text)):
        if m.group() == '\n':
            line += 1
        else:
            yield m.group(), line


def tree(stream):
    top = Group('', 0)
    stack = [top]
    for text, line in stream:
        if text in CLOSES:
            group = Group(text, line)
            stack[-1].items.append(group)
            stack.append(group)
        elif text in ')}]':
            if len(stack) > 1 and CLOSES[stack[-1].kind] == text:
                stack.pop()
        else:
            stack[-1].items.append((text, line))
    return top


def is_token(item, *texts):
    return isinstance(item, tuple) and item[0] in texts


def is_name(item):
    return isinstance(item, tuple) and NAME.match(item[0]) and item[0] not in STATEMENTS | {'sizeof'}


def is_group(item, kind):
    return isinstance(item, Group) and item.kind == kind


def calls(items):
    """Names of all calls in the items; of members '.name'."""
    for i, item in enumerate(items):
        if isinstance(item, Group):
            yield from calls(item.items)
        elif is_name(item) and i + 1 < len(items) and is_group(items[i + 1], '('):
            member = i > 0 and is_token(items[i - 1], '.', '->')
            yield '.' + item[0] if member else item[0]


class File:
    def __init__(self, path):
        self.path = path
        self.static, self.bodies, self.macros = set(), [], []
        lines = path.read_text().replace('\\\n', '\x01').split('\n')
        plain = []
        line = 1
        for text in lines:
            joined = text.count('\x01')
            if text.lstrip().startswith('#'):
                m = DEFINE.match(text.replace('\x01', ' '))
                if m:
                    # all tokens get the line of the macro's name
                    self.macros.append((m.group(1), [(t, line) for t, _ in tokens(m.group(3))]))
                text = '\x01' * joined
            plain.append(text.replace('\x01', '\n'))
            line += joined + 1
        self.functions(tree(tokens('\n'.join(plain))).items)
        for name, body in self.macros:
            self.static.add(name)
            self.bodies.append((name, tree(body).items))

    def functions(self, items):
        start = 0
        for i, item in enumerate(items):
            if is_group(item, '{') and i >= 2 and is_group(items[i - 1], '(') and is_name(items[i - 2]):
                name = items[i - 2][0]
                if any(is_token(t, 'static') for t in items[start:i]):
                    self.static.add(name)
                self.bodies.append((name, item.items))
            if is_group(item, '{') or is_token(item, ';'):
                start = i + 1


def emitters(files):
    """Keys of functions that emit: (path, name) of static ones, (None, name) of others."""
    graph = {}
    for f in files:
        for name, body in f.bodies:
            key = (f.path if name in f.static and f.path.suffix != '.h' else None, name)
            graph.setdefault(key, set()).update(resolve(f, c) for c in calls(body))
    found = {(None, name) for name in ROOTS} | {(None, '.' + name) for name in MEMBERS}
    for targets in graph.values():
        found |= {t for t in targets if TYPED.match(t[1]) and t not in graph}
    while True:
        more = {key for key, targets in graph.items() if key not in found and targets & found}
        if not more:
            return found
        found |= more


def resolve(f, name):
    return (f.path if name in f.static and f.path.suffix != '.h' else None, name)


def split(items, at):
    part, parts = [], []
    for item in items:
        if isinstance(item, tuple) and item[0] in at:
            parts.append(part)
            part = []
        else:
            part.append(item)
    return parts + [part]


def is_block(group):
    return any(is_token(i, ';', *STATEMENTS) for i in group.items) or not group.items


def check(f, items, found, report):
    def emitting_call(part):
        return next((c.lstrip('.') for c in calls(part) if c not in CONSTANTS and resolve(f, c) in found), None)

    def unordered(parts, line):
        names = [n for n in map(emitting_call, parts) if n]
        if len(names) > 1:
            report(line, names)

    for i, item in enumerate(items):
        if not isinstance(item, Group):
            continue
        before = items[i - 1] if i else None
        is_call = item.kind == '(' and before is not None and \
            (is_name(before) or is_group(before, '(') or is_group(before, '['))
        is_list = item.kind == '{' and not is_block(item)
        if is_call or is_list:
            unordered(split(item.items, {','}), item.line)
        check(f, item.items, found, report)
    for part in split(items, SEQUENCED):
        while part and is_group(part[0], '{'):
            part = part[1:]
        # a block ends an expression without a semicolon
        for piece in pieces(part):
            line = next((p.line if isinstance(p, Group) else p[1] for p in piece), 0)
            unordered(split(piece, OPERATORS), line)


def pieces(part):
    piece = []
    for item in part:
        if is_group(item, '{') and is_block(item):
            yield piece
            piece = []
        else:
            piece.append(item)
    yield piece


def main():
    paths = sorted(p for folder in sys.argv[1:] for p in Path(folder).rglob('*.[ch]'))
    files = [File(p) for p in paths]
    found = emitters(files)
    places = set()
    for f in files:
        for _, body in f.bodies:
            check(f, body, found, lambda line, names: places.add((f.path, line, ', '.join(names))))
    for path, line, names in sorted(places):
        print(f'{path}:{line}: two emitting calls in one list: {names}')
    sys.exit(1 if places else 0)


main()
