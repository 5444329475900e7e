#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# examples/builds: plain make, Meson and cargo build the dates example with an installed tfmc, and again only after a
# change. What is absent is named, and the test then counts as skipped.
set -euo pipefail
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
command -v pkg-config >/dev/null || { echo "SKIPPED: pkg-config is absent"; exit 77; }
cmake --install "$TFMC_BUILD" --prefix "$tmp/prefix" >"$tmp/log"
PKG_CONFIG_PATH=$(dirname "$(find "$tmp/prefix" -name tfmc.pc)")
export PKG_CONFIG_PATH PATH="$tmp/prefix/bin:$PATH:$HOME/.cargo/bin"
cp -r "$TFMC_SOURCE/examples" "$tmp"
cd "$tmp/examples/builds"
absent=()

translates() # PROGRAM..
{
	"$@" "the 3rd of March, 2021" 3/3/21 >"$tmp/out"
	[ "$(grep -c -- '-> 2021-03-03$' "$tmp/out")" -eq 2 ] || { cat "$tmp/out"; echo "$1: wrong dates"; exit 1; }
}
again() # OBJECT COMMAND..: the object is made again only when a file of the model has changed
{
	local object=$1
	touch -r "$object" "$tmp/before"
	"${@:2}" >"$tmp/log"
	[ ! "$object" -nt "$tmp/before" ] || { echo "${*:2}: nothing changed, and the model was compiled again"; exit 1; }
	sleep 1
	touch ../dates/model.safetensors
	"${@:2}" >"$tmp/log"
	[ "$object" -nt "$tmp/before" ] || { echo "${*:2}: the weights changed, and the model was not compiled again"; exit 1; }
}

make -C make CC="$CC" LDFLAGS="${TFMC_LINK_FLAGS:-}" >"$tmp/log"
translates make/dates
again make/dates.o make -C make CC="$CC" LDFLAGS="${TFMC_LINK_FLAGS:-}"
make -C make clean >"$tmp/log"
[ "$(ls make)" = Makefile ] || { ls make; echo "make clean leaves files"; exit 1; }

if command -v meson >/dev/null && command -v ninja >/dev/null; then
	LDFLAGS="${TFMC_LINK_FLAGS:-}" meson setup meson/build meson >"$tmp/log" || { cat "$tmp/log"; exit 1; }
	ninja -C meson/build >"$tmp/log" || { cat "$tmp/log"; exit 1; }
	translates meson/build/dates
	again meson/build/dates.o ninja -C meson/build
else
	absent+=(meson)
fi

if command -v cargo >/dev/null && cargo --version >/dev/null 2>&1; then
	(cd rust && cargo build -q --offline)
	translates rust/target/debug/dates
	again "$(find rust/target -name dates.o)" cargo build -q --offline --manifest-path=rust/Cargo.toml
else
	absent+=(cargo)
fi
[ ${#absent[@]} -eq 0 ] || { echo "SKIPPED: absent: ${absent[*]}; the others are right"; exit 77; }
echo "make, Meson and cargo build the example"
