#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# The real and random models beside the checkout: `tfmc verify` runs the checks of their files (expected
# outputs of other systems, within the tolerance stated there) and compares object and interpreter.
set -uo pipefail
. "$TFMC_SOURCE/tests/support/effort.sh"
models=$TFMC_SHARED/models
[ -d "$models" ] || { echo "SKIPPED: $models is absent"; exit 77; }
failed=0 turn=0
options_of() { # the first models at every level (in the short run v2 or v3), the others at those that differ most
	case $1 in
	retsim) printf '%s\n' "-mcpu=native -O2" "-mcpu=x86-64-v3 -O0" ;; # cubes: needs fused multiply-adds
	variants/*) printf '%s\n' "-mcpu=native ${quick[*]}" "-mcpu=x86-64-v2 -O0" ;;
	*)
		printf '%s\n' "-mcpu=native -O2" "-mcpu=native -O0"
		[ -z "${TFMC_ALL:-}" ] && [ $((turn % 2)) = 1 ] || echo "-mcpu=x86-64-v2 ${quick[*]}"
		[ -z "${TFMC_ALL:-}" ] && [ $((turn % 2)) = 0 ] || echo "-mcpu=x86-64-v3 ${quick[*]}"
		;;
	esac
}
names=(aren-transliteration seq2seq-base bert-tiny gpt2-tiny stories260k retsim)
[ -z "${TFMC_ALL:-}" ] || names+=(variants/{bart,bloom,clip_text,gemma2,gemma3,gpt_neox,llama,marian,mistral,mixtral,modernbert,mpt,opt,phi,qwen2,qwen3,t5,vit,whisper}) # in small: families/
for name in "${names[@]}"; do
	while read -r options; do
		# shellcheck disable=SC2086
		"$TFMC" verify "$models/$name/model.yaml" $options >/tmp/tfmc-models.$$ 2>&1
		code=$?
		if [ $code -ne 0 ]; then
			echo "$name $options: exit code $code" >&2
			cat /tmp/tfmc-models.$$ >&2
			failed=1
		else
			echo "$name $options: $(tail -1 /tmp/tfmc-models.$$)"
		fi
	done < <(options_of "$name")
	turn=$((turn + 1))
done
rm -f /tmp/tfmc-models.$$
exit $failed
