#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Sweep of the kernels with products on one core: microseconds, GFLOP/s and part of the multiply-add peak, GB/s of what
# must be read; warm, and cold as in a model whose layers do not stay in the caches. rowwise.sh has the other kernels.
#   bash tests/perf/kernels.sh [linear|attention|matmul|conv|ROW ...]     default: linear attention
#   ROW: MxNxK, H/KVxSxTxE[xcausal|xnone[xWINDOW]], BxMxNxK[xta|xtb], or CxOxHxWxTAPSxGROUPS
# matmul is products of two values, conv convolutions (C channels to O of H x W, TAPS x TAPS), each beside the linear of
# its size; linear is every size of SIZES (NxK) with every M of ROWS_M. ROUNDS (default 5), TFMC_CPU (-mcpu, default x86-64-v4
# where it runs, else x86-64-v3), BUILD_DIR (default build), OUT: scratch folder (default BUILD_DIR/perf/kernels).
set -euo pipefail
cd "$(dirname "$0")/../.."
build=${BUILD_DIR:-build}
out=${OUT:-$build/perf/kernels}
tfmc=$build/frontend/driver/tfmc
cpu=x86-64-v3
if grep -qw avx512vl /proc/cpuinfo; then cpu=x86-64-v4; fi
cpu=${TFMC_CPU:-$cpu}
case $cpu in
x86-64-v3) peak=0 ;;
x86-64-v2 | x86-64) peak=2 ;;
*) peak=1 ;;
esac
read -ra sizes <<<"${SIZES:-384x384 1536x384 384x1536 768x768 3072x768 768x3072 5632x2048}"
read -ra rows_m <<<"${ROWS_M:-1 2 4 8 14 15 16 32 64 128 197 512}"
# H/KV heads of S queries on T keys of E features
attentions="12/12x32x32x32 12/12x64x64x64 12/12x128x128x64 3/3x197x197x64 12/12x512x512x64
	12/12x128x128x64xcausal 12/12x512x512x64xcausal 32/4x128x128x64xcausal
	12/12x512x512x64xnonex65 12/12x2048x2048x64xcausalx128
	12/12x1x64x64 12/12x1x512x64 12/12x1x2048x64 32/4x1x512x64 32/4x1x2048x64"
# B products of M x K by K x N, stored [B,N,K] with tb and [B,K,M] with ta
matmuls="8x512x512x64xtb 8x512x512x64 1x512x768x768xtb 1x512x768x768 1x512x768x768xta 12x128x128x64xtb 96x16x16x32xtb
	8x1x512x64xtb 12x1x64x512 12x1x64x4096 12x1x512x64 12x5x64x512"
convs="64x64x40x40x3x1 384x64x28x28x1x1 256x256x20x20x3x32 480x480x12x80x5x480 64x64x56x56x3x64"
mkdir -p "$out"
rows=()

compile() { # NAME WEIGHTS
	"$tfmc" "$out/$1.tir" -o "$out/$1.o" -mcpu="$cpu" --weights="$2"
	${CC:-cc} -shared "$out/$1.o" -o "$out/$1.so"
}

linear() { # M N K
	local name=mm_$1x$2x$3
	cat >"$out/$name.tir" <<-TIR
		module "$name"
		weight @w : f32[$2,$3] = sinusoid(rows=$2, dim=$3, layout=halves, spacing=t2t, start=1, base=100.0)
		func @run(%x: f32[$1,$3]) -> (y: f32[$1,$2]) {
		  %y = linear %x, @w : f32[$1,$2]
		  return %y
		}
	TIR
	compile "$name" file
	rows+=("linear $1 x $2 x $3,$out/$name.so,$name,$out/$name.weights,$((2 * $1 * $2 * $3)),$((4 * $2 * $3)),$peak")
}

# Queries and keys that see each other, with as many keys as queries where there is a mask.
pairs() { # S T MASK WINDOW
	awk -v s="$1" -v t="$2" -v mask="$3" -v w="$4" 'BEGIN {
		for (i = 0; i < s; i++) {
			hi = mask == "causal" ? i + 1 : w && i + w < t ? i + w : t
			lo = w && i + 1 > w ? i + 1 - w : 0
			n += hi - lo
		}
		print n
	}'
}

attention() { # H/KV S T E [MASK [WINDOW]]
	local h=${1%/*} kv=${1#*/} s=$2 t=$3 e=$4 mask=${5:-none} window=${6:-0} name pairs
	name=at_${h}_${kv}_${s}_${t}_${e}_${mask}_$window
	pairs=$(pairs "$s" "$t" "$mask" "$window")
	cat >"$out/$name.tir" <<-TIR
		module "$name"
		func @run(%q: f32[1,$h,$s,$e], %k: f32[1,$kv,$t,$e], %v: f32[1,$kv,$t,$e]) -> (y: f32[1,$h,$s,$e]) {
		  %y = attention %q, %k, %v {scale=0.125 mask=$mask window=$window} : f32[1,$h,$s,$e]
		  return %y
		}
	TIR
	compile "$name" embed
	rows+=("attention $1 x $s x $t x $e ${5:-} ${6:-},$out/$name.so,$name,-,$((4 * h * pairs * e)),$((8 * kv * t * e)),$peak")
}

matmul() { # B M N K [ta|tb]
	local name=mv_$1x$2x$3x$4${5:-} a="$2,$4" b="$4,$3"
	if [ "${5:-}" = ta ]; then a="$4,$2"; fi
	if [ "${5:-}" = tb ]; then b="$3,$4"; fi
	cat >"$out/$name.tir" <<-TIR
		module "$name"
		func @run(%a: f32[$1,$a], %b: f32[$1,$b]) -> (y: f32[$1,$2,$3]) {
		  %y = matmul %a, %b {${5:-}} : f32[$1,$2,$3]
		  return %y
		}
	TIR
	compile "$name" embed
	rows+=("matmul $1 x $2 x $3 x $4 ${5:-},$out/$name.so,$name,-,$((2 * $1 * $2 * $3 * $4)),$((4 * $1 * $3 * $4)),$peak")
}

conv() { # C O H W TAPS GROUPS
	local name=cv_$1x$2x$3x$4x$5x$6 flops=$((2 * $2 * $3 * $4 * $5 * $5 * $1 / $6))
	cat >"$out/$name.yaml" <<-YAML
		tfmc: 1
		name: $name
		inputs: {image: "f32[1, $1, $3, $4]"}
		graph: ['y = conv2d(image, "c", out=$2, kernel=$5, padding=$(($5 / 2)), groups=$6, bias=false)']
		outputs: {y: y}
		weights: {files: [$PWD/tests/golden/torch_front/model.safetensors], ignore: ["*"], map: {c.weight: {from: absent, optional: ones}}}
	YAML
	"$tfmc" "$out/$name.yaml" -o "$out/$name.o" -mcpu="$cpu" --weights=file
	${CC:-cc} -shared "$out/$name.o" -o "$out/$name.so"
	rows+=("conv2d $1 x $2 x $3 x $4 x $5 groups $6,$out/$name.so,$name,$out/$name.weights,$flops,$((4 * $1 * $3 * $4)),$peak")
}

[ $# -gt 0 ] || set -- linear attention
for wanted in "$@"; do
	case $wanted in
	linear)
		for size in "${sizes[@]}"; do
			for m in "${rows_m[@]}"; do linear "$m" "${size%x*}" "${size#*x}"; done
		done ;;
	attention)
		for a in $attentions; do IFS=x read -ra words <<<"$a" && attention "${words[@]}"; done ;;
	matmul)
		for p in $matmuls; do
			IFS=x read -ra words <<<"$p"
			matmul "${words[@]}"
			linear $((words[0] * words[1])) "${words[2]}" "${words[3]}"
		done ;;
	conv)
		for c in $convs; do
			IFS=x read -ra words <<<"$c"
			conv "${words[@]}"
			if [ "${words[5]}" = 1 ]; then
				linear $((words[2] * words[3])) "${words[1]}" $((words[0] * words[4] * words[4]))
			fi
		done ;;
	*/*) IFS=x read -ra words <<<"$wanted" && attention "${words[@]}" ;;
	*x*x*x*x*x*) IFS=x read -ra words <<<"$wanted" && conv "${words[@]}" ;;
	*x*x*x*) IFS=x read -ra words <<<"$wanted" && matmul "${words[@]}" ;;
	*) IFS=x read -r m n k <<<"$wanted" && linear "$m" "$n" "$k" ;;
	esac
done
${CC:-cc} -std=c17 -O2 -Wall -Wextra -I. -Itests/perf tests/perf/kernels.c tests/perf/peaks.c tests/perf/peaks_read.c \
	"$build/runtime/libtfmcrt.a" -ldl -lpthread -lm -o "$out/tfmc_kernels"
pin=()
if command -v taskset >/dev/null; then pin=(taskset -c "${CPU:-0}"); fi
"${pin[@]}" "$out/tfmc_kernels" "${ROUNDS:-5}" "${rows[@]}"
