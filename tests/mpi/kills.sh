#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Ranks of the command that are killed at seeded moments, from the start of the job to its end: the job and its
# processes end within the limit, the file of outputs is whole or absent, the text is a beginning of the text; the next job
# runs, and nothing of tfmc is left in shared memory.
#
#	bash tests/mpi/kills.sh [KILLS [SEED [LAUNCHER...]]]       of each launcher: openmpi recovery mpich; by hand
#
# TFMC: the command (build/frontend/driver/tfmc).
set -euo pipefail
source=$(cd "$(dirname "$0")/../.." && pwd)
kills=${1:-200} first=${2:-1}
shift $(($# < 2 ? $# : 2))
[ $# -gt 0 ] || set -- openmpi recovery mpich
tfmc=${TFMC:-$source/build/frontend/driver/tfmc}
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 ASAN_OPTIONS=detect_leaks=0
export UCX_LOG_FILE=stderr # UCX, the transport of MPICH, logs a rank killed in MPI_Init to standard output otherwise
limit=120000 # ms: a wait is at most 60 s, and the machine may be busy
ranks=3
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
cd "$tmp"
model=$source/examples/hub/tales
fail() { cat log >&2; echo "$*" >&2; exit 1; }
now() { echo $((${EPOCHREALTIME/./} / 1000)); } # ms
shared_memory() { ls -A /dev/shm | grep -E 'tfmc|vader|mpich' || true; }

# A rank: notes its process, then is the command.
cat >rank.sh <<'S'
echo $$ >pids/${OMPI_COMM_WORLD_RANK:-$PMI_RANK}
exec "$@"
S
mkdir pids
generate=(generate "$model" --prompt "Once there was" --max-tokens=120 --threads=1 -O0 --passes=O2 --progress=never)
run=(run "$model" --input "input_ids=$(seq -s, 1 200)" --outputs=outputs --threads=1 -O0 --passes=O2 --progress=never)

# job WORD...: the command on all ranks, in the background; its text in `text`.
job() {
	rm -f pids/* text outputs log
	"${launch[@]}" -n $ranks bash rank.sh "$tfmc" "$@" >text 2>log </dev/null &
	job=$!
}

# Whether a rank runs. A zombie has no command line.
is_running() {
	local file pid word
	for file in pids/*; do
		! { read -r pid <"$file" && read -r -d '' word <"/proc/$pid/cmdline"; } 2>/dev/null || return 0
	done
	return 1
}

# await_job: until launcher and ranks have ended. A launcher that stays without ranks is ended, and counted.
await_job() {
	local latest=$(($(now) + limit)) alone=0
	status=0
	while kill -0 $job 2>/dev/null || is_running; do
		[ $(now) -lt $latest ] || { ps -o pid,stat,etime,args -p $job $(cat pids/*) >&2; fail "$what: does not end"; }
		is_running && alone=0 || alone=$((alone + 1))
		[ $alone -lt 200 ] || { kill -9 $job; stuck=$((stuck + 1)) alone=0; }
		sleep 0.05
	done
	wait $job 2>/dev/null || status=$?
}

# kill_at MS RANK: ends a rank, MS after the start or as soon as it runs; false: it has ended by then.
kill_at() {
	sleep "$(printf '%d.%03d' $(($1 / 1000)) $(($1 % 1000)))"
	until [ -s "pids/$2" ]; do
		kill -0 $job 2>/dev/null || return 1
		sleep 0.01
	done
	kill -9 "$(cat "pids/$2")" 2>/dev/null
}

# The outputs of a job are those of one process, or absent; after a job that ended well they are there.
check_outputs() {
	[ ! -e outputs ] || cmp -s outputs whole.outputs || fail "$what: a part of the outputs"
	[ -z "$(find . -maxdepth 1 -name 'outputs?*')" ] || left=$((left + 1))
	rm -f outputs?*
	# Hydra or MPICH may have the last word.
	[[ $(cat whole.text) = "$(sed '/^==*$/,$d; /^Abort(/,$d' text)"* ]] || { cat text >&2; fail "$what: other text"; }
}

# measure: the duration of a job, of which a moment is a part. The machine may be slower or faster than before.
measure() {
	local begin=$(now)
	job "${generate[@]}"
	await_job
	[ $status = 0 ] || fail "$launcher: the job fails"
	duration=$(($(now) - begin))
}

# kill_one SEED
kill_one() {
	local begin
	[ $((($1 - first) % 10)) -ne 0 ] || measure
	RANDOM=$1
	local at=$((duration * (RANDOM % 1000) / 1000)) victim=$(($1 % ranks)) kind=$(($1 / ranks % 2))
	what="$launcher, seed $1: rank $victim at $at ms"
	if [ $kind = 0 ]; then job "${generate[@]}"; else job "${run[@]}"; fi
	kill_at $at $victim || late=$((late + 1))
	begin=$(now)
	await_job
	local took=$(($(now) - begin))
	[ $took -le $longest ] || longest=$took
	! grep -qE "rank $victim (is gone|has not come)" log || named=$((named + 1))
	check_outputs
	[ $kind = 0 ] || [ ! -e outputs ] || written=$((written + 1))
}

"$tfmc" "${generate[@]}" >whole.text
"$tfmc" "${run[@]}" >/dev/null --shards=$ranks
mv outputs whole.outputs
for launcher; do
	case $launcher in
	openmpi) launch=(mpirun.openmpi --oversubscribe) ;;
	recovery) launch=(mpirun.openmpi --oversubscribe --enable-recovery) ;;
	mpich) launch=(mpirun.mpich) ;;
	esac
	command -v "${launch[0]}" >/dev/null || { echo "SKIPPED: no ${launch[0]}" >&2; continue; }
	before=$(shared_memory)
	longest=0 named=0 late=0 left=0 written=0 stuck=0
	for ((seed = first; seed < first + kills + late; seed++)); do kill_one $seed; done
	left_there=$(comm -13 <(echo "$before") <(shared_memory))
	job "${generate[@]}"
	await_job
	[ $status = 0 ] || fail "$launcher: the next job fails"
	cmp text whole.text
	[[ $left_there != *tfmc* ]] || fail "$launcher: left in /dev/shm: $left_there"
	# Files of MPI itself: killed before it unlinks them.
	for file in $left_there; do rm -f "/dev/shm/$file"; done
	echo "$launcher: $kills kills within about $duration ms ($late more came too late); the job ended at most $longest ms later;" \
		"$stuck launchers stayed without ranks; $named named the rank; $written wrote their outputs;" \
		"$left left a temporary file; $(wc -w <<<"$left_there") files of MPI in /dev/shm"
done
