#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# OpenCL kernels of all families, launch by launch with memory of exact sizes, under Oclgrind with checks for
# data races, uninitialized reads, bounds and uses of the API: no reports. Kernels that are wrong on purpose must
# be reported, each by its check.
set -uo pipefail
tool=$TFMC_BUILD/tests/tfmc_opencl
for needed in "$(command -v oclgrind || true)" "$tool"; do
	if [ ! -x "$needed" ]; then
		echo "SKIPPED: ${needed:-oclgrind} is not there (Debian: oclgrind)" >&2
		exit 77
	fi
done
case ${TFMC_LINK_FLAGS:-} in
*fsanitize*) echo "SKIPPED: Oclgrind's libraries cannot be loaded in front of the sanitizers'" >&2; exit 77 ;;
esac
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
export OCLGRIND_NUM_THREADS=1 # threads would make the order of reports depend on luck

# check NAME ARGUMENTS...: the log is $tmp/NAME.log. Kernels are not optimized: the check for uninitialized reads
# does not know the instruction freeze, which LLVM's optimizer makes of divisions.
uninitialized=--uninitialized
check() {
	local name=$1
	shift
	rm -f "$tmp/$name.log"
	oclgrind --data-races $uninitialized --check-api --build-options -cl-opt-disable --max-errors 20 \
		--log "$tmp/$name.log" "$tool" "$@" >"$tmp/$name.out" 2>&1
}

# --- the checks bite ------------------------------------------------------------------------------------------
wrong() {
	local kind=$1 words=$2
	check "$kind" - wrong "$kind"
	if ! grep -q "Oclgrind" "$tmp/$kind.out"; then
		cat "$tmp/$kind.out" >&2
		echo "the wrong kernel '$kind' did not run on Oclgrind" >&2
		exit 1
	fi
	grep -qi -- "$words" "$tmp/$kind.log" && return
	cat "$tmp/$kind.log" >&2
	echo "the wrong kernel '$kind' was not reported" >&2
	exit 1
}
wrong race "data race"
wrong local-race "data race"
wrong bounds "invalid write"
wrong read-bounds "invalid read"
wrong unset "uninitialized"

# --- nothing to report ----------------------------------------------------------------------------------------
failed=0
right() {
	local name=${1// /-}
	# shellcheck disable=SC2086
	check "$name" $1
	local code=$?
	[ $code -eq 0 ] && [ ! -s "$tmp/$name.log" ] && return
	echo "tfmc_opencl $1: exit code $code" >&2
	head -c 20000 "$tmp/$name.out" "$tmp/$name.log" >&2
	failed=1
}
for family in opencl-cpu opencl-gpu; do
	right "$family ops 1"
	right "$family shared"
	right "$family mini"
	right "$family programs 3"
done
right "-O0 opencl-cpu mini"
# Oclgrind 21.10 takes element 3 of v.hi of any float16 v for uninitialized: vstore8(vload16(0, a).hi, 0, b) is enough
# to be reported. So wide vectors are checked for races, bounds and the API; reads of what nobody wrote are looked for
# in the narrow family, which has the same templates.
uninitialized=
right "opencl-cpu512 ops 1"
right "opencl-cpu512 shared"
right "opencl-cpu512 mini"
right "opencl-cpu512 programs 3"
exit $failed
