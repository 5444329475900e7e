# SPDX-License-Identifier: Apache-2.0
# Sourced by tests. quick: options of tfmc where machine code is made to be run, not looked at: all passes, no
# optimization in code generation (a third of the time). Nothing with TFMC_ALL (`tests/run.sh --all`).
# optimize: of C compilers that make code of tfmc, -O2 with TFMC_ALL, else none.
quick=(-O0 --passes=O2) optimize=-O0
[ -z "${TFMC_ALL:-}" ] || quick=() optimize=-O2

# Levels of x86-64 that run here, from the least on.
levels='v2 v3'
! grep -qw avx512vl /proc/cpuinfo || levels+=' v4'
