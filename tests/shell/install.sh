#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# An installed tree, moved after its installation, serves a CMake project and plain cc with pkg-config;
# a changed weight file compiles the model again, an unchanged one does not.
set -euo pipefail
for tool in cmake pkg-config; do
	command -v "$tool" >/dev/null || { echo "SKIPPED: $tool is absent"; exit 77; }
done
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
cmake --install "$TFMC_BUILD" --prefix "$tmp/first" >"$tmp/log"
mv "$tmp/first" "$tmp/moved here"
prefix="$tmp/moved here"
for file in bin/tfmc include/tfmc/tfmc_rt.h include/tfmc/abi.h include/tfmc/tfmc_tokenizer.h include/tfmc/tfmc_cl.h include/tfmc/tfmc_mpi.h share/doc/tfmc/LICENSE \
	share/man/man1/tfmc.1 share/bash-completion/completions/tfmc share/zsh/site-functions/_tfmc share/fish/vendor_completions.d/tfmc.fish; do
	[ -f "$prefix/$file" ] || { echo "not installed: $file"; exit 1; }
done
for pattern in libtfmcrt.a libtfmctok.a libtfmccl.a tfmc-tokenizer.pc tfmc-cl.pc tfmcConfig.cmake tfmcConfigVersion.cmake tfmc.pc; do
	[ -n "$(find "$prefix" -name "$pattern")" ] || { echo "not installed: $pattern"; exit 1; }
done
if grep -rlI -e "$tmp" -e "$TFMC_BUILD" "$prefix"; then
	echo "installed text files name the place they were made or installed in"
	exit 1
fi

translates() # PROGRAM
{
	"$1" "the 3rd of March, 2021" 3/3/21 | tee "$tmp/out"
	[ "$(grep -c -- '-> 2021-03-03$' "$tmp/out")" -eq 2 ]
}

# The project of the manual, word for word, with the generator of our own build.
mkdir "$tmp/app"
cp "$TFMC_SOURCE"/examples/dates/{main.c,model.yaml,*.safetensors,*.txt} "$tmp/app"
sed -n '/^```cmake CMakeLists.txt$/,/^```$/p' "$TFMC_SOURCE/frontend/manual/howto.md" | sed '1d;$d' >"$tmp/app/CMakeLists.txt"
[ "$(wc -l <"$tmp/app/CMakeLists.txt")" -eq 6 ]
generator=$(sed -n 's/^CMAKE_GENERATOR:INTERNAL=//p' "$TFMC_BUILD/CMakeCache.txt")
cmake -G "$generator" -S "$tmp/app" -B "$tmp/app/build" -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_C_COMPILER="$CC" \
	-DCMAKE_EXE_LINKER_FLAGS="${TFMC_LINK_FLAGS:-}" >"$tmp/log"
cmake --build "$tmp/app/build"
translates "$tmp/app/build/app"
object="$tmp/app/build/tfmc/dates/dates.o"
touch -r "$object" "$tmp/before"
cmake --build "$tmp/app/build" >"$tmp/log"
[ ! "$object" -nt "$tmp/before" ] || { echo "nothing changed, and the model was compiled again"; exit 1; }
sleep 1
touch "$tmp/app/model.safetensors"
cmake --build "$tmp/app/build" >"$tmp/log"
[ "$object" -nt "$tmp/before" ] || { echo "the weights changed, and the model was not compiled again"; exit 1; }

# A project without C is told so.
mkdir "$tmp/cxx"
sed 's/LANGUAGES C/LANGUAGES CXX/' "$tmp/app/CMakeLists.txt" >"$tmp/cxx/CMakeLists.txt"
cmake -G "$generator" -S "$tmp/cxx" -B "$tmp/cxx/build" -DCMAKE_PREFIX_PATH="$prefix" >"$tmp/log" 2>&1 &&
	{ echo "a project without the language C was configured"; exit 1; }
tr -s ' \n' ' ' <"$tmp/log" | grep -q 'tfmc needs the language C, this project has enabled: CXX. Write project(NAME LANGUAGES C CXX)' ||
	{ cat "$tmp/log"; exit 1; }

# The two headers of a program in either order, in C and C++.
for order in '"dates.h" <tfmc_rt.h>' '<tfmc_rt.h> "dates.h"'; do
	for language in c:c17 c++:c++17; do
		{
			printf '#include %s\n' $order
			echo 'int main(void) { struct tfmc_model model = dates_model(); return !model.init; }'
		} | "$CC" -x "${language%:*}" "-std=${language#*:}" -Wall -Wextra -Wpedantic -Werror -I"$prefix/include/tfmc" \
			-I"$tmp/app/build/tfmc/dates" -fsyntax-only - || { echo "not in the order $order ($language)"; exit 1; }
	done
done

# Without CMake.
PKG_CONFIG_PATH=$(dirname "$(find "$prefix" -name tfmc.pc)")
export PKG_CONFIG_PATH
"$prefix/bin/tfmc" "$tmp/app/model.yaml" -o "$tmp/dates.o"
eval "flags=($(pkg-config --cflags --libs tfmc))"
"$CC" -std=c17 -I"$tmp" "$tmp/app/main.c" "$tmp/dates.o" "${flags[@]}" ${TFMC_LINK_FLAGS:-} -o "$tmp/dates"
translates "$tmp/dates"

# A first project, as its CMakeLists.txt says, both ways: the program writes what the command writes.
"$prefix/bin/tfmc" new "$tmp/tiny" -q
want=$("$prefix/bin/tfmc" generate "$tmp/tiny/model.yaml" --prompt hello)
cmake -G "$generator" -S "$tmp/tiny" -B "$tmp/tiny/build" -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_C_COMPILER="$CC" \
	-DCMAKE_EXE_LINKER_FLAGS="${TFMC_LINK_FLAGS:-}" >"$tmp/log"
cmake --build "$tmp/tiny/build" >"$tmp/log"
[ "$("$tmp/tiny/build/tiny_app" hello)" = "$want" ]
# The same with the build folder in place of a prefix, where nothing is installed; a change of a header is seen.
"$TFMC" new "$tmp/small" -q
cmake -G "$generator" -S "$tmp/small" -B "$tmp/small/build" -DCMAKE_PREFIX_PATH="$TFMC_BUILD" -DCMAKE_C_COMPILER="$CC" \
	-DCMAKE_EXE_LINKER_FLAGS="${TFMC_LINK_FLAGS:-}" >"$tmp/log"
cmake --build "$tmp/small/build" >"$tmp/log"
[ "$("$tmp/small/build/small_app" hello)" = "$want" ]
(
	cd "$tmp/small"
	ln -s "$TFMC_BUILD" "$tmp/built"
	export PATH="$(dirname "$TFMC"):$PATH" PKG_CONFIG_PATH=$tmp/built/lib/pkgconfig
	cc() { "$CC" "$@" ${TFMC_LINK_FLAGS:-}; }
	eval "$(sed -n 's/^#   //p' CMakeLists.txt)"
	[ "$(./small_app hello)" = "$want" ]
)
ln -s "$prefix" "$tmp/plain" # flags of pkg-config name the folder, a blank in it would end a word
(
	cd "$tmp/tiny"
	PATH="$tmp/plain/bin:$PATH" PKG_CONFIG_PATH=$(dirname "$(find "$tmp/plain/" -name tfmc.pc)")
	cc() { "$CC" "$@" ${TFMC_LINK_FLAGS:-}; }
	eval "$(sed -n 's/^#   //p' CMakeLists.txt)"
	[ "$(./tiny_app hello)" = "$want" ]
)
