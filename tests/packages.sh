#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Makes sure that what tfmc is built and tested with is there: `packages.sh build` for the compiler
# alone, `packages.sh test` for the tests as well. Installs missing Debian packages when it may
# (root, or sudo without a password) and otherwise says what to install.
set -euo pipefail

build=(gcc libc6-dev make cmake pkg-config llvm-19-dev libyaml-dev libjansson-dev libutf8proc-dev zlib1g-dev)
test=(check llvm-19-tools clang-19 binutils python3 clang-format-14)
test+=(cmark-gfm) # the manual as HTML
test+=(gdb) # lines of the model in a debugger
test+=(python3-numpy python3-cffi mypy) # the Python package
test+=(pocl-opencl-icd ocl-icd-libopencl1 oclgrind) # kernels on an OpenCL device
test+=(openmpi-bin libopenmpi-dev mpich libmpich-dev) # models on many processes
test+=(gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user-static) # objects for aarch64, linked and run

case "${1:-build}" in
build) wanted=("${build[@]}") ;;
test) wanted=("${build[@]}" "${test[@]}") ;;
*) echo "usage: packages.sh build|test" >&2; exit 2 ;;
esac

if ! command -v dpkg-query >/dev/null; then
	echo "This is not a Debian system. Needed, by their Debian names: ${wanted[*]}" >&2
	exit 0 # CMake says what is really missing
fi

missing=()
for p in "${wanted[@]}"; do
	[ "$(dpkg-query -W -f='${db:Status-Status}' "$p" 2>/dev/null || true)" = installed ] || missing+=("$p")
done
[ ${#missing[@]} -eq 0 ] && exit 0

as_root=()
if [ "$(id -u)" -ne 0 ]; then
	if command -v sudo >/dev/null && sudo -n true 2>/dev/null; then
		as_root=(sudo)
	else
		echo "Missing packages; please install them: apt-get install ${missing[*]}" >&2
		exit 3
	fi
fi
echo "Installing ${missing[*]}" >&2
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get update -q >&2
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "${missing[@]}" >&2
