#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Whole models by --device=opencl: `tfmc verify` runs the checks of their files and compares with the interpreter; texts of
# 64 tokens are those of the object for the processor. The device's optimizer, which takes two thirds
# of the time and sees every op in shell/matrix, is left to shell/device and, in the long run, to the example.
set -uo pipefail
failed=0
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
"$TFMC" devices | grep '^  0:' >/dev/null || { echo "SKIPPED: no OpenCL device"; exit 77; }
report() { # WHAT FILE...
	echo "FAILED $1" >&2
	cat "${@:2}" >&2
	failed=1
}
verify() { # MODEL
	"$TFMC" verify "$1" --device=opencl >"$tmp/out" 2>&1 || report "verify $1" "$tmp/out"
}
generate() { # MODEL ARGUMENTS...
	local arguments=("$@" --beam=1 --max-tokens=64 --ignore-stop)
	if ! "$TFMC" generate "${arguments[@]}" >"$tmp/one" 2>&1 || [ ! -s "$tmp/one" ] ||
		! "$TFMC" generate "${arguments[@]}" --device=opencl >"$tmp/two" 2>&1 || ! cmp -s "$tmp/one" "$tmp/two"; then
		report "generate $1" "$tmp/one" "$tmp/two"
	fi
}
check() { # MODEL [ARGUMENTS of generate...]
	verify "$1"
	[ $# -eq 1 ] || generate "$@"
}
examples=$TFMC_SOURCE/examples
golden=$TFMC_SOURCE/tests/golden
if [ -n "${TFMC_ALL:-}" ]; then
	verify "$examples/dates/model.yaml"
fi
export POCL_EXTRA_BUILD_FLAGS=-cl-opt-disable
for model in "$golden"/*/model.yaml; do
	case ${TFMC_ALL:-}$model in
	/*/torch_nested/* | /*/torch_front/* | /*/torch_blocks/* | /*/torch_graph/*) ;; # other words for ops that the others have
	*) check "$model" ;;
	esac
done
# Keys and values as integers with scales; codes of a codebook, looked up in vectors of all lengths.
cp "$golden"/torch_rotary/*.safetensors "$tmp"
for row in "dtype: {cache: int8}" "quantize: iq4_nl"; do
	{ echo "$row"; sed '/^checks:/,$d' "$golden/torch_rotary/model.yaml"; } >"$tmp/model.yaml"
	verify "$tmp/model.yaml"
done
generate "$examples/names/model.yaml" --tokens=1
[ -n "${TFMC_ALL:-}" ] || exit $failed

check "$examples/dates/model.yaml" "--prompt=the 3rd of March, 2021"
check "$examples/names/model.yaml" --tokens=1
check "$examples/hub/tales" --prompt=Once
check "$examples/embed/model.yaml"
check "$examples/classify/model.yaml"
models=$TFMC_SHARED/models
[ -d "$models" ] || { echo "SKIPPED: $models is absent"; exit $failed; }
for model in "$models"/*/model.yaml "$models"/variants/*/model.yaml; do
	case $(basename "$(dirname "$model")") in
	bert-tiny | retsim | clip_text | modernbert | vit | whisper) check "$model" ;; # no texts of tokens alone
	*) check "$model" --tokens=5,6,7,8 ;;
	esac
done
exit $failed
