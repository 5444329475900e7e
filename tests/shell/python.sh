#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# The Python package (runtime/python), from the library of this build: tests/python/check.py, types of the package and of
# examples/notebook.py (mypy --strict), the notebook. With TFMC_ALL also the wheel: built by pip, installed into an empty
# environment, and run there without LLVM and without a compiler in PATH.
set -euo pipefail
. "$TFMC_SOURCE/tests/support/effort.sh"
for python in "${TFMC_PYTHON:-python3}" /usr/bin/python3 none; do
	"$python" -c 'import cffi, numpy' 2>/dev/null && break
done
[ "$python" != none ] || { echo "SKIPPED: no python3 with numpy and cffi (Debian: python3-numpy, python3-cffi; or TFMC_PYTHON)"; exit 77; }
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
cp -r "$TFMC_SOURCE/runtime/python/tfmc" "$tmp/tfmc"
"$python" -B "$TFMC_SOURCE/runtime/python/abi.py" "$tmp/tfmc/_abi.py"
export PYTHONPATH=$tmp TFMC_LIBRARY=$TFMC_BUILD/runtime/python/libtfmc_python.so QUICK="${quick[*]}" PYTHONDONTWRITEBYTECODE=1
# The library of a build with sanitizers wants their runtime first.
case ${TFMC_LINK_FLAGS:-} in *sanitize*) export LD_PRELOAD=$("$CC" -print-file-name=libasan.so) ASAN_OPTIONS=detect_leaks=0 ;; esac
cd "$tmp"
"$python" "$TFMC_SOURCE/tests/python/check.py"
"$python" "$TFMC_SOURCE/examples/notebook.py" >notebook
grep -q '2021-03-03' notebook
if "$python" -c 'import mypy' 2>/dev/null; then
	"$python" -m mypy --strict --ignore-missing-imports --cache-dir="$tmp/mypy" "$TFMC_SOURCE/examples/notebook.py" tfmc
else
	echo "SKIPPED: types (no mypy)"
fi
[ -n "${TFMC_ALL:-}" ] || exit 0

"$python" -m venv "$tmp/empty"
if ! "$tmp/empty/bin/pip" install -q "$TFMC_SOURCE/runtime/python" >pip.log 2>&1; then
	grep -qiE 'connection|network|temporary failure|no matching distribution|externally' pip.log || { cat pip.log; exit 1; }
	echo "SKIPPED: the wheel (pip reaches no packages)"
	exit 0
fi
command=$("$tmp/empty/bin/pip" show -f tfmc | awk '$1 == "Location:" { at = $2 } $1 == "tfmc/tfmc" { print at "/" $1 }')
[ -x "$command" ]
if ldd "$command" | grep -i llvm; then
	echo "the command of the wheel needs LLVM's library"
	exit 1
fi
env -i PATH="$tmp/empty/bin" HOME="$tmp" TFMC_SOURCE="$TFMC_SOURCE" "$tmp/empty/bin/python" "$TFMC_SOURCE/examples/notebook.py" >notebook
grep -q '2021-03-03' notebook
env -i PATH="$tmp/empty/bin" HOME="$tmp" TFMC_SOURCE="$TFMC_SOURCE" TFMC="$command" "$tmp/empty/bin/python" "$TFMC_SOURCE/tests/python/check.py" \
	test_adapters
