# SPDX-License-Identifier: Apache-2.0
# Sourced by tests. quick: options of tfmc where machine code is made to be run, not looked at: all passes, no
# optimization in code generation (a third of the time). Nothing with TFMC_ALL (`tests/run.sh --all`).
# optimize: of C compilers, -O2 with TFMC_ALL, else -O1.
quick=(-O0 --passes=O2) optimize=-O${TFMC_ALL:+2}
[ -z "${TFMC_ALL:-}" ] || quick=()

# Levels of x86-64 that run here, from the least on.
levels='v2 v3'
! grep -qw avx512vl /proc/cpuinfo || levels+=' v4'
