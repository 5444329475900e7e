#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Ranks on two hosts: network namespaces with host names of their own, joined by a pair of virtual interfaces, so that
# messages go by TCP. Results have the bits of ranks that are threads; a rank that is killed, a side that is killed, and
# a link that goes down are named by the others within the limit.
#
#	bash tests/mpi/netns.sh [openmpi|recovery|mpich...]     by hand, as root, an hour; exit code 77: it cannot run
#
# TFMC: the command (build/frontend/driver/tfmc).
set -euo pipefail
source=$(cd "$(dirname "$0")/../.." && pwd)
tfmc=${TFMC:-$source/build/frontend/driver/tfmc}
[ $# -gt 0 ] || set -- openmpi recovery mpich
launchers=("$@")
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 ASAN_OPTIONS=detect_leaks=0
skip() { echo "SKIPPED: $*" >&2; exit 77; }
a=tfmcA$$ b=tfmcB$$ link=tfmc0
tmp=$(mktemp -d)
clean() {
	local namespace
	for namespace in $a $b; do
		ip netns pids $namespace 2>/dev/null | xargs -r kill -9 2>/dev/null || true
		ip netns del $namespace 2>/dev/null || true
	done
	rm -rf "$tmp"
}
trap clean EXIT
cd "$tmp"
fail() { cat log >&2; echo "$*" >&2; exit 1; }
now() { echo $((${EPOCHREALTIME/./} / 1000)); } # ms

command -v ip >/dev/null || skip "no ip"
ip netns add $a 2>/dev/null && ip netns add $b && unshare --uts true || skip "network namespaces are not allowed"
ip -n $a link add $link type veth peer name $link netns $b || skip "no pairs of virtual interfaces"
for side in "$a 1" "$b 2"; do
	set -- $side
	ip -n $1 addr add 10.97.31.$2/24 dev $link
	ip -n $1 link set $link up
	ip -n $1 link set lo up
done

# The other host answers, that no process listens there, some time after the link is up.
for ((i = 0; i < 100; i++)); do
	[[ $(ip netns exec $a bash -c ': >/dev/tcp/10.97.31.2/9' 2>&1) != *refused* ]] || break
	sleep 0.1
done
[ $i -lt 100 ] || skip "no connection between two namespaces"

# On a host: in its namespace and with its name.
on() { ip netns exec $1 unshare --uts bash -c 'hostname "$0"; exec "$@"' "$@"; }

# The launchers' remote shell: agent [-OPTION] HOST WORD...
cat >agent <<S
#!/bin/bash
while [[ \$1 == -* ]]; do shift; done
case \$1 in *.2 | $b) namespace=$b ;; *) namespace=$a ;; esac
shift
exec ip netns exec \$namespace unshare --uts bash -c "hostname \$namespace; \$*"
S
# A rank: notes its process, then is the command.
cat >rank.sh <<'S'
echo $$ >pids/${OMPI_COMM_WORLD_RANK:-$PMI_RANK}
exec "$@"
S
chmod +x agent
mkdir pids session

model=$source/examples/hub/tales
quick=(--threads=1 -O0 --passes=O2 --progress=never)
run=(run "$model" --input "input_ids=$(seq -s, 1 200)" --outputs=outputs "${quick[@]}")
for ((i = 0; i < 2000; i++)); do echo "Once there was"; done >prompts
long=(generate "$model" --prompt-file prompts --ignore-stop --max-tokens=200 "${quick[@]}")

# job RANKS WORD...: the command, every second rank on the other host, in the background.
job() {
	local ranks=$1
	shift
	rm -f pids/* text log
	on $a "${launch[@]}" -n $ranks bash rank.sh "$tfmc" "$@" >text 2>log </dev/null &
	job=$!
}

# Results of 2 and 4 ranks, which go over the link, and verification.
check_results() {
	local ranks before
	for ranks in 2 4; do
		"$tfmc" "${run[@]}" --shards=$ranks >/dev/null
		mv outputs expected
		before=$(sent)
		job $ranks "${run[@]}"
		wait $job || fail "$launcher: $ranks ranks fail"
		cmp outputs expected || fail "$launcher: $ranks ranks have other bits"
		rm outputs
		[ $(($(sent) - before)) -ge $exchanged ] || fail "$launcher: $(($(sent) - before)) bytes went over the link"
		job $ranks verify "$source/examples/dates/model.yaml" "${quick[@]}"
		wait $job || fail "$launcher: verify on $ranks ranks fails"
	done
}
exchanged=$((200 * 96 * 4 * 8)) # bytes that a rank sends: tokens, width of f32, sums
sent() { ip netns exec $a cat /sys/class/net/$link/statistics/tx_bytes; }

# Whether a rank runs. A zombie has no command line.
is_running() {
	local file pid word
	for file in pids/*; do
		! { read -r pid <"$file" && read -r -d '' word <"/proc/$pid/cmdline"; } 2>/dev/null || return 0
	done
	return 1
}

# fault WHAT RANK COMMAND: does something to a job of two ranks that generates: all ranks end within the limit. RANK: the
# others name it unless the launcher ends them. The launcher itself may stay, which has lost its daemon on the other host.
fault() {
	local what=$1 rank=$2 begin took says
	job 2 "${long[@]}"
	until [ -s text ]; do
		is_running || kill -0 $job 2>/dev/null || fail "$launcher, $what: the job ends too early"
		sleep 0.1
	done
	begin=$(now)
	eval "$3"
	while is_running && [ $(($(now) - begin)) -lt $limit ]; do sleep 0.1; done
	took=$(($(now) - begin))
	says=$(grep -hE '^(error|note): ' log | tr '\n' ' ' || true)
	echo "$launcher, $what: $took ms: $says"
	# Without an exchange that has begun a follower waits for rank 0 as long as it lives, whatever its host does.
	! is_running || [ $rank = 0 ] || fail "$launcher, $what: a rank does not end"
	# Open MPI's launcher ends the job if it gives up its connection before the limit, after 450 s.
	[ $survive = no ] || [ $rank = 0 ] || [[ $says = *"rank $rank "* ]] || grep -q "lost communication" log ||
		fail "$launcher, $what: the rank is not named"
	ip netns pids $a | xargs -r kill -9
	ip netns pids $b | xargs -r kill -9
	wait $job 2>/dev/null || true
	ip -n $b link set $link up
}
limit=620000 # ms: the command waits 600 s for a rank

# check SURVIVE LAUNCHER WORD...: SURVIVE: whether the launcher spares the other ranks of one that was killed.
check() {
	survive=$1
	shift
	launch=("$@")
	command -v "$1" >/dev/null || { echo "SKIPPED: no $1" >&2; return 0; }
	check_results
	fault "rank 1 is killed" 1 'kill -9 $(cat pids/1)'
	fault "rank 0 is killed" 0 'kill -9 $(cat pids/0)'
	fault "the other host is lost" 1 'ip netns pids $b | xargs kill -9'
	survive=yes
	fault "the link is down" 1 'ip -n $b link set $link down'
}
openmpi=(mpirun.openmpi --host 10.97.31.1:2,10.97.31.2:2 --map-by node --mca plm_rsh_agent "$tmp/agent"
	--mca btl_tcp_if_include 10.97.31.0/24 --mca oob_tcp_if_include 10.97.31.0/24)
for launcher in "${launchers[@]}"; do
	case $launcher in
	openmpi) check no "${openmpi[@]}" ;;
	recovery) check yes "${openmpi[@]}" --enable-recovery ;;
	mpich) check no mpirun.mpich -launcher ssh -launcher-exec "$tmp/agent" -hosts 10.97.31.1,10.97.31.2 -iface $link \
		-genv UCX_TLS tcp,self -genv UCX_NET_DEVICES $link ;;
	esac
done
