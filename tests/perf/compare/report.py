# SPDX-License-Identifier: Apache-2.0
"""Figures of one row, and the line that shows them."""
import statistics

import rows

HEAD = (
    f"{'row':<8} {'type':<4} {'thr':>3} {'tfmc ms':>9} {'median':>9} {'best peer':<12} {'ms':>9} {'median':>9} {'ratio':>6} "
    f"{'peak':>6} {'peer':>6} {'GFLOP/s':>8} {'GB/s':>6}  others"
)


def result(row, precision, threads, rounds, best, errors):
    """One row of the JSON file. rounds: {system: [(least, median) of a slice]}, seconds; best: peaks."""
    least = {name: min(r[0] for r in found) for name, found in rounds.items()}
    median = {name: statistics.median(r[1] for r in found) for name, found in rounds.items()}
    peers = [name for name in least if name != "tfmc"]
    peer = min(peers, key=lambda name: least[name]) if peers else None
    decodes = row.mode == "decode"
    work, peak = (rows.token_bytes(row, precision), best[1]) if decodes else (rows.flops(row), best[0])

    def percent(name):
        return round(100 * work / least[name] / peak, 1) if name else None

    found = {
        "name": row.name, "precision": precision.name, "threads": threads, "tfmc_ms": least["tfmc"] * 1e3,
        "tfmc_median_ms": median["tfmc"] * 1e3, "best_peer": peer,
        "best_peer_ms": least[peer] * 1e3 if peer else None,
        "best_peer_median_ms": median[peer] * 1e3 if peer else None,
        "ratio": least[peer] / least["tfmc"] if peer else None,
        "median_ratio": median_ratio(rounds, peer) if peer else None,
        "peak_percent": percent("tfmc"), "peer_peak_percent": percent(peer),
        "peak_kind": "read" if decodes else precision.peak, "peak_gflops": best[0] / 1e9, "peak_gbs": best[1] / 1e9,
        "rounds": len(rounds["tfmc"]), "peers_ms": {name: least[name] * 1e3 for name in peers}, "errors": errors,
    }
    return found


def median_ratio(rounds, peer):
    """The median over the rounds of (peer's median) / (tfmc's median)."""
    return statistics.median(p[1] / t[1] for p, t in zip(rounds[peer], rounds["tfmc"]))


def line(r):
    """One line of the table."""
    others = ", ".join(f"{name} {ms:.4g}" for name, ms in r["peers_ms"].items() if name != r["best_peer"])
    worst = max(r["errors"].values(), default=0)
    peer = r["best_peer"] or "-"
    peer_ms, peer_median, ratio = (r[k] or 0 for k in ("best_peer_ms", "best_peer_median_ms", "median_ratio"))
    return (
        f"{r['name']:<8} {r['precision']:<4} {r['threads']:>3} {r['tfmc_ms']:>9.4g} {r['tfmc_median_ms']:>9.4g} "
        f"{peer:<12} {peer_ms:>9.4g} "
        f"{peer_median:>9.4g} {ratio:>6.2f} {r['peak_percent']:>4.0f} % {r['peer_peak_percent'] or 0:>4.0f} % "
        f"{r['peak_gflops']:>8.1f} {r['peak_gbs']:>6.1f}  {others} [{r['peak_kind']}; differ {worst:.1e}]"
    )
