#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Eight planted miscompiles (tests/planted), each at its place in the default pipeline: verify --after-each and
# verify --bisect must catch every one, name the pass, the number of the application and the place in the model.
set -uo pipefail
planted=${TFMC_PLANTED:-$TFMC_BUILD/tests/tfmc_planted}
golden=$TFMC_SOURCE/tests/golden
log=$(mktemp)
trap 'rm -f "$log"' EXIT
failed=0

complain() {
	echo "$1" >&2
	cat "$log" >&2
	failed=1
}

# check PASS MODEL BEFORE OP PATH: PASS stands before the pass BEFORE; the first value that changes is of OP, the
# application lies in PATH.
check() {
	local pipeline option
	pipeline=$("$planted" passes | sed -n 's/^O2 *//p' | sed "s/\(^\|,\)$3\(,\|{\)/\1$1,$3\2/")
	case $pipeline in *"$1"*) ;; *) complain "$1: no place in the pipeline"; return ;; esac
	for option in --after-each --bisect; do
		"$planted" verify "$golden/$2/model.yaml" $option --passes="$pipeline" >"$log" 2>&1
		[ $? -eq 4 ] || complain "$1 $option: not caught"
		grep -q "error: $1 is the first pass that changes" "$log" || complain "$1 $option: not named"
		grep -Eq "model.yaml:[0-9]+:[0-9]+: note: application [0-9]+ of $1, in .*$5" "$log" ||
			complain "$1 $option: its application is not named"
		grep -Eq "first value that changes is .*$4" "$log" || complain "$1 $option: the op is not named"
		grep -Eq "^bisect: step [0-9]+ of the pipeline, $1\{fuel=[0-9]+\}" "$log" || complain "$1 $option: no step"
	done
	"$planted" verify "$golden/$2/model.yaml" --bisect --passes="${pipeline/$1,/}" >"$log" 2>&1 ||
		complain "$2 without $1 is not right"
}

check plant-rope torch_rotary fuse-softmax rope attention
check plant-scale torch_decoder merge-heads attention attention
check plant-eps torch_encoder merge-heads layer_norm norm
check plant-causal torch_decoder merge-heads attention attention
check plant-block torch_decoder merge-heads linear .
check plant-gqa torch_rotary merge-heads attention attention
check plant-bias torch_encoder merge-heads "(weight|linear)" .
check plant-cache torch_decoder fuse-softmax state_append attention

# A pass whose module cannot even be executed is named as well.
for option in --after-each --bisect; do
	"$planted" verify "$golden/torch_decoder/model.yaml" $option --passes=canonicalize,plant-state,fuse-softmax >"$log" 2>&1
	[ $? -eq 4 ] || complain "plant-state $option: not caught"
	grep -q "error: plant-state is the first pass that fails" "$log" || complain "plant-state $option: not named"
	grep -q "application 1 of plant-state, in layers.self.attention" "$log" || complain "plant-state $option: no application"
done

"$TFMC" passes | grep -q plant && { echo "tfmc has planted passes" >&2; failed=1; }
exit $failed
