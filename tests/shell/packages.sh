#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Debian packages: what lintian asks first; then, in a copy of this system's root without the build folder (an overlay,
# whose changes are in memory), dpkg installs, upgrades and purges them, with its own check of dependencies. Between, the
# command, a program by pkg-config and one by CMake work from /usr.
set -euo pipefail
skip() { echo "SKIPPED: $1"; exit 77; }
for tool in cpack dpkg-deb dpkg-shlibdeps unshare pkg-config readelf; do
	command -v "$tool" >/dev/null || skip "$tool is absent"
done
[ "$(id -u)" -eq 0 ] || skip "only root mounts an overlay"
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
unshare -m true 2>/dev/null || skip "no mount namespace"

mkdir -p "$tmp/debs/0.1.0" "$tmp/debs/0.1.1" "$tmp/x"
(cd "$tmp" && cpack --config "$TFMC_BUILD/CPackConfig.cmake" -G DEB -B "$tmp/made") >"$tmp/log" 2>&1 || { cat "$tmp/log"; exit 1; }
mv "$tmp"/made/*.deb "$tmp/debs/0.1.0"
# The next version, which is the same but for its number.
for deb in "$tmp"/debs/0.1.0/*.deb; do
	dpkg-deb -R "$deb" "$tmp/next"
	sed -i 's/\b0\.1\.0\b/0.1.1/' "$tmp/next/DEBIAN/control"
	dpkg-deb --root-owner-group -b "$tmp/next" "$tmp/debs/0.1.1" >"$tmp/log"
	rm -r "$tmp/next"
done

fail() { echo "$1"; exit 1; }
field() { dpkg-deb -f "$deb" "$1"; }
names=
for deb in "$tmp"/debs/0.1.0/*.deb; do
	name=$(field Package)
	names+=" $name"
	x=$tmp/x/$name
	dpkg-deb -x "$deb" "$x"
	[ "$(field Version)" = 0.1.0 ] && [ -n "$(field Maintainer)" ] && [ -n "$(field Description)" ] && [ -n "$(field Section)" ] ||
		fail "$name: incomplete control file"
	[ "${deb##*/}" = "${name}_0.1.0_$(field Architecture).deb" ] || fail "$deb: file name"
	grep -q common-licenses/Apache-2.0 "$x/usr/share/doc/$name/copyright" || fail "$name: no copyright"
	gzip -t "$x/usr/share/doc/$name/changelog.gz" || fail "$name: no changelog"
	dpkg-deb -c "$deb" | awk '$2 != "root/root" || $1 !~ /^(drwxr-xr-x|-rw[x-]r-[x-]r-[x-]|lrwxrwxrwx)/ { print; bad = 1 } END { exit bad }' ||
		fail "$name: owners or modes"
	while read -r file; do
		! readelf -S "$file" | grep -q '\.debug_info' || fail "$file is not stripped"
		! readelf -d "$file" | grep -E 'R(UN)?PATH' | grep -qF "$TFMC_BUILD" || fail "$file looks for libraries in the build folder"
	done < <(find "$x" -type f \( -name tfmc -path '*/bin/*' -o -name '*.so' \))
	! grep -rlIF -e "$TFMC_BUILD" -e "$TFMC_SOURCE" -e "$tmp" "$x" || fail "$name names the folders it was made in"
done
[ "$(tr ' ' '\n' <<<"$names" | grep -c .)" -ge 3 ] || fail "packages:$names"
deb=$(echo "$tmp"/debs/0.1.0/tfmc_0.1.0_*.deb)
for library in libc6 libllvm19 libyaml libjansson libutf8proc zlib1g; do
	field Depends | grep -q "$library" || fail "tfmc does not depend on $library: $(field Depends)"
done
deb=$(echo "$tmp"/debs/0.1.0/libtfmc-dev_*.deb)
field Depends | grep -q '^tfmc (= 0.1.0)$' || fail "libtfmc-dev depends on: $(field Depends)"
gzip -t "$tmp/x/tfmc/usr/share/man/man1/tfmc.1.gz"
manual=$tmp/x/tfmc-doc/usr/share/doc/tfmc/manual
if command -v cmark-gfm >/dev/null; then
	python3 -B "$TFMC_SOURCE/tests/support/html_manual.py" "$manual" "$manual/html"
fi

cat >"$tmp/inside" <<'EOF'
set -euo pipefail
everything() { find /usr /etc /opt -xdev ! -name '*.pyc' ! -path '/usr/share/man/*/cat*' ! -name ld.so.cache | sort; }
everything >/test/before
works() {
	[ "$(command -v tfmc)" = /usr/bin/tfmc ]
	cd /test
	rm -rf tiny
	tfmc new tiny -q
	want=$(tfmc generate tiny/model.yaml --no-cache --prompt hello)
	cd tiny
	tfmc model.yaml -q -o tiny.o
	cc -std=c17 -O2 main.c tiny.o $(pkg-config --cflags --libs tfmc) -o tiny_app
	[ "$(./tiny_app hello)" = "$want" ]
	cmake -S . -B build >/test/log
	cmake --build build >/test/log
	[ "$(build/tiny_app hello)" = "$want" ]
	[ ! -e /usr/bin/man ] || man -w tfmc >/test/log
	dpkg -V $names
}
export LC_ALL=C HOME=/test XDG_CACHE_HOME=/test/cache
dpkg -i /test/debs/0.1.0/*.deb
works
dpkg -i /test/debs/0.1.1/*.deb
for name in $names; do
	[ "$(dpkg-query -W -f='${db:Status-Abbrev}${Version}' $name)" = 'ii 0.1.1' ]
done
works
dpkg -P $names
! dpkg-query -W $names 2>/dev/null | grep .
everything >/test/after
diff /test/before /test/after
EOF
# shellcheck disable=SC2016
unshare -m bash -euc '
	mkdir "$1/memory"
	mount -t tmpfs none "$1/memory"
	cd "$1/memory"
	mkdir upper work root
	mount -t overlay overlay -o "lowerdir=/,upperdir=upper,workdir=work" root 2>"$1/why" || exit 77
	mkdir root/test
	cp -r "$1/debs" "$1/inside" root/test
	mount -t proc proc root/proc
	mount --bind /dev root/dev
	mount -t tmpfs none root/tmp
	for folder in "$2" "$3"; do # packages alone
		[ ! -d "root$folder" ] || mount -t tmpfs none "root$folder"
	done
	names=$4 PATH=/usr/sbin:/usr/bin:/sbin:/bin chroot root /bin/bash /test/inside
' - "$tmp" "$TFMC_SOURCE" "$TFMC_BUILD" "$names" >"$tmp/log" 2>&1 || {
	status=$?
	[ $status -ne 77 ] || skip "no overlay: $(cat "$tmp/why")"
	cat "$tmp/log"
	exit 1
}
echo "installed, upgraded and purged:$names"
