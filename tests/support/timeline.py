# SPDX-License-Identifier: Apache-2.0
"""
timeline.py FILE WORKERS EXPRESSION: checks a file of Chrome's trace events. It is JSON with complete events and names of
lanes alone; events of a lane nest; each group runs on as many lanes as its call has workers. Of the call that is nearest
to it, groups and waits of every lane add up to the call's time within 5 %. EXPRESSION over `groups` (events), `calls`,
`names` (of groups) has to hold.
"""
import json
import sys
from collections import defaultdict

TOLERANCE = .05


def nest(events):
    """Calls each event's parent by its own events: [(event, [children])]."""
    open_events, roots = [], []
    for e in sorted(events, key=lambda e: (e["ts"], -e["dur"])):
        while open_events and open_events[-1][0]["ts"] + open_events[-1][0]["dur"] <= e["ts"] + 1e-3:
            open_events.pop()
        node = (e, [])
        if open_events:
            parent = open_events[-1][0]
            assert e["ts"] + e["dur"] <= parent["ts"] + parent["dur"] + 2e-3, ("events cross", parent, e)
            open_events[-1][1].append(node)
        else:
            roots.append(node)
        open_events.append(node)
    return roots


def main():
    with open(sys.argv[1], encoding="utf-8") as f:
        trace = json.load(f)
    workers, events = int(sys.argv[2]), trace["traceEvents"]
    assert trace["displayTimeUnit"] == "ns" and trace["otherData"] == {"dropped": 0}, trace["otherData"]
    meta = [e for e in events if e["ph"] == "M"]
    complete = [e for e in events if e["ph"] == "X"]
    assert len(meta) + len(complete) == len(events)
    assert all(e["ts"] >= 0 and e["dur"] >= 0 and e["pid"] == 0 and e["name"] for e in complete)
    lanes = defaultdict(list)
    for e in complete:
        lanes[e["tid"]].append(e)
    assert sorted(lanes) == list(range(workers)), sorted(lanes)
    assert {m["tid"]: m["args"]["name"] for m in meta if m["name"] == "thread_name"} == {k: "worker %d" % k for k in range(workers)}
    assert [m["args"]["name"] for m in meta if m["name"] == "process_name"] != []
    roots = nest(lanes[0])
    calls = [e for e, _ in roots]
    assert calls and all(e["cat"] == "call" for e in calls), "a group outside of a call"
    assert all(not below for _, children in roots for _, below in children)
    worst = []
    for call, children in roots:
        end = call["ts"] + call["dur"]
        shares = []
        for k in range(workers):
            inside = [e for e in lanes[k] if e["cat"] != "call" and call["ts"] <= e["ts"] < end]
            assert sum(e["cat"] == "group" for e in inside) == sum(c["cat"] == "group" for c, _ in children)
            nest(inside)
            shares.append(sum(e["dur"] for e in inside) / call["dur"])
        worst.append(min(shares))
    assert max(worst) <= 1.0001 and 1 - max(worst) < TOLERANCE, ("lanes do not add up to a call", worst)
    groups = [e for e in complete if e["cat"] == "group"]
    names = [e["name"] for e in groups]
    assert eval("(" + sys.argv[3] + ")", {"groups": groups, "calls": calls, "names": names}), (sys.argv[3], sorted(set(names)))
    print(len(calls), "calls,", len(groups), "groups, of a call", round(100 * max(worst), 1), "%")


main()
