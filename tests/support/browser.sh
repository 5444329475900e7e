# SPDX-License-Identifier: Apache-2.0
#
# Sourced by tests of pages before their browser part: $browser is a chromium, without one the test ends here. The test
# appends to $tmp/press.py what it presses, as a change of `text`, the page: the script that stands there first lists
# errors of the page in `wrong`.
browser=
for name in chromium chromium-browser google-chrome; do
	[ -n "$browser" ] || ! "$name" --version >"$tmp/out" 2>&1 || browser=$name
done
if [ -z "$browser" ]; then
	echo "SKIPPED, the browser part alone: no chromium was found" >&2
	exit 0
fi
cat >"$tmp/press.py" <<'PY'
import sys
text = open(sys.argv[1], encoding="utf-8").read()
text = text.replace("<head>", """<head><script>
const wrong = [], say = console.error;
console.error = (...a) => { wrong.push(a.join(" ")); say(...a); };
addEventListener("error", (e) => wrong.push(e.message));
addEventListener("securitypolicyviolation", (e) => wrong.push(e.violatedDirective));
</script>""", 1)
PY
