#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Every level is compiled with the instructions that it is named after and with none of a level above: in the assembly
# of a linear in f32 and of ones whose rows and weights are integers or bf16, and of attention in bf16.
set -euo pipefail
: "${TFMC:?}" "${TFMC_SOURCE:?}"
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
cd "$tmp"
weight='sinusoid(rows=768, dim=768, layout=halves, spacing=t2t, start=1, base=100.0)'
cat >f32.tir <<TIR
module "f32"
weight @w : f32[768,768] = $weight
func @run(%x: f32[12,768]) -> (y: f32[12,768]) {
  %y = linear %x, @w : f32[12,768]
  return %y
}
TIR
cat >integer.tir <<TIR
module "integer"
weight @w : f32[768,768] as q8 = quantize(q8, $weight)
func @run(%x: f32[12,768]) -> (y: f32[12,768]) {
  %r = quantize_rows %x : f32[12,768]
  %y = linear %r, @w : f32[12,768]
  return %y
}
TIR
sed 's/integer/codebook/; s/q8/iq4_nl/g' integer.tir >codebook.tir
sed 's/integer/rows/; s/12,768/40,768/g; s/q8/q8_row/g; s/quantize_rows %x/quantize_rows %x {block=0}/' integer.tir >rows.tir
cat >bf16.tir <<TIR
module "bf16"
weight @w : f32[768,768] as bf16 = round(bf16, $weight)
func @run(%x: f32[40,768]) -> (y: f32[40,768]) {
  %r = quantize_rows %x {to=bf16} : f32[40,768]
  %y = linear %r, @w : f32[40,768]
  return %y
}
TIR

cat >attention.tir <<TIR
module "attention"
func @run(%x: f32[1,4,70,64]) -> (y: f32[1,4,70,64]) {
  %y = attention %x, %x, %x {factors=bf16} : f32[1,4,70,64]
  return %y
}
TIR

# KERNEL LEVEL INSTRUCTION OPERAND ABSENT: the instruction with such an operand is there, what matches ABSENT is not.
checked=0
while read -r kernel level instruction operand absent; do
	"$TFMC" $kernel.tir --quiet -mcpu=$level --emit=asm=asm
	sed -n "/^\"\?$kernel\..*kernel\"\?:/,/^\.Lfunc_end/p" asm >code
	n=$(grep -cE "[[:space:]]$instruction[[:space:]].*$operand" code || true)
	if [ "$n" -lt 4 ] || grep -qE "$absent" code; then
		echo "$kernel for $level: $n times $instruction with $operand, and these of $absent:" >&2
		grep -oE "$absent" code | sort | uniq -c >&2
		exit 1
	fi
	checked=$((checked + 1))
done <<'TABLE'
f32 x86-64-v2 mulps %xmm vfmadd|%ymm|%zmm
f32 x86-64-v3 vfmadd[0-9]*ps %ymm %zmm
f32 x86-64-v4 vfmadd[0-9]*ps %zmm vpdp|%tmm
f32 aarch64 fmla v[0-9]+\.4s sdot|usdot|mmla
integer x86-64-v2 pmadd[a-z]* %xmm %ymm|%zmm
integer x86-64-v3 vpmadd[a-z]* %ymm vpdp|%zmm
integer x86-64-v3-vnni vpdpbusd %ymm %zmm
integer x86-64-v4 vpmadd[a-z]* %zmm vpdp
integer x86-64-v4-vnni vpdpbusd %zmm vdpbf16|%tmm
integer x86-64-v4-bf16 vpdpbusd %zmm %tmm
integer znver5 vpdpbusd %zmm %tmm
integer icelake-server vpdpbusd %zmm vdpbf16|%tmm
integer aarch64 s?mlal?2? v[0-9]+\.4s sdot|usdot|mmla
integer armv8.2-dotprod sdot v[0-9]+\.4b\[[0-3]\] usdot|mmla|dup
rows armv8.2-dotprod sdot v[0-9]+\.4b\[[0-3]\] usdot|mmla|dup
rows armv8.6 usmmla v[0-9]+\.4s nothing
bf16 armv8.2-dotprod fmla v[0-9]+\.4s bfdot|bfmmla
bf16 armv8.6 bfmmla v[0-9]+\.4s fmla
bf16 armv8.6 bfdot v[0-9]+\.2h\[[0-3]\] dup
bf16 x86-64-v3 vfmadd[0-9]*ps %ymm %zmm
bf16 x86-64-v4-vnni vfmadd[0-9]*ps %zmm vdpbf16|%tmm
bf16 x86-64-v4-bf16 vdpbf16ps %zmm vfmadd|%tmm
bf16 znver5 vdpbf16ps %zmm vfmadd|%tmm
bf16 x86-64-v4-amx tdpbf16ps %tmm nothing
attention x86-64-v3 vfmadd[0-9]*ps %ymm %zmm
attention x86-64-v4 vfmadd[0-9]*ps %zmm vdpbf16
attention x86-64-v4-bf16 vdpbf16ps %zmm %tmm
attention x86-64-v4-amx tdpbf16ps %tmm vdpbf16
rows x86-64-v4-bf16 vpdpbusd %zmm %tmm
rows x86-64-v4-amx tdpbsud %tmm nothing
integer x86-64-v4-amx vpdpbusd %zmm %tmm
integer armv8.6 usdot v[0-9]+\.4b\[[0-3]\] mmla|dup
codebook x86-64-v3 vpshufb %ymm vpdp|%zmm
codebook x86-64-v4 vpshufb %zmm vpermb
codebook x86-64-v4-vnni vpermb %zmm %tmm
codebook armv8.2-dotprod tbl v[0-9]+\.16b usdot|mmla
TABLE
echo "$checked kernels hold the instructions of their level"
