#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Whole models by --device=opencl: `tfmc verify` runs the checks of their files and compares with the interpreter; texts of
# 64 tokens are those of the object for the processor. The families take turns. The device's optimizer, which takes two thirds
# of the time and sees every op in shell/matrix, is left to shell/device and, in the long run, to the example in all families.
set -uo pipefail
families=(opencl-cpu opencl-cpu512 opencl-gpu)
turn=0
failed=0
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
"$TFMC" devices | grep '^  0:' >/dev/null || { echo "SKIPPED: no OpenCL device"; exit 77; }
report() { # WHAT FILE...
	echo "FAILED $1" >&2
	cat "${@:2}" >&2
	failed=1
}
verify() { # FAMILY MODEL
	"$TFMC" verify "$2" --device=opencl --target="$1" >"$tmp/out" 2>&1 || report "verify $2, $1" "$tmp/out"
}
generate() { # FAMILY MODEL ARGUMENTS...
	local arguments=("${@:2}" --beam=1 --max-tokens=64 --ignore-stop)
	if ! "$TFMC" generate "${arguments[@]}" >"$tmp/one" 2>&1 || [ ! -s "$tmp/one" ] ||
		! "$TFMC" generate "${arguments[@]}" --device=opencl --target="$1" >"$tmp/two" 2>&1 || ! cmp -s "$tmp/one" "$tmp/two"; then
		report "generate $2, $1" "$tmp/one" "$tmp/two"
	fi
}
take_turn() { # MODEL [ARGUMENTS of generate...]
	local family=${families[turn++ % 3]}
	verify "$family" "$1"
	[ $# -eq 1 ] || generate "$family" "$@"
}
examples=$TFMC_SOURCE/examples
golden=$TFMC_SOURCE/tests/golden
if [ -n "${TFMC_ALL:-}" ]; then
	for family in "${families[@]}"; do
		verify "$family" "$examples/dates/model.yaml"
	done
fi
export POCL_EXTRA_BUILD_FLAGS=-cl-opt-disable
for model in "$golden"/*/model.yaml; do
	take_turn "$model"
done
# Keys and values as integers with scales; codes of a codebook, looked up in vectors of all lengths.
cp "$golden"/torch_rotary/*.safetensors "$tmp"
for row in "dtype: {cache: int8}" "quantize: iq4_nl"; do
	{ echo "$row"; sed '/^checks:/,$d' "$golden/torch_rotary/model.yaml"; } >"$tmp/model.yaml"
	for family in "${families[@]}"; do
		verify "$family" "$tmp/model.yaml"
	done
done
generate opencl-gpu "$examples/names/model.yaml" --tokens=1
[ -n "${TFMC_ALL:-}" ] || exit $failed

take_turn "$examples/dates/model.yaml" "--prompt=the 3rd of March, 2021"
take_turn "$examples/names/model.yaml" --tokens=1
take_turn "$examples/hub/tales" --prompt=Once
take_turn "$examples/embed/model.yaml"
take_turn "$examples/classify/model.yaml"
models=$TFMC_SHARED/models
[ -d "$models" ] || { echo "SKIPPED: $models is absent"; exit $failed; }
for model in "$models"/*/model.yaml "$models"/variants/*/model.yaml; do
	case $(basename "$(dirname "$model")") in
	bert-tiny | retsim | clip_text | modernbert | vit | whisper) take_turn "$model" ;; # no texts of tokens alone
	*) take_turn "$model" --tokens=5,6,7,8 ;;
	esac
done
exit $failed
