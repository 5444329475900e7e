#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# OpenCL kernels, launch by launch with memory of exact sizes, and a whole model by --device=opencl, under
# Oclgrind with checks for data races, uninitialized reads, bounds and uses of the API: no reports. Kernels that are wrong
# on purpose must be reported, each by its check.
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

# check NAME COMMAND...: the log is $tmp/NAME.log. Kernels are not optimized: the check for uninitialized reads
# does not know the instruction freeze, which LLVM's optimizer makes of divisions. Local memory of all kernels of a
# program is counted together.
uninitialized=--uninitialized
options=-cl-opt-disable
check() {
	local name=$1
	shift
	rm -f "$tmp/$name.log"
	oclgrind --data-races $uninitialized --check-api --local-mem-size 1048576 --build-options "$options" --max-errors 20 \
		--log "$tmp/$name.log" "$@" >"$tmp/$name.out" 2>&1
}

# --- the checks bite ------------------------------------------------------------------------------------------
wrong() {
	local kind=$1 words=$2
	check "$kind" "$tool" - wrong "$kind"
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
right() { # COMMAND...
	local name=${*##*/}
	name=${name// /-}
	check "$name" "$@"
	local code=$?
	[ $code -eq 0 ] && [ ! -s "$tmp/$name.log" ] && return
	echo "$*: exit code $code" >&2
	head -c 20000 "$tmp/$name.out" "$tmp/$name.log" >&2
	failed=1
}
right "$tool" opencl-gpu ops 1
right "$tool" opencl-gpu shared
right "$tool" opencl-gpu programs 3
# Whole models, with libtfmccl's calls; without that check, because what clEnqueueFillBuffer cleared counts as unwritten.
uninitialized=
right "$TFMC" generate "$TFMC_SOURCE/tests/golden/torch_rotary/model.yaml" --tokens=1,2,3 --max-tokens=3 --ignore-stop \
	--device=opencl:Oclgrind
# Dot products of bytes, which no device here has: the function of the extension is a macro.
cat >"$tmp/dots.tir" <<'END'
module "dots"
dim B in [1,9]
weight @w : f32[101,192] as q8a = quantize(q8a, sinusoid(rows=101, dim=192, layout=halves, spacing=paper, start=1, base=10000.0))
func @run(%x: f32[B,192]) -> (y: f32[B,101]) {
  %r = quantize_rows %x : f32[B,192]
  %y = linear %r, @w : f32[B,101]
  return %y
}
END
product() { echo "(as_char4(p).$1*as_char4(q).$1)"; }
options="-cl-opt-disable -DTFMC_DOT=1 -Ddot_4x8packed_ss_int(p,q)=($(product x)+$(product y)+$(product z)+$(product w))"
right "$TFMC" verify "$tmp/dots.tir" --no-cache --device=opencl:Oclgrind --target=opencl-gpu
exit $failed
