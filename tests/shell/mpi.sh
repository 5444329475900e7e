#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# libtfmcmpi as MPI jobs of 1 to 4 ranks (tests/mpi/ranks_check.c), with each MPI of this machine: bits of sums and
# broadcasts; a rank that hangs, ends, is killed, or makes another call. Nothing of a killed job is left in /dev/shm.
# A model on two ranks: the program of examples/ranks, what it refuses, and the command, which is killed at some moments.
set -euo pipefail
. "$TFMC_SOURCE/tests/support/effort.sh"
kills=1
[ -z "${TFMC_ALL:-}" ] || kills=25
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_CC=$CC MPICH_CC=$CC ASAN_OPTIONS=detect_leaks=0
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
cd "$tmp"
mkdir session # of Open MPI, with its own shared memory, which it leaves there when a job is killed
fail() { cat log >&2; echo "$*" >&2; exit 1; }

# check RANKS WANTED ARGUMENT...: a job in which the ranks WANTED find what they should; any: those that are left alive.
check() {
	local ranks=$1 wanted=$2
	shift 2
	rm -rf found && mkdir found
	timeout 120 "${run[@]}" -n "$ranks" "$program" found "$@" >log 2>&1 || [ $? -ne 124 ] || fail "$mpi, $*: does not end"
	! grep -q '^wrong: ' log || fail "$mpi, $ranks ranks, $*"
	[ "$wanted" = any ] || [ "$(ls found | tr -d '\n')" = "$wanted" ] ||
		fail "$mpi, $ranks ranks, $*: ranks '$(ls found | tr -d '\n')', not '$wanted'"
	grep -h '^rank' log | sed "s/^/$mpi $*: /" || true
}
# all_but RANKS RANK
all_but() { seq 0 $(($1 - 1)) | grep -vx "$2" | tr -d '\n'; }

tales=$TFMC_SOURCE/examples/hub/tales
words=(generate "$tales" --prompt "Once there was" --max-tokens=40 --threads=1 "${quick[@]}" --progress=never)
"$TFMC" "$tales" --name=model --shards=2 -q "${quick[@]}" -o model.o
"$TFMC" "${words[@]}" >expected
# Neither the command nor an object links MPI.
if { ldd "$TFMC"; nm -D "$TFMC"; nm model.o; } | grep -iE 'libmpi|(^|[^a-z_])p?mpi_'; then echo "MPI is linked" >&2; exit 1; fi
# Of the same weights, with another epsilon.
mkdir eps epsilon
cp "$tales"/* epsilon
sed -i 's/1e-05/2e-05/' epsilon/config.json
"$TFMC" epsilon --name=model --shards=2 -q "${quick[@]}" -o eps/model.o

# build OBJECT PROGRAM: the program of examples/ranks.
build() {
	mpicc.$mpi -std=c17 -Wall -Wextra -Werror -I. -I"$TFMC_SOURCE"/runtime{,/mpi,/tokenizer} "$TFMC_SOURCE/examples/ranks/main.c" "$1" \
		"$TFMC_BUILD"/runtime/{mpi/libtfmcmpi-$mpi,libtfmcrt,tokenizer/libtfmctok}.a -lpthread -lm ${TFMC_LINK_FLAGS:-} -o "$2"
}
# refused TEXT -n RANKS PROGRAM...: the job ends, and a rank says why it has no session.
refused() {
	local text=$1 found=0
	shift
	timeout 120 "${run[@]}" "$@" >log 2>&1 || found=$?
	[ $found -ne 124 ] && grep -q "ranks: session: $text" log || fail "$mpi: no word of '$text' ($found)"
}
# tell: the program of examples/ranks, and the command itself, tell the tale of one process.
tell() {
	build model.o ./tell.$mpi
	timeout 120 "${run[@]}" -n 2 ./tell.$mpi "Once there was" >log 2>&1 || fail "$mpi: the example ends with $?"
	grep -qxFf expected log || fail "$mpi: the example tells something else"
	local numbers="2 3"
	[ -n "${TFMC_ALL:-}" ] || case $mpi in openmpi) numbers=2 ;; mpich) numbers=3 ;; esac
	for n in $numbers; do
		timeout 120 "${run[@]}" -n $n "$TFMC" "${words[@]}" >log 2>&1 || fail "$mpi: $n commands end with $?"
		grep -qxFf expected log || fail "$mpi: $n commands tell something else"
	done
	local shapes="1x2 1x3 2x2"
	[ -n "${TFMC_ALL:-}" ] || case $mpi in openmpi) shapes=2x2 ;; mpich) shapes=1x3 ;; esac
	for shards in $shapes; do
		timeout 120 "${run[@]}" -n $((${shards/x/*})) "$TFMC" "${words[@]}" --shards=$shards >log 2>&1 || fail "$mpi: --shards=$shards ends with $?"
		grep -qxFf expected log || fail "$mpi: --shards=$shards tells something else"
	done
}
# refuse: other numbers of ranks, other code, weights of another rank, a part of them, others, none; nothing hangs.
refuse() {
	local program=(-n 2 ./tell.$mpi Once)
	build eps/model.o ./eps.$mpi
	refused 'the object is for 2 ranks, and there are 3' -n 3 ./tell.$mpi Once
	refused 'rank 1 differs from rank 0 in the code of the object' -n 1 ./tell.$mpi Once : -n 1 ./eps.$mpi Once
	mv model.1.weights kept
	cp model.0.weights model.1.weights
	refused 'rank 1: the weights are not in this object' "${program[@]}"
	head -c 100000 kept >model.1.weights
	refused 'rank 1: the file cannot be read' "${program[@]}"
	cp kept model.1.weights
	printf 12345678 | dd of=model.1.weights bs=8 seek=2 conv=notrunc status=none # the hash of the structure
	refused 'rank 1: the weights are not in this object' "${program[@]}"
	rm model.1.weights
	refused 'rank 1: the weights are not in this object' "${program[@]}"
	mv kept model.1.weights
}

shared_memory() { ls -A /dev/shm | grep -E 'tfmc|vader|mpich' || true; }
before=$(shared_memory)
done=0
for mpi in openmpi mpich; do
	command -v mpicc.$mpi mpirun.$mpi >/dev/null && [ -e "$TFMC_BUILD/runtime/mpi/libtfmcmpi-$mpi.a" ] ||
		{ echo "SKIPPED: $mpi is absent" >&2; continue; }
	done=1
	flags=(-std=c17 -O1 -g -Wall -Wextra -Werror -I"$TFMC_SOURCE" "$TFMC_SOURCE/tests/mpi/ranks_check.c")
	mpicc.$mpi "${flags[@]}" "$TFMC_SOURCE"/runtime/mpi/*.c -lpthread ${TFMC_LINK_FLAGS:-} -o check.$mpi
	mpicc.$mpi "${flags[@]}" -L"$TFMC_BUILD/runtime/mpi" -Wl,-rpath,"$TFMC_BUILD/runtime/mpi" -ltfmcmpi-$mpi -lpthread \
		${TFMC_LINK_FLAGS:-} -o linked.$mpi
	case $mpi in
	openmpi) run=(mpirun.openmpi --oversubscribe --enable-recovery --mca orte_tmpdir_base "$tmp/session"
		--mca btl_vader_backing_directory "$tmp/session") ;;
	mpich) run=(mpirun.mpich -disable-auto-cleanup) ;;
	esac
	tell
	[ -z "${TFMC_ALL:-}" ] && [ $mpi = mpich ] || refuse
	program=./linked.$mpi
	check 2 01 window results
	program=./check.$mpi
	windows="1 2 3 4" messages="2 3 4" transports="window messages"
	[ -n "${TFMC_ALL:-}" ] || case $mpi in # each number of ranks, each transport
	openmpi) windows="1 3" messages="2 4" transports=window ;;
	mpich) windows="2 4" messages=3 transports=messages ;;
	esac
	for ranks in $windows; do check $ranks "$(all_but $ranks none)" window results; done
	for ranks in $messages; do check $ranks "$(all_but $ranks none)" messages results; done
	for transport in $transports; do
		for what in tag count kind close silent left; do check 3 012 $transport $what; done
	done
	for ((seed = 0; seed < kills; seed++)); do
		ranks=$((2 + seed % 3))
		survivors=$(all_but $ranks $((seed % ranks)))
		others=$(all_but $ranks 0)
		# Hydra kills the survivors soon; MPICH itself ends them when it notices in a call.
		[ $mpi = openmpi ] || survivors=any others=any
		for what in exit kill; do check $ranks "$survivors" window $what $seed; done
		check $ranks "$others" window idle $seed
		[ $mpi = mpich ] || check $ranks "$survivors" messages kill $seed
	done
done
[ $done = 1 ] || { echo "SKIPPED: neither Open MPI nor MPICH"; exit 77; }
# Jobs of the command that are killed at other moments, in MPI_Init, too.
bash "$TFMC_SOURCE/tests/mpi/kills.sh" "$((2 * kills))" 1 openmpi mpich
[ "$(shared_memory)" = "$before" ] || fail "left in /dev/shm: $(shared_memory)"
