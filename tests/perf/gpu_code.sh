#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Kernels for GPUs read as a GPU's compiler reads them, without a device: linears of 4096 x 4096 for opencl-gpu, compiled by
# clang-19 for NVIDIA sm_90 (to PTX) and AMD gfx1100 (to assembly).
#   bash tests/perf/gpu_code.sh [--check]
# Columns: of PTX the global loads of whole vectors and of parts of vectors; of AMD the vector registers, bytes of local
# memory, waves that a SIMD holds (occupancy, of 16), and instructions of the shortest loop with global loads for each
# weight that it reads. --check fails where a kernel for at most 8 rows loads parts of vectors or has less than 12 waves.
# BUILD_DIR: default build.
set -eu
cd "$(dirname "$0")/../.."
tfmc=${TFMC:-${BUILD_DIR:-build}/frontend/driver/tfmc}
clang=$(command -v clang-19 || true)
if [ -z "$clang" ] || ! "$clang" --print-targets | grep -q nvptx64 || ! "$clang" --print-targets | grep -q amdgcn; then
	echo "SKIPPED: no clang-19 with nvptx64 and amdgcn" >&2
	exit 77
fi
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT

# The functions of OpenCL C that these kernels call, by the compiler's own words for each machine.
cat >"$out/builtins.h" <<'C'
#define OVER __attribute__((overloadable, always_inline))
#ifdef __AMDGCN__
size_t OVER get_local_id(uint d) { return __builtin_amdgcn_workitem_id_x(); }
size_t OVER get_group_id(uint d) { return __builtin_amdgcn_workgroup_id_x(); }
size_t OVER get_num_groups(uint d) { return __builtin_amdgcn_grid_size_x() / 64; }
void OVER barrier(cl_mem_fence_flags f)
{
	__builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
	__builtin_amdgcn_s_barrier();
	__builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}
#else
size_t OVER get_local_id(uint d) { return __nvvm_read_ptx_sreg_tid_x(); }
size_t OVER get_group_id(uint d) { return __nvvm_read_ptx_sreg_ctaid_x(); }
size_t OVER get_num_groups(uint d) { return __nvvm_read_ptx_sreg_nctaid_x(); }
void OVER barrier(cl_mem_fence_flags f) { __syncthreads(); }
#endif
int OVER min(int a, int b) { return a < b ? a : b; }
int OVER max(int a, int b) { return a > b ? a : b; }
#define convert_float4(v) __builtin_convertvector(v, float4)
#define convert_int4(v)   __builtin_convertvector(v, int4)
float4 OVER vload_half4(size_t i, const private half *p)
{
	typedef half four __attribute__((ext_vector_type(4)));
	return __builtin_convertvector(*(const private four *)(p + 4 * i), float4);
}
C

compile() { # NAME ARGUMENTS..
	local name=$1
	shift
	"$clang" -x cl -cl-std=CL1.2 -Xclang -finclude-default-header -w -O3 -include "$out/builtins.h" -nogpulib -S "$@" "$out/$name.cl"
}

# Of the assembly of AMD on stdin: instructions of the shortest loop with global loads, and the bits that it loads.
loop() {
	awk '
		/^\.LBB[0-9_]+:/ { sub(/:.*/, "", $1); label[$1] = n }
		/^\t[a-z]/ && !/^\t\./ { text[n++] = $0 }
		END {
			for (i = 0; i < n; i++) {
				if (text[i] !~ /s_cbranch|s_branch/) continue
				split(text[i], w, /[ \t]+/)
				target = w[3]
				if (!(target in label) || label[target] > i) continue
				bits = 0
				for (k = label[target]; k <= i; k++)
					if (match(text[k], /(global|buffer)_load_b[0-9]+/)) { b = substr(text[k], RSTART, RLENGTH); sub(/.*_b/, "", b); bits += b }
				if (bits > 0 && (best == 0 || i - label[target] < best)) { best = i - label[target] + 1; found = bits }
			}
			print best + 0, found + 0
		}'
}

failed=0
printf '%-12s %-9s | %8s %8s | %5s %6s %5s %12s\n' weights rows vectors elements VGPRs local waves instructions
kernels=0
for format in f32 bf16 q8 q4 q4_k; do
	for rows in 1 1..8 1..2048; do
		name=${format}_${rows//./_}
		size='S'
		declaration="dim S in [${rows/../, }]"
		if [ "$rows" = 1 ]; then size=1 declaration=; fi
		table="sinusoid(rows=4096, dim=4096, layout=halves, spacing=paper, start=1, base=10000.0)"
		case $format in
		f32) weight=": f32[4096,4096] = $table" bits=32 ;;
		bf16) weight=": f32[4096,4096] as bf16 = round(bf16, $table)" bits=16 ;;
		q8) weight=": f32[4096,4096] as q8 = quantize(q8, $table)" bits=8.5 ;;
		q4) weight=": f32[4096,4096] as q4 = quantize(q4, $table)" bits=4.5 ;;
		q4_k) weight=": f32[4096,4096] as q4_k = quantize(q4_k, $table)" bits=5 ;;
		esac
		cat >"$out/$name.tir" <<-TIR
			module "$name"
			$declaration
			weight @w $weight
			func @run(%x: f32[$size,4096]) -> (y: f32[$size,4096]) {
			  %y = linear %x, @w : f32[$size,4096]
			  return %y
			}
		TIR
		"$tfmc" "$out/$name.tir" --emit=opencl --target=opencl-gpu -o "$out/$name.cl" 2>/dev/null
		for kernel in $(sed -n 's/^__kernel .*void \([a-z0-9_]*\)($/\1/p' "$out/$name.cl"); do
			others=$(sed -n 's/^#ifndef \(WITHOUT_[a-z0-9_]*\)$/-D\1/p' "$out/$name.cl" | grep -v "_$kernel$" || true)
			# shellcheck disable=SC2086
			compile "$name" --target=nvptx64-nvidia-nvcl -Xclang -target-cpu -Xclang sm_90 -Xclang -target-feature -Xclang +ptx78 $others -o "$out/code.ptx"
			# shellcheck disable=SC2086
			compile "$name" --target=amdgcn-amd-amdhsa -mcpu=gfx1100 $others -o "$out/code.s"
			vectors=$(grep -cE 'ld\.global\.(nc\.)?v[24]\.' "$out/code.ptx" || true)
			elements=$(grep -cE 'ld\.global\.(nc\.)?[fubs][0-9]+' "$out/code.ptx" || true)
			# four bytes of scales are one element of PTX
			elements=$((elements - $(sed -n "/^#ifndef WITHOUT_$kernel\$/,/^#endif/p" "$out/$name.cl" | grep -oE '__global const struct packed4_u?char4' | wc -l)))
			vgprs=$(sed -n 's/^; NumVgprs: //p' "$out/code.s" | sort -n | tail -1)
			bytes=$(sed -n 's/^; LDSByteSize: \([0-9]*\).*/\1/p' "$out/code.s" | head -1)
			waves=$(sed -n 's/^; Occupancy: //p' "$out/code.s" | head -1)
			read -r instructions loaded <<<"$(loop <"$out/code.s")"
			each=$(awk -v i="$instructions" -v l="$loaded" -v b="$bits" 'BEGIN { printf "%.2f", l ? i * b / l : 0 }')
			printf '%-12s %-9s | %8s %8s | %5s %6s %5s %12s  %s\n' "$format" "$rows" "$vectors" "$elements" "$vgprs" "$bytes" "$waves" "$each" "$kernel"
			few=$(grep -cE " $kernel\(.* when .* <= 8$" "$out/$name.cl" || true)
			if [ "${1:-}" = --check ] && { [ "$rows" != 1..2048 ] || [ "$few" = 1 ]; } && { [ "$elements" -gt 0 ] || [ "$waves" -lt 12 ]; }; then
				echo "$name: $kernel loads $elements single elements, $waves waves" >&2
				failed=1
			fi
			kernels=$((kernels + few))
		done
	done
done
# One kernel for few rows for each format.
[ "$kernels" = 5 ] || failed=1
exit $failed
