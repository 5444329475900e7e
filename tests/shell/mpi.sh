#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# libtfmcmpi as MPI jobs of 1 to 4 ranks (tests/mpi/ranks_check.c), with each MPI of this machine: bits of sums and
# broadcasts; a rank that hangs, ends, is killed, or makes another call. Nothing of a killed job is left in /dev/shm.
# A model on two ranks: the program of examples/ranks, and the command.
set -euo pipefail
. "$TFMC_SOURCE/tests/support/effort.sh"
kills=2
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
# tell: the program of examples/ranks, and the command itself, tell the tale of one process; three ranks refuse an object
# for two, and weights of another build; nothing hangs.
tell() {
	local found=0
	mpicc.$mpi -std=c17 -Wall -Wextra -Werror -I. -I"$TFMC_SOURCE"/runtime{,/mpi,/tokenizer} "$TFMC_SOURCE/examples/ranks/main.c" model.o \
		"$TFMC_BUILD"/runtime/{mpi/libtfmcmpi-$mpi,libtfmcrt,tokenizer/libtfmctok}.a -lpthread -lm ${TFMC_LINK_FLAGS:-} -o tell.$mpi
	timeout 120 "${run[@]}" -n 2 ./tell.$mpi "Once there was" >log 2>&1 || fail "$mpi: the example ends with $?"
	grep -qxFf expected log || fail "$mpi: the example tells something else"
	for n in 2 3; do
		timeout 120 "${run[@]}" -n $n "$TFMC" "${words[@]}" >log 2>&1 || fail "$mpi: $n commands end with $?"
		grep -qxFf expected log || fail "$mpi: $n commands tell something else"
	done
	timeout 120 "${run[@]}" -n 3 ./tell.$mpi "Once there was" >log 2>&1 || found=$?
	[ $found -ne 124 ] && grep -q 'ranks: session: ' log || fail "$mpi: three ranks run an object for two ($found)"
	mv model.1.weights kept && cp model.0.weights model.1.weights
	timeout 120 "${run[@]}" -n 2 ./tell.$mpi "Once there was" >log 2>&1 || found=$?
	[ $found -ne 124 ] && grep -q 'ranks: session: rank 1' log || fail "$mpi: rank 1 takes the weights of rank 0 ($found)"
	mv kept model.1.weights
}

shared_memory() { ls -A /dev/shm | grep -E 'tfmc|vader|mpich' || true; }
before=$(shared_memory)
done=0
for mpi in openmpi mpich; do
	command -v mpicc.$mpi mpirun.$mpi >/dev/null || { echo "SKIPPED: $mpi is absent" >&2; continue; }
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
	program=./linked.$mpi
	check 2 01 window results
	program=./check.$mpi
	for ranks in 1 2 3 4; do check $ranks "$(all_but $ranks none)" window results; done
	for ranks in 2 3 4; do check $ranks "$(all_but $ranks none)" messages results; done
	for transport in window messages; do
		for what in tag count kind close silent; do check 3 012 $transport $what; done
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
[ "$(shared_memory)" = "$before" ] || fail "left in /dev/shm: $(shared_memory)"
