#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# The differential matrix: builds what is missing, compiles and runs every column that this machine has tools
# for, prints the table. One command: `bash tests/matrix/matrix.sh [COLUMN...]`. Exit code 4 when something
# differs. Columns whose tools are absent are skipped and said so. Under ctest functions and models take turns
# (column_takes) unless TFMC_ALL is set; by hand all of them go through every column.
#
# Environment (ctest sets them): TFMC_SOURCE, TFMC_BUILD (default: build beside tests), CC, POCL_CACHE_DIR.
set -uo pipefail
source=${TFMC_SOURCE:-$(cd "$(dirname "$0")/../.." && pwd)}
build=${TFMC_BUILD:-$source/build}
cc=${CC:-gcc}
[ -n "${TFMC_BUILD:-}" ] || export TFMC_ALL=1
optimize=-O0 # of the compilers of C
[ -z "${TFMC_ALL:-}" ] || optimize=-O2
dir=$build/matrix${TFMC_ALL:+-all}
tool=$build/tests/matrix/tfmc_matrix
export POCL_CACHE_DIR=${POCL_CACHE_DIR:-$build/pocl-cache}
mkdir -p "$dir" "$POCL_CACHE_DIR"
if [ -z "${TFMC_BUILD:-}" ]; then
	{
		[ -f "$build/CMakeCache.txt" ] || cmake -S "$source" -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=RelWithDebInfo
		cmake --build "$build" --target tfmc_matrix
	} >"$dir/build.log" 2>&1 || { cat "$dir/build.log" >&2; exit 3; }
fi

skip() { # column, why
	echo "matrix: SKIPPED column $1: $2"
	rm -f "$dir/$1.out"
}

fail() { # column, why
	echo "matrix: column $1: $2" >&2
	touch "$dir/failed"
}

has_cpu() { # the processor features of a level of x86-64
	case $1 in
	v2) grep -qw sse4_2 /proc/cpuinfo ;;
	v3) grep -qw avx2 /proc/cpuinfo && grep -qw fma /proc/cpuinfo ;;
	v4) grep -qw avx512vl /proc/cpuinfo && grep -qw avx512dq /proc/cpuinfo && grep -qw avx512bw /proc/cpuinfo ;;
	esac
}

# Why a column cannot run here; nothing when it can.
missing() {
	case $1 in
	v2 | v3 | v4) [ "$(uname -m)" = x86_64 ] && has_cpu "$1" || echo "this processor does not run x86-64-$1" ;;
	gcc) command -v gcc >/dev/null || echo "no gcc" ;;
	clang) command -v clang-19 >/dev/null && has_cpu v3 || echo "no clang-19, or this processor does not run x86-64-v3" ;;
	aarch64)
		command -v aarch64-linux-gnu-gcc >/dev/null || echo "no aarch64-linux-gnu-gcc"
		command -v qemu-aarch64-static >/dev/null || echo "no qemu-aarch64-static"
		;;
	esac
}

# Compiles one C file of a column of C.
compile_c() { # column, file without .c
	case $1 in
	gcc) gcc -std=c17 $optimize -Wno-psabi -c "$2.c" -o "$2.o" ;;
	clang) clang-19 -std=c17 $optimize -march=x86-64-v3 -c "$2.c" -o "$2.o" ;;
	esac
}

link_runner() { # column
	local flags=(-std=c17 -Wall -Wextra -Werror "-I$source" "-I$dir/$1" "$source/tests/matrix/runner.c" "$dir/$1"/*.o)
	case $1 in
	aarch64) aarch64-linux-gnu-gcc -O1 -static "${flags[@]}" -o "$dir/$1/runner" ;;
	*) "$cc" -O1 "${flags[@]}" -o "$dir/$1/runner" ;;
	esac
}

run_compiled() { # column kind
	rm -rf "${dir:?}/$1" "$dir/$1.out"
	mkdir -p "$dir/$1"
	"$tool" emit "$source" "$dir" "$1" || { fail "$1" "not emitted"; return; }
	if [ "$2" = c ]; then
		for file in "$dir/$1"/*.c; do
			compile_c "$1" "${file%.c}" || { fail "$1" "$(basename "$file") does not compile"; return; }
		done
	fi
	link_runner "$1" || { fail "$1" "does not link"; return; }
	local emulator=()
	[ "$1" = aarch64 ] && emulator=(qemu-aarch64-static)
	"${emulator[@]}" "$dir/$1/runner" "$dir/cases.bin" "$dir/$1.out" || fail "$1" "the runner ended with $?"
	rm -rf "${dir:?}/$1"
}

run_column() { # column target kind
	local why started=$SECONDS
	why=$(missing "$1")
	if [ -n "$why" ]; then
		skip "$1" "$why"
		return
	fi
	if [ "$3" = opencl ]; then
		rm -f "$dir/$1.out"
		"$tool" opencl "$source" "$dir" "$1"
		case $? in
		0) ;;
		77) skip "$1" "no device of PoCL" ;;
		*) fail "$1" "the run on the device failed" ;;
		esac
	else
		run_compiled "$1" "$3"
	fi
	echo "matrix: column $1: $((SECONDS - started)) s"
}

rm -f "$dir/failed"
[ -f "$dir/cases.bin" ] && mv "$dir/cases.bin" "$dir/cases.old"
"$tool" cases "$source" "$dir" || exit 3
cmp -s "$dir/cases.bin" "$dir/cases.old" || rm -f "$dir"/*.out # results of other cases
rm -f "$dir/cases.old"
wanted=" $* "
while read -r name target kind; do
	[ $# -gt 0 ] && [[ $wanted != *" $name "* ]] && continue
	run_column "$name" "$target" "$kind" &
	[ "$(jobs -rp | wc -l)" -ge 2 ] && wait -n
done < <("$tool" columns | sort -s -k3,3r) # OpenCL, which takes longest, first
wait
"$tool" table "$source" "$dir" linear >"$dir/spoiled.txt"
if [ $? -ne 4 ]; then
	echo "matrix: a wrong expected value was not found" >&2
	exit 4
fi
"$tool" table "$source" "$dir"
code=$?
[ -f "$dir/failed" ] && exit 4
exit $code
