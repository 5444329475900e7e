#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Two builds of tfmc write the same bytes: objects with their headers and weights for all levels of optimization and of
# x86-64 and aarch64, LLVM IR, C, OpenCL C and kernels alone. Run by hand after a change that must not change code (a
# rename, a moved function), and with builds of two compilers or sanitizers; shell/conventions forbids the usual cause.
# A build is a path of tfmc, or the list of checksums that `--write=LIST` made of one, which halves the time.
#
#   bash tests/compilers.sh [--write=LIST] BUILD [OTHER_BUILD] [MODEL...]
#
# MODEL is a path from the root of the tree (shared/models/.. for the shared ones). Without models: examples, golden
# models and families, kernels, the shared models. LLVM's optimizer takes most of the time, so machine code is optimized
# for the examples only; everywhere else LLVM gets all passes of tfmc and none of its own, which shows every difference
# in what tfmc hands over. TIR=1 compares dumps of the IR as well, with their names.
set -uo pipefail
write='' builds=()
case $1 in --write=*) write=$(realpath "${1#*=}"); shift ;; esac
builds+=("$(realpath "$1")"); shift
[ -n "$write" ] || { builds+=("$(realpath "$1")"); shift; }
models=("$@")
cd "$(dirname "$0")/.."
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
shared=$(realpath -m "${TFMC_SHARED:-../shared}")

# C and OpenCL C name the lines of the model, so models have the same relative paths wherever this runs.
mkdir "$tmp/root"
ln -s "$PWD"/{examples,tests} "$tmp/root"
ln -s "$shared" "$tmp/root/shared"

# Families are hub folders without weights: copies get theirs, drawn with the names of the tensors as seeds.
families() {
	python3 -B - "$tmp/root/families" <<-'END'
		import os, shutil, sys
		sys.path.insert(0, "tests/golden/families")
		import seeded
		for name in sorted(os.listdir("tests/golden/families")):
		    folder = os.path.join("tests/golden/families", name)
		    if not os.path.exists(os.path.join(folder, "checks.yaml")):
		        continue
		    copy = os.path.join(sys.argv[1], name)
		    shutil.copytree(folder, copy)
		    for at, _, files in os.walk(copy):
		        if "tensors.txt" in files:
		            seeded.write(name, seeded.read_list(os.path.join(at, "tensors.txt")), os.path.join(at, "model.safetensors"))
	END
	(cd "$tmp/root" && printf '%s\n' families/*/)
}

# The files that build $1 writes for $model with further options, one line each: model, `name`, file, checksum; or "refused".
output() {
	local tfmc=$1 name=$2; shift 2
	local out argument; out=$(mktemp -d -p "$tmp")
	local arguments=()
	for argument in "$@"; do
		case $argument in model*) argument=$out/$argument ;; esac
		arguments+=("$argument")
	done
	if (cd "$tmp/root" && "$tfmc" "$model" --no-cache --name=model "${arguments[@]}") >"$out.log" 2>&1; then
		(cd "$out" && sha256sum -- * | sed -E "s|^(.{16}).*  (.*)|$model $name \2 \1|")
	else
		echo "$model $name refused"
	fi
	rm -rf "$out" "$out.log"
}

# All outputs of one model.
compare() {
	local tfmc=$1 model=$2 object level
	object=(-o model.o --weights=file)
	case $model in
	*.tir)
		output "$tfmc" v3 "${object[@]}" -O0 --passes=O2 --mcpu=x86-64-v3 --emit=obj,c
		output "$tfmc" arm "${object[@]}" -O0 --passes=O2 --target=aarch64-linux-gnu
		output "$tfmc" gpu --target=opencl-gpu --emit=opencl -o model.cl
		return ;;
	esac
	output "$tfmc" O0 "${object[@]}" -O0 --mcpu=x86-64-v2
	output "$tfmc" O1 "${object[@]}" -O0 --passes=O1 --mcpu=x86-64-v3
	for level in x86-64-v2 x86-64-v4 sapphirerapids; do
		output "$tfmc" "$level" "${object[@]}" -O0 --passes=O2 --mcpu="$level"
	done
	output "$tfmc" arm "${object[@]}" -O0 --passes=O2 --target=aarch64-linux-gnu
	output "$tfmc" llvm -O0 --passes=O2 --mcpu=x86-64-v3 --emit=llvm,c -o model
	output "$tfmc" opencl --target=opencl --emit=opencl -o model.cl
	[ -z "${TIR:-}" ] || output "$tfmc" tir --emit=tir -o model.tir
	case $model in examples/*) output "$tfmc" O2 "${object[@]}" --mcpu=x86-64-v3 ;; esac
}

[ ${#models[@]} -gt 0 ] || mapfile -t models < <(
	shopt -s nullglob
	printf '%s\n' examples/{classify,dates,embed,names}/model.yaml examples/hub/tales tests/golden/*/model.yaml tests/kernels/*.tir
	(cd "$tmp/root" && printf '%s\n' shared/models/*/model.yaml shared/models/variants/*/)
	families)
export tmp shared TIR
export -f output compare
lists=()
for build in "${builds[@]}"; do
	case $(head -c 4 "$build" | tr -d '\0') in
	*ELF) list=$tmp/list${#lists[@]}
		cp "$build" "$tmp/tfmc" # which may be built again meanwhile
		printf '%s\n' "${models[@]}" | xargs -P "$(nproc)" -I{} bash -c 'compare "$0" "$1" >"$(mktemp -p "$tmp" out.XXXXXX)"' "$tmp/tfmc" {}
		cat "$tmp"/out.* | LC_ALL=C sort >"$list"; rm -f "$tmp"/out.* ;;
	*) list=$build ;;
	esac
	lists+=("$list")
done
outputs=$(wc -l <"${lists[0]}")
refused=$(grep -c ' refused$' "${lists[0]}")
echo "$((outputs - refused)) files of ${#models[@]} models, $refused refused"
[ "$outputs" -gt "$refused" ] || { echo "nothing was compiled" >&2; exit 1; }
[ -z "$write" ] || { cp "${lists[0]}" "$write"; exit; }
diff "${lists[@]}" >"$tmp/diff" || { sed -n '/^[<>]/p' "$tmp/diff" | head -40; echo "other bytes: $(grep -c '^>' "$tmp/diff") files" >&2; exit 1; }
